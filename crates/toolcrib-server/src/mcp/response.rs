//! What goes back to a client: results, refusals, and errors in the protocol's words.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib::core::json::{describe_error, replace_lone_surrogates};
use toolcrib::{Code, Error};
use toolcrib_mcp::RpcError;

use crate::rest::stopping_error;

pub(super) type McpResult = Result<Box<RawValue>, RpcError>;

pub(super) fn to_raw(value: &impl Serialize) -> Box<RawValue> {
    // Nothing here has keys that are no strings, so there is nothing that cannot be written.
    to_raw_value(value).unwrap_or_default()
}

pub(super) fn empty_result() -> McpResult {
    Ok(to_raw(&json!({})))
}

/// A result of one text.
pub(super) fn text_result(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

/// A refusal is a result, so that the agent reads it: the error as every other way in gives it.
pub(super) fn error_result(error: &Error) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": error.envelope().to_string() }], "isError": true }))
}

/// The response to a request that cannot be finished because the server stops.
pub(crate) fn stopping_result(method: &str) -> McpResult {
    let error = stopping_error();
    if method == "tools/call" { Ok(error_result(&error)) } else { Err(to_rpc_error(&error)) }
}

/// The parameters of a request. Half a character, as some clients write one that they cut, costs no more than itself.
pub(super) fn parse_params<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    let read = serde_json::from_str(text).or_else(|error| match replace_lone_surrogates(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    });
    read.map_err(|error| invalid_params(&describe_error(&error)))
}

pub(super) fn invalid_params(message: &str) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, message)
}

/// An error outside a tool call: the source's own where it has one.
pub(super) fn to_rpc_error(error: &Error) -> RpcError {
    if let Some(own) = upstream_rpc_error(error) {
        return own;
    }
    let code = match error.code {
        Code::ToolInvalidInput | Code::BadRequest | Code::NotFound | Code::ToolNotImplemented => {
            RpcError::INVALID_PARAMS
        }
        Code::ToolUnavailable
        | Code::ToolExecutionFailed
        | Code::ConfigInvalid
        | Code::Conflict
        | Code::Unauthorized
        | Code::Forbidden
        | Code::StoreUnavailable
        | Code::RateLimited
        | Code::AuthRequired
        | Code::Internal => RpcError::INTERNAL,
    };
    RpcError { code, message: error.message.clone(), data: Some(to_raw(&error.envelope())) }
}

/// The JSON-RPC error that a source answered with, as it was.
pub(super) fn upstream_rpc_error(error: &Error) -> Option<RpcError> {
    let details = error.details.as_ref()?;
    let code = details.get("rpc_code")?.as_i64()?;
    let message = details.get("rpc_message").and_then(|message| message.as_str()).unwrap_or(&error.message);
    Some(RpcError { code, message: message.to_owned(), data: details.get("rpc_data").map(to_raw) })
}
