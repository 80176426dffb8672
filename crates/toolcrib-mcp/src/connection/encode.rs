//! Encodes requests: id, `_meta` of the era in use, and for Streamable HTTP the headers that repeat parts of the body.
//!
//! A modern request carries everything that a session would know:
//!
//! ```json
//! {"name":"echo","arguments":{},"_meta":{
//!   "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//!   "io.modelcontextprotocol/clientInfo":{"name":"toolcrib","version":"1.0.0"},
//!   "io.modelcontextprotocol/clientCapabilities":{}}}
//! ```
//!
//! Keys of `_meta` that belong to one hop are replaced here and removed by `server::params`, so that a gateway never
//! forwards the ones of its client.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use serde_json::{json, value::RawValue};

use super::{ClientTransport, OutgoingMessage, OutgoingRequest, WireConnection, in_flight::SendState};
use crate::{
    era::{Era, MODERN_VERSION},
    error::WireError,
    headers,
    message::{self, RawObject, to_raw},
    options::{ClientOptions, RequestOptions},
};

/// Whether a `_meta` key is hop-by-hop: valid between two peers only, so that a gateway replaces it. All other keys are
/// forwarded, including the log level, which the first client chose.
pub(crate) fn is_hop_by_hop_meta(key: &str) -> bool {
    let protocol = key.strip_prefix("io.modelcontextprotocol/");
    key == "progressToken" || protocol.is_some_and(|key| key != "logLevel")
}

impl WireConnection {
    /// Encodes a request under its id, in the form that the era and the transport require. Fails when the parameters
    /// have to be extended and are not an object.
    pub(super) fn encode_request<'a>(
        &self,
        id: u64,
        request: &OutgoingRequest<'a>,
        options: &RequestOptions<'_>,
        send_state: Arc<SendState>,
    ) -> Result<OutgoingMessage<'a>, WireError> {
        // `initialize` exists in the legacy era only and has no version in `_meta`, `server/discover` in the modern one.
        let modern = (self.era() == Era::Modern && request.method != "initialize")
            || options.modern
            || request.method == "server/discover";
        let mut headers = request.headers.clone();
        let params = self.encode_params(id, request, modern, options, &mut headers)?;
        let text = message::encode_request(id, request.method, params.as_deref())?;
        Ok(OutgoingMessage { id: Some(id), method: request.method, text, headers, send_state })
    }

    /// Adds `_meta` to the parameters and fills in `headers`. Legacy requests without `_meta` and progress are borrowed
    /// unchanged, so that large arguments are neither parsed nor copied.
    fn encode_params<'a>(
        &self,
        id: u64,
        request: &OutgoingRequest<'a>,
        modern: bool,
        options: &RequestOptions<'_>,
        headers: &mut HeaderMap,
    ) -> Result<Option<Cow<'a, RawValue>>, WireError> {
        let wants_progress = options.progress.is_some();
        // A text search instead of parsing. A match at a deeper level only costs the slow path.
        let has_meta = request.params.is_some_and(|params| params.get().contains("\"_meta\""));
        if !modern && !wants_progress && !has_meta {
            return Ok(request.params.map(Cow::Borrowed));
        }
        let not_an_object = || WireError::Protocol(format!("the parameters of `{}` are not an object", request.method));
        let mut params = match request.params {
            Some(params) => RawObject::parse(params).ok_or_else(not_an_object)?,
            None => RawObject::default(),
        };
        if modern && matches!(self.transport, ClientTransport::Http(_)) {
            headers::add_standard_headers(headers, request.method, &params);
        }
        // Forward the caller's `_meta` without hop-by-hop keys, then add our own.
        let caller_meta = params.take("_meta");
        let mut meta = caller_meta.as_deref().and_then(RawObject::parse).unwrap_or_default();
        meta.retain(|key| !is_hop_by_hop_meta(key));
        if wants_progress {
            // The request id is unique on this connection, so it serves as the token too.
            meta.set("progressToken", to_raw(&id)?);
        }
        if modern {
            self.client_meta.iter().for_each(|(key, value)| meta.set_borrowed(key, value));
            let declared = || options.relay.map_or(&*self.options.capabilities, |relay| relay.capabilities);
            let capabilities = options.capabilities.unwrap_or_else(declared);
            meta.set_borrowed("io.modelcontextprotocol/clientCapabilities", capabilities);
        }
        if let Some(relay) = options.relay.filter(|_| modern) {
            // The answers and the state that the downstream client sent back; this connection adds nothing to them.
            let resumed = [("inputResponses", relay.input_responses), ("requestState", relay.request_state)];
            for (key, value) in resumed.into_iter().filter_map(|(key, value)| Some((key, value?))) {
                params.set_borrowed(key, value);
            }
        }
        if !meta.is_empty() {
            params.set("_meta", meta.to_raw()?);
        }
        params.to_raw().map(|params| Some(Cow::Owned(params)))
    }
}

/// Encodes the `_meta` entries that describe this client in every request of 2026-07-28.
pub(super) fn client_meta(options: &ClientOptions) -> [(&'static str, Box<RawValue>); 2] {
    let client = json!({ "name": options.client_name, "version": options.client_version });
    [
        ("io.modelcontextprotocol/protocolVersion", to_raw(MODERN_VERSION).unwrap_or_default()),
        ("io.modelcontextprotocol/clientInfo", to_raw(&client).unwrap_or_default()),
    ]
}
