//! Parses request parameters: separates the protocol's own fields in `_meta` from the parameters for the service.
//!
//! The service gets the parameters without the keys that belong to this hop (version, capabilities, client, progress
//! token), so that a gateway can forward them as they are. Everything else passes unchanged, also unknown keys.

use serde_json::value::RawValue;

use crate::{connection::encode::is_hop_by_hop_meta, error::RpcError, headers, message::RawObject};

// `_meta` keys of 2026-07-28.
pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// Parameters of one request.
#[derive(Debug, Default)]
pub(super) struct RequestParams {
    /// The parameters for the service, without the hop-by-hop keys of `_meta`.
    pub(super) service_params: Option<Box<RawValue>>,
    /// Token that progress notifications must carry; a string or a number, repeated as it came.
    pub(super) progress_token: Option<Box<RawValue>>,
    /// Set by requests of 2026-07-28 only.
    pub(super) protocol_version: Option<String>,
    pub(super) capabilities: Option<Box<RawValue>>,
    /// The client's name for itself; untrusted.
    pub(super) client_name: Option<String>,
    /// Whether the client asked for log messages.
    pub(super) wants_logs: bool,
    /// The tool, prompt or resource that the request is about.
    pub(super) name: Option<String>,
    /// `requestState` and `inputResponses`, when the client repeats a request that required input.
    pub(super) request_state: Option<String>,
    pub(super) input_responses: Option<Box<RawValue>>,
}

impl RequestParams {
    /// Parses the parameters of `method`. Without `_meta` they are passed on unparsed, which is the usual case of
    /// legacy clients; the name and the `requestState` are then left out, because only requests of 2026-07-28 need
    /// them.
    pub(super) fn parse(method: &str, raw: Option<&RawValue>) -> Result<RequestParams, RpcError> {
        let Some(raw) = raw else { return Ok(RequestParams::default()) };
        if !raw.get().contains("\"_meta\"") {
            return Ok(RequestParams { service_params: Some(raw.to_owned()), ..RequestParams::default() });
        }
        let invalid = |what: &str| RpcError::new(RpcError::INVALID_PARAMS, format!("{what} must be an object"));
        let mut fields = RawObject::parse(raw).ok_or_else(|| invalid("`params`"))?;
        let mut params = RequestParams {
            name: headers::name_param(method).and_then(|key| fields.get_string(key)),
            request_state: fields.get_string("requestState"),
            input_responses: fields.get("inputResponses").map(ToOwned::to_owned),
            ..RequestParams::default()
        };
        // The text may occur at a deeper level only.
        let Some(meta) = fields.take("_meta") else {
            return Ok(RequestParams { service_params: Some(raw.to_owned()), ..params });
        };
        let mut meta = RawObject::parse(&meta).ok_or_else(|| invalid("`_meta`"))?;
        params.progress_token = meta.get("progressToken").map(ToOwned::to_owned);
        params.protocol_version = meta.get_string(VERSION_KEY);
        params.capabilities = meta.get(CAPABILITIES_KEY).map(ToOwned::to_owned);
        params.client_name =
            meta.get(CLIENT_INFO_KEY).and_then(RawObject::parse).and_then(|client| client.get_string("name"));
        params.wants_logs = meta.get(LOG_LEVEL_KEY).is_some();
        meta.retain(|key| !is_hop_by_hop_meta(key));
        if !meta.is_empty() {
            let meta = meta.to_raw().map_err(|_| invalid("`_meta`"))?;
            fields.set("_meta", meta);
        }
        params.service_params = Some(fields.to_raw().map_err(|_| invalid("`params`"))?);
        Ok(params)
    }

    /// Checks the `_meta` keys that every request of 2026-07-28 must have.
    pub(super) fn require_meta(&self) -> Result<(), RpcError> {
        let missing = |expected: &str| {
            let message = format!("`_meta` of every request of 2026-07-28 must have {expected}");
            Err(RpcError::new(RpcError::INVALID_PARAMS, message))
        };
        match (&self.protocol_version, &self.capabilities) {
            (None, _) => missing(&format!("`{VERSION_KEY}`")),
            (_, None) => missing(&format!("`{CAPABILITIES_KEY}`")),
            (Some(_), Some(capabilities)) if !capabilities.get().starts_with('{') => {
                missing(&format!("`{CAPABILITIES_KEY}` with the type `object`"))
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}
