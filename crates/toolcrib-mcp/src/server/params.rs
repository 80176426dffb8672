//! The parameters of a request: what the protocol itself keeps in them is taken out, the rest is the service's.

use serde_json::value::RawValue;

use crate::{connection::compose::is_own, error::RpcError, headers, message::RawObject};

pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_KEY: &str = "io.modelcontextprotocol/logLevel";

#[derive(Debug, Default)]
pub(super) struct Params {
    /// Without the protocol's own keys in `_meta`.
    pub(super) rest: Option<Box<RawValue>>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) version: Option<String>,
    pub(super) capabilities: Option<Box<RawValue>>,
    pub(super) client: Option<String>,
    pub(super) wants_log: bool,
    /// The tool, prompt or resource the request is about.
    pub(super) name: Option<String>,
    pub(super) state: Option<String>,
    pub(super) responses: Option<Box<RawValue>>,
}

impl Params {
    pub(super) fn read(method: &str, raw: Option<&RawValue>) -> Result<Params, RpcError> {
        let Some(raw) = raw else { return Ok(Params::default()) };
        if !raw.get().contains("\"_meta\"") {
            return Ok(Params { rest: Some(raw.to_owned()), ..Params::default() });
        }
        let unreadable = |what: &str| RpcError::new(RpcError::INVALID_PARAMS, format!("{what} cannot be read"));
        let mut all = RawObject::open(raw).ok_or_else(|| unreadable("the parameters"))?;
        let mut params = Params {
            name: headers::name_key(method).and_then(|key| all.text(key)),
            state: all.text("requestState"),
            responses: all.get("inputResponses").map(ToOwned::to_owned),
            ..Params::default()
        };
        let Some(meta) = all.take("_meta") else {
            return Ok(Params { rest: Some(raw.to_owned()), ..params });
        };
        let mut meta = RawObject::open(&meta).ok_or_else(|| unreadable("`_meta`"))?;
        params.progress_token = meta.get("progressToken").map(ToOwned::to_owned);
        params.version = meta.text(VERSION_KEY);
        params.capabilities = meta.get(CAPABILITIES_KEY).map(ToOwned::to_owned);
        params.client = meta.get(CLIENT_KEY).and_then(RawObject::open).and_then(|client| client.text("name"));
        params.wants_log = meta.get(LOG_KEY).is_some();
        meta.retain(|key| !is_own(key));
        if !meta.is_empty() {
            let meta = meta.close().map_err(|_| unreadable("`_meta`"))?;
            all.set("_meta", meta);
        }
        params.rest = Some(all.close().map_err(|_| unreadable("the parameters"))?);
        Ok(params)
    }

    /// What a request of 2026-07-28 must say about itself.
    pub(super) fn require_meta(&self) -> Result<(), RpcError> {
        let missing = |key: &str| {
            let message = format!("`_meta` of every request of 2026-07-28 must have `{key}`");
            Err(RpcError::new(RpcError::INVALID_PARAMS, message))
        };
        match (&self.version, &self.capabilities) {
            (None, _) => missing(VERSION_KEY),
            (_, None) => missing(CAPABILITIES_KEY),
            (Some(_), Some(capabilities)) if !capabilities.get().starts_with('{') => {
                missing(&format!("{CAPABILITIES_KEY} as an object"))
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}
