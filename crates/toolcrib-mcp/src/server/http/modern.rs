//! HTTP requests of 2026-07-28: stateless, with version, client and method in `_meta` and again in headers that must
//! match.
//!
//! The checks run before the request is started, so a mismatch never reaches the service: `_meta` is complete, the
//! version header equals it and is supported, `Mcp-Method` and `Mcp-Name` equal the body, and for `tools/call` so do
//! the `Mcp-Param-*` headers. A failed check is a JSON-RPC error with HTTP 400.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::value::RawValue;

use super::{
    EndpointResult, McpEndpoint, RequestHead, VERSION_HEADER, header_text, incoming_request, response::AcceptedTypes,
};
use crate::{
    era::{Era, MODERN_VERSION},
    error::RpcError,
    headers,
    message::{RawObject, empty_object},
    server::{
        McpPeer,
        event_buffer::{EventBuffer, Retention},
        handshake,
        params::RequestParams,
        request::ClientContext,
    },
};

impl McpEndpoint {
    /// Checks and runs one request. Its peer exists for this request only. The outer error rejects the request before
    /// it was started; the inner result is the HTTP response of a started one.
    pub(super) async fn handle_modern(
        &self,
        head: &RequestHead,
        id: &RawValue,
        method: &str,
        mut params: RequestParams,
        accepts: AcceptedTypes,
    ) -> Result<EndpointResult, RpcError> {
        let shared = &self.inner.shared;
        params.require_meta()?;
        check_version(&head.headers, &params)?;
        headers::check_standard_headers(&head.headers, method, params.name.as_deref()).map_err(header_mismatch)?;
        let query = head.uri.query().unwrap_or_default();
        let capabilities = params.capabilities.take().unwrap_or_else(empty_object);
        let peer = McpPeer::new(Era::Modern, params.client_name.take(), capabilities, query);
        peer.set_extensions(head.extensions.clone());
        let peer = Arc::new(McpPeer { is_stateless: true, ..peer });
        if method == "tools/call" {
            self.check_arguments(&head.headers, &peer, &params)?;
        }
        // Streams of this version cannot be resumed, so nothing is retained.
        let buffer = EventBuffer::new(0, shared.options.max_queued_messages, Retention::Nothing);
        let reader = buffer.add_reader(None);
        let client = ClientContext { peer, client_requests: None, ended: shared.closing.clone(), is_one_shot: true };
        shared.start_request(client, incoming_request(head, id, method, params, &buffer, accepts.events))?;
        let response = self.build_response(reader, Era::Modern, accepts).await;
        Ok(response.map_or_else(|| self.unanswered_response(id, &shared.closing), Ok))
    }

    /// Checks the headers that repeat arguments, if the tool's schema has `x-mcp-header`.
    fn check_arguments(
        &self,
        headers: &HeaderMap,
        peer: &Arc<McpPeer>,
        params: &RequestParams,
    ) -> Result<(), RpcError> {
        let Some(name) = &params.name else { return Ok(()) };
        let Some(schema) = self.inner.shared.service.input_schema(peer, name) else { return Ok(()) };
        let fields = params.service_params.as_deref().and_then(RawObject::parse).unwrap_or_default();
        let no_arguments = empty_object();
        let arguments = fields.get("arguments").unwrap_or(&no_arguments);
        headers::check_argument_headers(headers, &schema, arguments).map_err(header_mismatch)
    }
}

/// Checks that the version header matches `_meta` and that the version is supported.
fn check_version(headers: &HeaderMap, params: &RequestParams) -> Result<(), RpcError> {
    let version = params.protocol_version.as_deref().unwrap_or_default();
    match header_text(headers, VERSION_HEADER) {
        None => Err(header_mismatch(format!("the header `{VERSION_HEADER}` is missing"))),
        Some(header) if header != version => {
            Err(header_mismatch(format!("the header `{VERSION_HEADER}` does not match `_meta`")))
        }
        Some(_) if version != MODERN_VERSION => Err(handshake::unsupported_version(version)),
        Some(_) => Ok(()),
    }
}

/// The error for a header that is missing or does not match the body.
fn header_mismatch(reason: String) -> RpcError {
    RpcError::new(RpcError::HEADER_MISMATCH, reason)
}
