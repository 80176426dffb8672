//! Writes a request down: its id, its `_meta`, and for Streamable HTTP the headers that repeat them.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use serde_json::{json, value::RawValue};

use super::{ClientTransport, OutgoingMessage, OutgoingRequest, WireConnection, in_flight::SendState};
use crate::{
    era::{Era, MODERN_VERSION},
    error::WireError,
    headers,
    message::{self, RawObject, to_raw},
    options::ClientOptions,
};

/// Whether a key of `_meta` belongs to one hop. What a caller passes on from elsewhere is made anew; the rest goes
/// through, and so does the level of logging, which is a wish of whoever called first.
pub(crate) fn is_hop_by_hop_meta(key: &str) -> bool {
    let protocol = key.strip_prefix("io.modelcontextprotocol/");
    key == "progressToken" || protocol.is_some_and(|key| key != "logLevel")
}

impl WireConnection {
    pub(super) fn encode_request<'a>(
        &self,
        id: u64,
        ask: &OutgoingRequest<'a>,
        wants_progress: bool,
        ticket: Arc<SendState>,
    ) -> Result<OutgoingMessage<'a>, WireError> {
        let modern = self.era() == Era::Modern && ask.method != "initialize";
        let mut headers = ask.headers.clone();
        let params = self.encode_params(id, ask, modern, wants_progress, &mut headers)?;
        let text = message::encode_request(id, ask.method, params.as_deref())?;
        Ok(OutgoingMessage { id: Some(id), method: ask.method, text, headers, send_state: ticket })
    }

    fn encode_params<'a>(
        &self,
        id: u64,
        ask: &OutgoingRequest<'a>,
        modern: bool,
        wants_progress: bool,
        headers: &mut HeaderMap,
    ) -> Result<Option<Cow<'a, RawValue>>, WireError> {
        let has_meta = ask.params.is_some_and(|params| params.get().contains("\"_meta\""));
        if !modern && !wants_progress && !has_meta {
            return Ok(ask.params.map(Cow::Borrowed));
        }
        let not_an_object = || WireError::Protocol(format!("the parameters of `{}` are no object", ask.method));
        let mut params = match ask.params {
            Some(params) => RawObject::parse(params).ok_or_else(not_an_object)?,
            None => RawObject::default(),
        };
        if modern && matches!(self.transport, ClientTransport::Http(_)) {
            headers::add_standard_headers(headers, ask.method, &params);
        }
        let given = params.take("_meta");
        let mut meta = given.as_deref().and_then(RawObject::parse).unwrap_or_default();
        meta.retain(|key| !is_hop_by_hop_meta(key));
        if wants_progress {
            meta.set("progressToken", to_raw(&id)?);
        }
        if modern {
            self.client_meta.iter().for_each(|(key, value)| meta.set_borrowed(key, value));
            let capabilities = ask.relay.map_or(&self.options.capabilities, |relay| &relay.capabilities);
            meta.set_borrowed("io.modelcontextprotocol/clientCapabilities", capabilities);
        }
        if let Some(relay) = ask.relay.filter(|_| modern) {
            let said_before = [("inputResponses", &relay.input_responses), ("requestState", &relay.request_state)];
            for (key, value) in said_before.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
                params.set_borrowed(key, value);
            }
        }
        if !meta.is_empty() {
            params.set("_meta", meta.to_raw()?);
        }
        params.to_raw().map(|params| Some(Cow::Owned(params)))
    }
}

/// What every request of 2026-07-28 says about us.
pub(super) fn client_meta(options: &ClientOptions) -> [(&'static str, Box<RawValue>); 2] {
    let client = json!({ "name": options.client_name, "version": options.client_version });
    [
        ("io.modelcontextprotocol/protocolVersion", to_raw(MODERN_VERSION).unwrap_or_default()),
        ("io.modelcontextprotocol/clientInfo", to_raw(&client).unwrap_or_default()),
    ]
}
