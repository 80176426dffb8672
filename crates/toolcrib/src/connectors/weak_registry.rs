//! Weak reference from a connector to its registry, for workflows, whose tools call tools of other sources.

use std::sync::{Arc, OnceLock, Weak};

use toolcrib_core::{Code, Error, Result};

use crate::registry::RegistryInner;

/// A weak reference, so that connectors do not keep the registry alive. Set once, when the registry is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct WeakRegistry(Arc<OnceLock<Weak<RegistryInner>>>);

impl WeakRegistry {
    /// Sets the registry.
    pub(crate) fn set(&self, shared: &Arc<RegistryInner>) {
        // Set once; a second registry never shares the connectors.
        let _ = self.0.set(Arc::downgrade(shared));
    }

    /// Returns the registry, or an error if it was closed. Callers hold the returned reference for one call only, so
    /// that dropping the last `Registry` still ends everything.
    pub(crate) fn upgrade(&self) -> Result<Arc<RegistryInner>> {
        let registry = self.0.get().and_then(Weak::upgrade);
        registry.ok_or_else(|| Error::new(Code::ToolUnavailable, "the registry was closed"))
    }
}
