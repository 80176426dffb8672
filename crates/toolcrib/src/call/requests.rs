//! Requests to MCP sources other than tool calls: resources, prompts, and any other method.
//!
//! These requests pass the circuit breaker like calls, but rules on tools, argument validation, statistics and the
//! concurrency limit of tools do not apply to them.

use serde_json::value::RawValue;
use toolcrib_core::{Result, SourceId};

use super::CallOptions;
use super::check::disabled_source_error;
use crate::connector::SourceRequest;
use crate::registry::Registry;

/// Capability, besides tools, that an MCP source may announce. The last discovery records which of them a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpCapability {
    Resources,
    Prompts,
}

impl McpCapability {
    /// Returns the name of the capability in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            McpCapability::Resources => "resources",
            McpCapability::Prompts => "prompts",
        }
    }
}

impl Registry {
    /// Returns the enabled sources that announced a capability at their last discovery, ordered by id. Reads the
    /// snapshot only; sources of an untrusted file are left out, because they must not be contacted.
    pub fn sources_with_capability(&self, capability: McpCapability) -> Vec<SourceId> {
        let snapshot = self.state.snapshot();
        let trusted = snapshot.enabled_sources().map(|(id, _)| id).filter(|id| snapshot.ensure_trusted(id).is_ok());
        let has_capability = |id: &&SourceId| {
            let status = snapshot.statuses.get(*id);
            status.is_some_and(|status| status.capabilities.iter().any(|name| name == capability.name()))
        };
        trusted.filter(has_capability).cloned().collect()
    }

    /// Sends any request to an MCP source, over the connection that a call would use. An error of the source is
    /// `TOOL_EXECUTION_FAILED` with `rpc_code`, `rpc_message` and, unless it is large, `rpc_data` in its details.
    pub async fn send_request(
        &self,
        id: &SourceId,
        method: &str,
        params: Option<Box<RawValue>>,
        options: CallOptions,
    ) -> Result<Box<RawValue>> {
        let snapshot = self.state.snapshot();
        let source = snapshot.effective_sources.get(id).ok_or_else(|| snapshot.unknown_source_error(id.as_str()))?;
        if !snapshot.is_enabled(id) {
            return Err(disabled_source_error(id));
        }
        // Trust and the state of the journal are checked where the request is sent.
        let context = options.call_context(options.timeout.unwrap_or(source.settings.call_timeout()));
        let request = SourceRequest { method: method.to_owned(), params, meta: options.meta, context };
        self.dispatcher.send_request(source, request).await
    }
}
