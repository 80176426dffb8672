//! Writes a request down: its id, its `_meta`, and for Streamable HTTP the headers that repeat them.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use serde_json::{json, value::RawValue};

use super::{Ask, Connection, Mail, Transport, call::Ticket};
use crate::{
    era::{Era, MODERN},
    error::WireError,
    headers,
    message::{self, RawObject, raw},
    options::Options,
};

/// Whether a key of `_meta` belongs to one hop. What a caller passes on from elsewhere is made anew; the rest goes
/// through, and so does the level of logging, which is a wish of whoever called first.
pub(crate) fn is_own(key: &str) -> bool {
    let protocol = key.strip_prefix("io.modelcontextprotocol/");
    key == "progressToken" || protocol.is_some_and(|key| key != "logLevel")
}

impl Connection {
    pub(super) fn compose<'a>(
        &self,
        id: u64,
        ask: &Ask<'a>,
        wants_progress: bool,
        ticket: Arc<Ticket>,
    ) -> Result<Mail<'a>, WireError> {
        let modern = self.speaking() == Era::Modern && ask.method != "initialize";
        let mut headers = ask.headers.clone();
        let params = self.params(id, ask, modern, wants_progress, &mut headers)?;
        let text = message::request(id, ask.method, params.as_deref())?;
        Ok(Mail { id: Some(id), method: ask.method, text, headers, ticket })
    }

    fn params<'a>(
        &self,
        id: u64,
        ask: &Ask<'a>,
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
            Some(params) => RawObject::open(params).ok_or_else(not_an_object)?,
            None => RawObject::default(),
        };
        if modern && matches!(self.transport, Transport::Http(_)) {
            headers::add_standard(headers, ask.method, &params);
        }
        let given = params.take("_meta");
        let mut meta = given.as_deref().and_then(RawObject::open).unwrap_or_default();
        meta.retain(|key| !is_own(key));
        if wants_progress {
            meta.set("progressToken", raw(&id)?);
        }
        if modern {
            self.about.iter().for_each(|(key, value)| meta.lend(key, value));
            let capabilities = ask.relay.map_or(&self.options.capabilities, |relay| &relay.capabilities);
            meta.lend("io.modelcontextprotocol/clientCapabilities", capabilities);
        }
        if let Some(relay) = ask.relay.filter(|_| modern) {
            let said_before = [("inputResponses", &relay.responses), ("requestState", &relay.state)];
            for (key, value) in said_before.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
                params.lend(key, value);
            }
        }
        if !meta.is_empty() {
            params.set("_meta", meta.close()?);
        }
        params.close().map(|params| Some(Cow::Owned(params)))
    }
}

/// What every request of 2026-07-28 says about us.
pub(super) fn about(options: &Options) -> [(&'static str, Box<RawValue>); 2] {
    let client = json!({ "name": options.client_name, "version": options.client_version });
    [
        ("io.modelcontextprotocol/protocolVersion", raw(MODERN).unwrap_or_default()),
        ("io.modelcontextprotocol/clientInfo", raw(&client).unwrap_or_default()),
    ]
}
