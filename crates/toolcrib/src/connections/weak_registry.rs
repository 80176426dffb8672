//! The registry that a connection belongs to, for the one kind of source whose tools call tools of other sources.

use std::sync::{Arc, OnceLock, Weak};

use toolcrib_core::{Code, Error, Result};

use crate::registry::RegistryInner;

/// It does not keep the registry alive.
#[derive(Debug, Clone, Default)]
pub(crate) struct WeakRegistry(Arc<OnceLock<Weak<RegistryInner>>>);

impl WeakRegistry {
    pub(crate) fn set(&self, shared: &Arc<RegistryInner>) {
        let _set_once = self.0.set(Arc::downgrade(shared));
    }

    pub(crate) fn upgrade(&self) -> Result<Arc<RegistryInner>> {
        let alive = self.0.get().and_then(Weak::upgrade);
        alive.ok_or_else(|| Error::new(Code::ToolUnavailable, "the registry was closed"))
    }
}
