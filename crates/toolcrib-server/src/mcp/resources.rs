//! Resources of the sources. Their public URI is `toolcrib://SOURCE/` followed by the source's own URI; without
//! prefixes it is the source's own URI alone, unless several sources have it.
//!
//! ```text
//! file:///notes/todo.md                       at the source `notes`
//! toolcrib://notes/file:///notes/todo.md      for clients
//! ```
//!
//! The URI of the source is not encoded, so it can be cut out of the public one at the first slash after the id.

use serde_json::json;
use serde_json::value::RawValue;
use toolcrib::call::{HeldBinary, McpCapability, is_held_uri};
use toolcrib::core::features::FeatureKind;
use toolcrib::core::json::RawFields;
use toolcrib::{Code, SourceId};
use toolcrib_mcp::server::McpRequest;
use toolcrib_mcp::{Era, RpcError};

use super::prompts::parse_fields;
use super::response::{McpResult, invalid_params, to_raw, to_rpc_error};
use super::upstream_lists::{RESOURCE_LIST, UpstreamLists, client_context, set_text_field, text_field};

/// Scheme of public URIs.
const URI_SCHEME: &str = "toolcrib://";
/// Error code for unknown resources in protocol versions before 2026-07-28.
const RESOURCE_NOT_FOUND: i64 = -32002;

impl UpstreamLists {
    /// Handles `resources/read`.
    pub(super) async fn resources_read(&self, request: McpRequest) -> McpResult {
        if let Some(result) = self.read_held_binary(&request) {
            return result;
        }
        let (source, _, params) = self.route_resource(&request).await?;
        let result =
            self.forward(&source, params, &request).await.map_err(|error| translate_not_found(error, &request))?;
        // The client asked with the public URI and compares it with the one in the result.
        let result = self.rewrite_content_uris(&source, &result).await.unwrap_or(result);
        Ok(with_cache_hints(&result, &request).unwrap_or(result))
    }

    /// Reads binary content that the result of an API tool links to; `None` for any other URI.
    fn read_held_binary(&self, request: &McpRequest) -> Option<McpResult> {
        let params = request.params.as_deref().and_then(RawFields::parse)?;
        let uri = text_field(&params, "uri").filter(|uri| is_held_uri(uri))?;
        let binary = self.registry.held_binary(&uri, &client_context(request));
        Some(match binary {
            Ok(HeldBinary { uri, media_type, base64, .. }) => {
                let result = to_raw(&json!({ "contents": [{ "uri": uri, "mimeType": media_type, "blob": &*base64 }] }));
                Ok(with_cache_hints(&result, request).unwrap_or(result))
            }
            Err(error) if error.code == Code::NotFound => {
                let not_found = RpcError { message: error.message, ..resource_not_found(&uri) };
                Err(translate_not_found(not_found, request))
            }
            Err(error) => Err(to_rpc_error(&error)),
        })
    }

    /// Handles `resources/subscribe`.
    pub(super) async fn subscribe(&self, request: McpRequest) -> McpResult {
        let (source, uri, params) = self.route_resource(&request).await?;
        let uri = self.public_uri(&source, &uri).await;
        // Recorded before the source subscribes, because it may send an update before its response. A subscription that
        // existed before stays if this request fails.
        let is_new = self.clients.subscribe(&request.peer, &uri);
        let result = self.forward(&source, params, &request).await;
        if is_new && result.is_err() {
            self.clients.unsubscribe(&request.peer, &uri);
        }
        result
    }

    /// Handles `resources/unsubscribe`.
    pub(super) async fn unsubscribe(&self, request: McpRequest) -> McpResult {
        let (source, uri, params) = self.route_resource(&request).await?;
        // Whatever the source answers, the client does not want updates any more.
        self.clients.unsubscribe(&request.peer, &self.public_uri(&source, &uri).await);
        self.forward(&source, params, &request).await
    }

    /// Returns the source of the requested resource, its URI there, and the parameters with that URI.
    async fn route_resource(&self, request: &McpRequest) -> Result<(SourceId, String, RawFields), RpcError> {
        let mut params = parse_fields(request.params.as_deref())?;
        let uri = text_field(&params, "uri").ok_or_else(|| invalid_params("`uri` is missing"))?;
        let found = self.resolve_resource(&uri, request).await?;
        let (source, upstream_uri) = found.ok_or_else(|| translate_not_found(resource_not_found(&uri), request))?;
        set_text_field(&mut params, "uri", &upstream_uri);
        Ok((source, upstream_uri, params))
    }

    /// Returns the source of a resource and its URI there. Accepts a source's own URI too, because tool results contain
    /// such links.
    pub(super) async fn resolve_resource(
        &self,
        uri: &str,
        request: &McpRequest,
    ) -> Result<Option<(SourceId, String)>, RpcError> {
        if let Some((source, upstream_uri)) = uri.strip_prefix(URI_SCHEME).and_then(|rest| rest.split_once('/')) {
            let source = self.find_capable_source(McpCapability::Resources, source, uri, request).await?;
            return Ok(source.map(|source| (source, upstream_uri.to_owned())));
        }
        let owner = self.find_owner(&RESOURCE_LIST, uri, request, |source| prefixed_uri(source, uri)).await?;
        Ok(owner.map(|source| (source, uri.to_owned())))
    }

    /// Replaces the URIs in the contents of a result by the public ones; `None` if there is nothing to replace. One content
    /// that is not an object, or has no URI, leaves the whole result as it is.
    async fn rewrite_content_uris(&self, source: &SourceId, result: &RawValue) -> Option<Box<RawValue>> {
        let shared_uris = self.shared_keys(&RESOURCE_LIST).await.unwrap_or_default();
        if !self.has_prefixes() && shared_uris.is_empty() {
            return None;
        }
        let mut result = RawFields::parse(result)?;
        let mut contents: Vec<RawFields> = serde_json::from_str(result.get("contents")?.get()).ok()?;
        for content in &mut contents {
            let uri = text_field(content, "uri")?;
            let uri = self.public_key(FeatureKind::Resource, source, &uri, &shared_uris);
            set_text_field(content, "uri", &uri);
        }
        result.insert("contents", to_raw(&contents));
        Some(to_raw(&result))
    }
}

/// Returns the URI of a resource with its source.
pub(super) fn prefixed_uri(source: &SourceId, upstream_uri: &str) -> String {
    format!("{URI_SCHEME}{source}/{upstream_uri}")
}

/// Adds the cache hints that protocol 2026-07-28 requires, when a source of an older version sent none: not cacheable.
fn with_cache_hints(result: &RawValue, request: &McpRequest) -> Option<Box<RawValue>> {
    let mut fields = RawFields::parse(result).filter(|_| request.peer.era == Era::Modern)?;
    if fields.get("contents").is_none() || fields.get("ttlMs").is_some() {
        return None;
    }
    fields.insert("ttlMs", to_raw(&0));
    fields.insert("cacheScope", to_raw(&"private"));
    Some(to_raw(&fields))
}

/// Translates the code for an unknown resource: protocol 2026-07-28 uses "invalid params" instead.
fn translate_not_found(error: RpcError, request: &McpRequest) -> RpcError {
    match (request.peer.era, error.code) {
        (Era::Modern, RESOURCE_NOT_FOUND) => RpcError { code: RpcError::INVALID_PARAMS, ..error },
        _ => error,
    }
}

/// Error for a URI that no source has, with the code of legacy versions; `translate_not_found` adapts it.
fn resource_not_found(uri: &str) -> RpcError {
    let uri = toolcrib::core::text::sanitize_truncated(uri, 200);
    let data = Some(to_raw(&json!({ "uri": uri })));
    RpcError { code: RESOURCE_NOT_FOUND, message: format!("no resource at `{uri}`"), data }
}
