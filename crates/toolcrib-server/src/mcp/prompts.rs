//! Prompts of the sources, under `source__prompt`, and completions for their arguments.

use serde_json::value::RawValue;
use toolcrib::call::McpCapability;
use toolcrib::core::json::RawFields;
use toolcrib::core::tool::{ParsedToolName, SEPARATOR, parse_tool_name};
use toolcrib::{CallOptions, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::McpRequest;

use super::McpService;
use super::call::{client_relay, forward_to_client};
use super::response::{McpResult, invalid_params, to_raw, to_rpc_error};
use super::upstream_lists::{ListKind, not_found_error, request_options, set_text_field, text_field};

const PROMPT_LIST: ListKind =
    ListKind { offering: McpCapability::Prompts, method: "prompts/list", items: "prompts", key: "name" };

impl McpService {
    pub(super) async fn prompts_list(&self, request: &McpRequest) -> McpResult {
        let mut prompts = self.collect_items(&PROMPT_LIST, request).await;
        if self.has_prefixes() {
            for prompt in &mut prompts {
                let name = format!("{}{SEPARATOR}{}", prompt.source, prompt.upstream_key);
                set_text_field(&mut prompt.fields, "name", &name);
            }
        }
        self.render_list(&PROMPT_LIST, prompts, request)
    }

    pub(super) async fn prompts_get(&self, request: McpRequest) -> McpResult {
        let mut params = parse_fields(request.params.as_deref())?;
        let name = text_field(&params, "name").ok_or_else(|| invalid_params("`name` is missing"))?;
        let found = self.resolve_prompt(&name, &request).await?;
        let (source, own) = found.ok_or_else(|| to_rpc_error(&not_found_error("prompt", &name)))?;
        set_text_field(&mut params, "name", &own);
        self.forward(&source, params, &request).await
    }

    pub(super) async fn complete(&self, request: McpRequest) -> McpResult {
        let mut params = parse_fields(request.params.as_deref())?;
        let mut reference =
            params.get("ref").and_then(RawFields::parse).ok_or_else(|| invalid_params("`ref` is missing"))?;
        let source = match (text_field(&reference, "name"), text_field(&reference, "uri")) {
            (Some(name), _) => self.resolve_prompt(&name, &request).await?.map(|found| (found, "name")),
            (None, Some(uri)) => self.resolve_resource(&uri, &request).await?.map(|found| (found, "uri")),
            (None, None) => None,
        };
        let ((source, own), key) =
            source.ok_or_else(|| invalid_params("`ref` names no prompt and no resource known here"))?;
        set_text_field(&mut reference, key, &own);
        params.insert("ref", to_raw(&reference));
        self.forward(&source, params, &request).await
    }

    /// The source of a prompt and its name there.
    async fn resolve_prompt(&self, name: &str, request: &McpRequest) -> Result<Option<(SourceId, String)>, RpcError> {
        if let Ok(ParsedToolName::Qualified { source, tool }) = parse_tool_name(name) {
            let source = self
                .registry
                .sources_with_capability(McpCapability::Prompts)
                .into_iter()
                .find(|id| id.as_str() == source);
            if let Some(source) = source {
                return Ok(Some((source, tool.to_owned())));
            }
        }
        let owner = self.find_owner(&PROMPT_LIST, name, request, |source| format!("{source}{SEPARATOR}{name}")).await?;
        Ok(owner.map(|source| (source, name.to_owned())))
    }

    pub(super) async fn forward(&self, source: &SourceId, params: RawFields, request: &McpRequest) -> McpResult {
        let params = Some(to_raw(&params));
        // The answers to what was asked before are among the parameters.
        let options = CallOptions {
            on_server_request: Some(forward_to_client(request.client.clone())),
            relay: client_relay(request),
            ..request_options(request, None)
        };
        let asked = self.registry.send_request(source, &request.method, params, options).await;
        asked.map_err(|error| to_rpc_error(&error))
    }
}

/// The fields of a request's parameters.
pub(super) fn parse_fields(params: Option<&RawValue>) -> Result<RawFields, RpcError> {
    let parsed = params.map_or_else(|| Some(RawFields::default()), RawFields::parse);
    parsed.ok_or_else(|| invalid_params("the parameters are no object"))
}
