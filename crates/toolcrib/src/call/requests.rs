//! Requests to MCP sources other than tool calls: resources, prompts, and any other method.
//!
//! These requests pass the circuit breaker like calls, but rules on tools, argument validation, statistics and the
//! concurrency limit of tools do not apply to them.

use std::time::Duration;

use serde_json::value::RawValue;
use toolcrib_core::{Result, SourceId};

use super::find_tool::disabled_source_error;
use super::{CallContext, CallDeadline};
use crate::connector::SourceRequest;
use crate::registry::Registry;

/// Capability, besides tools, that an MCP source may announce. The last discovery records which of them a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpCapability {
    /// `resources/list`, `resources/read` and subscriptions.
    Resources,
    /// `prompts/list` and `prompts/get`.
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

/// Prefix of a recorded capability that is an extension.
const EXTENSION_PREFIX: &str = "extensions/";

/// Returns the form in which an extension of a source is recorded among its capabilities: `extensions/ID=SETTINGS`.
#[cfg(feature = "mcp")]
pub(crate) fn format_extension(id: &str, settings: &RawValue) -> String {
    format!("{EXTENSION_PREFIX}{id}={}", settings.get())
}

/// Parses a recorded extension; `None` for other capabilities.
pub(crate) fn parse_extension(capability: &str) -> Option<(&str, &RawValue)> {
    let (id, settings) = capability.strip_prefix(EXTENSION_PREFIX)?.split_once('=')?;
    Some((id, serde_json::from_str(settings).ok()?))
}

impl Registry {
    /// Sends any request to an MCP source, over the connection that a call would use. An error of the source is
    /// `TOOL_EXECUTION_FAILED` with `rpc_code`, `rpc_message` and, unless it is large, `rpc_data` in its details.
    pub async fn send_request(
        &self,
        id: &SourceId,
        method: &str,
        params: Option<&RawValue>,
        context: &CallContext,
    ) -> Result<Box<RawValue>> {
        let snapshot = self.state.snapshot();
        let source =
            snapshot.effective_sources.get(id).ok_or_else(|| snapshot.unknown_source_error(id.as_str(), |_| true))?;
        if !snapshot.is_enabled(id) {
            return Err(disabled_source_error(id));
        }
        // Trust and the state of the journal are checked where the request is sent.
        let call_timeout = source.settings.call_timeout();
        let deadline = match context.deadline {
            Some(deadline) => deadline.compared_with(call_timeout),
            None => CallDeadline::for_source(call_timeout, Duration::ZERO),
        };
        let request = SourceRequest { source: id, method, params, deadline, context };
        self.dispatcher.send_request(source, request).await
    }
}
