//! The parameters of a request: what the protocol itself keeps in them is taken out, the rest is the service's.

use serde_json::value::RawValue;

use crate::{connection::encode::is_hop_by_hop_meta, error::RpcError, headers, message::RawObject};

pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

#[derive(Debug, Default)]
pub(super) struct RequestParams {
    /// Without the protocol's own keys in `_meta`.
    pub(super) service_params: Option<Box<RawValue>>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) protocol_version: Option<String>,
    pub(super) capabilities: Option<Box<RawValue>>,
    pub(super) client_name: Option<String>,
    pub(super) wants_logs: bool,
    /// The tool, prompt or resource the request is about.
    pub(super) name: Option<String>,
    pub(super) request_state: Option<String>,
    pub(super) input_responses: Option<Box<RawValue>>,
}

impl RequestParams {
    pub(super) fn parse(method: &str, raw: Option<&RawValue>) -> Result<RequestParams, RpcError> {
        let Some(raw) = raw else { return Ok(RequestParams::default()) };
        if !raw.get().contains("\"_meta\"") {
            return Ok(RequestParams { service_params: Some(raw.to_owned()), ..RequestParams::default() });
        }
        let unreadable = |what: &str| RpcError::new(RpcError::INVALID_PARAMS, format!("{what} cannot be read"));
        let mut all = RawObject::parse(raw).ok_or_else(|| unreadable("the parameters"))?;
        let mut params = RequestParams {
            name: headers::name_param(method).and_then(|key| all.get_string(key)),
            request_state: all.get_string("requestState"),
            input_responses: all.get("inputResponses").map(ToOwned::to_owned),
            ..RequestParams::default()
        };
        let Some(meta) = all.take("_meta") else {
            return Ok(RequestParams { service_params: Some(raw.to_owned()), ..params });
        };
        let mut meta = RawObject::parse(&meta).ok_or_else(|| unreadable("`_meta`"))?;
        params.progress_token = meta.get("progressToken").map(ToOwned::to_owned);
        params.protocol_version = meta.get_string(VERSION_KEY);
        params.capabilities = meta.get(CAPABILITIES_KEY).map(ToOwned::to_owned);
        params.client_name =
            meta.get(CLIENT_INFO_KEY).and_then(RawObject::parse).and_then(|client| client.get_string("name"));
        params.wants_logs = meta.get(LOG_LEVEL_KEY).is_some();
        meta.retain(|key| !is_hop_by_hop_meta(key));
        if !meta.is_empty() {
            let meta = meta.to_raw().map_err(|_| unreadable("`_meta`"))?;
            all.set("_meta", meta);
        }
        params.service_params = Some(all.to_raw().map_err(|_| unreadable("the parameters"))?);
        Ok(params)
    }

    /// What a request of 2026-07-28 must say about itself.
    pub(super) fn require_meta(&self) -> Result<(), RpcError> {
        let missing = |key: &str| {
            let message = format!("`_meta` of every request of 2026-07-28 must have `{key}`");
            Err(RpcError::new(RpcError::INVALID_PARAMS, message))
        };
        match (&self.protocol_version, &self.capabilities) {
            (None, _) => missing(VERSION_KEY),
            (_, None) => missing(CAPABILITIES_KEY),
            (Some(_), Some(capabilities)) if !capabilities.get().starts_with('{') => {
                missing(&format!("{CAPABILITIES_KEY} as an object"))
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}
