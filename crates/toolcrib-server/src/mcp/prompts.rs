//! Prompts of the sources, listed as `source__prompt`, and completions for their arguments.
//!
//! Requests are forwarded with all their parameters; only the name of the prompt, or the URI of the resource, is
//! replaced by the one that the source knows.

use serde_json::value::RawValue;
use toolcrib::call::McpCapability;
use toolcrib::core::json::RawFields;
use toolcrib::core::tool::{ParsedToolName, SEPARATOR, parse_tool_name};
use toolcrib::{CallContext, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::McpRequest;

use super::call::{client_relay, forward_to_client};
use super::response::{McpResult, invalid_params, to_raw, to_rpc_error};
use super::upstream_lists::{PROMPT_LIST, UpstreamLists, client_context, not_found_error, set_text_field, text_field};

impl UpstreamLists {
    /// Handles `prompts/get`: forwards it to the source under the prompt's own name.
    pub(super) async fn prompts_get(&self, request: McpRequest) -> McpResult {
        let mut params = parse_fields(request.params.as_deref())?;
        let name = text_field(&params, "name").ok_or_else(|| invalid_params("`name` is missing"))?;
        let found = self.resolve_prompt(&name, &request).await?;
        let (source, upstream_name) = found.ok_or_else(|| to_rpc_error(&not_found_error("prompt", &name)))?;
        set_text_field(&mut params, "name", &upstream_name);
        self.forward(&source, params, &request).await
    }

    /// Handles `completion/complete` for a prompt or a resource template.
    pub(super) async fn complete(&self, request: McpRequest) -> McpResult {
        let mut params = parse_fields(request.params.as_deref())?;
        let mut reference =
            params.get("ref").and_then(RawFields::parse).ok_or_else(|| invalid_params("`ref` is missing"))?;
        let found = match (text_field(&reference, "name"), text_field(&reference, "uri")) {
            (Some(name), _) => self.resolve_prompt(&name, &request).await?.map(|found| (found, "name")),
            (None, Some(uri)) => self.resolve_resource(&uri, &request).await?.map(|found| (found, "uri")),
            (None, None) => None,
        };
        let ((source, upstream_key), key) =
            found.ok_or_else(|| invalid_params("`ref` names an unknown prompt or resource"))?;
        set_text_field(&mut reference, key, &upstream_key);
        params.insert("ref", to_raw(&reference));
        self.forward(&source, params, &request).await
    }

    /// Returns the source of a prompt and the prompt's name there. Accepts a name without prefix if it is unambiguous.
    /// `None` if no source has such a prompt; an error if several have one.
    async fn resolve_prompt(&self, name: &str, request: &McpRequest) -> Result<Option<(SourceId, String)>, RpcError> {
        if let Ok(ParsedToolName::Qualified { source, tool }) = parse_tool_name(name)
            && let Some(source) = self.find_capable_source(McpCapability::Prompts, source, name, request).await?
        {
            return Ok(Some((source, tool.to_owned())));
        }
        let owner = self.find_owner(&PROMPT_LIST, name, request, |source| format!("{source}{SEPARATOR}{name}")).await?;
        Ok(owner.map(|source| (source, name.to_owned())))
    }

    /// Forwards a request with changed parameters to a source.
    pub(super) async fn forward(&self, source: &SourceId, params: RawFields, request: &McpRequest) -> McpResult {
        let params = to_raw(&params);
        // Responses to an earlier `input_required` result are among the parameters, so the relay needs none.
        let context = CallContext {
            on_question: Some(forward_to_client(request.client.clone())),
            input_relay: client_relay(request),
            ..client_context(request)
        };
        let result = self.registry.send_request(source, &request.method, Some(&params), &context).await;
        result.map_err(|error| to_rpc_error(&error))
    }
}

/// Splits the parameters of a request into raw fields, which keep unknown ones unchanged.
pub(super) fn parse_fields(params: Option<&RawValue>) -> Result<RawFields, RpcError> {
    let parsed = params.map_or_else(|| Some(RawFields::default()), RawFields::parse);
    parsed.ok_or_else(|| invalid_params("the parameters are not an object"))
}
