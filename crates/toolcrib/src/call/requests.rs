//! What MCP sources offer besides tools, such as resources and prompts: who has it, and any request to one of them.

use serde_json::value::RawValue;
use toolcrib_core::{Code, Error, Result, SourceId};

use super::CallOptions;
use crate::connector::SourceRequest;
use crate::registry::Registry;

/// What a source may announce besides tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpCapability {
    Resources,
    Prompts,
}

impl McpCapability {
    /// The name of the capability in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            McpCapability::Resources => "resources",
            McpCapability::Prompts => "prompts",
        }
    }
}

impl Registry {
    /// The enabled sources that announced this when they were last discovered, in the order of their ids.
    pub fn sources_with_capability(&self, what: McpCapability) -> Vec<SourceId> {
        let now = self.shared.snapshot.load_full();
        let enabled = now.inventory.sources().filter(|(id, state)| self.shared.is_enabled(id, state.enabled));
        let permitted = enabled.map(|(id, _)| id).filter(|id| self.shared.ensure_trusted(id).is_ok());
        let offers = |id: &&SourceId| {
            let standing = now.statuses.get(*id);
            standing.is_some_and(|standing| standing.capabilities.iter().any(|offer| offer == what.name()))
        };
        permitted.filter(offers).cloned().collect()
    }

    /// Makes any request to an MCP source, over the connection that a call would take. An error of the source is
    /// `TOOL_EXECUTION_FAILED` with `rpc_code`, `rpc_message` and, unless it is large, `rpc_data` in its details.
    pub async fn send_request(
        &self,
        id: &SourceId,
        method: &str,
        params: Option<Box<RawValue>>,
        options: CallOptions,
    ) -> Result<Box<RawValue>> {
        let now = self.shared.snapshot.load_full();
        let source = now.effective_sources.get(id).ok_or_else(|| self.shared.unknown_source_error(id.as_str()))?;
        if !now.inventory.source(id).is_some_and(|state| self.shared.is_enabled(id, state.enabled)) {
            let message = format!("the source `{id}` is disabled; `toolcrib enable {id}` turns it on");
            return Err(Error::new(Code::ToolNotImplemented, message));
        }
        let terms = options.call_context(options.timeout.unwrap_or(source.settings.call_timeout()));
        let request = SourceRequest { method: method.to_owned(), params, meta: options.meta, context: terms };
        self.shared.send_request(source, request).await
    }
}
