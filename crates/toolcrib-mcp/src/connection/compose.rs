//! Writes a request down: its id, its `_meta`, and for Streamable HTTP the headers that repeat them.

use std::{borrow::Cow, sync::Arc};

use serde_json::{json, value::RawValue};

use super::{Ask, Connection, Mail, Transport, call::Ticket};
use crate::{
    era::{Era, MODERN},
    error::WireError,
    headers,
    message::{self, RawObject, raw},
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
        let params = self.params(id, ask, modern, wants_progress)?;
        let text = message::request(id, ask.method, params.as_deref())?;
        let mut all = ask.headers.clone();
        if modern && matches!(self.transport, Transport::Http(_)) {
            headers::add_standard(&mut all, ask.method, params.as_deref());
        }
        Ok(Mail { id: Some(id), method: ask.method, text, headers: all, ticket })
    }

    fn params<'a>(
        &self,
        id: u64,
        ask: &Ask<'a>,
        modern: bool,
        wants_progress: bool,
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
        let given = params.get("_meta").map(ToOwned::to_owned);
        let mut meta = given.as_deref().and_then(RawObject::open).unwrap_or_default();
        meta.retain(|key| !is_own(key));
        if wants_progress {
            meta.set("progressToken", raw(&id)?);
        }
        if modern {
            let client = json!({ "name": self.options.client_name, "version": self.options.client_version });
            meta.set("io.modelcontextprotocol/protocolVersion", raw(MODERN)?);
            meta.set("io.modelcontextprotocol/clientInfo", raw(&client)?);
            let capabilities = ask.relay.map_or(&self.options.capabilities, |relay| &relay.capabilities);
            meta.set("io.modelcontextprotocol/clientCapabilities", capabilities.clone());
        }
        if let Some(relay) = ask.relay.filter(|_| modern) {
            let said_before = [("inputResponses", &relay.responses), ("requestState", &relay.state)];
            for (key, value) in said_before.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
                params.set(key, value.clone());
            }
        }
        if meta.is_empty() {
            params.retain(|key| key != "_meta");
        } else {
            params.set("_meta", meta.close()?);
        }
        params.close().map(|params| Some(Cow::Owned(params)))
    }
}
