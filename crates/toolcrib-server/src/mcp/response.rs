//! Builders for MCP responses: results, error results of tools, and JSON-RPC errors.
//!
//! ```json
//! { "content": [{ "type": "text", "text": "{\"error\":{\"code\":\"TOOL_UNAVAILABLE\",…}}" }], "isError": true }
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::json::{describe_error, replace_lone_surrogates, to_exact_string};
use toolcrib::{Code, Error};
use toolcrib_mcp::RpcError;

use crate::rest::stopping_error;

/// Result of a request: the `result` value or a JSON-RPC error.
pub(super) type McpResult = Result<Box<RawValue>, RpcError>;

/// Serialises a value to raw JSON.
pub(super) fn to_raw(value: &impl Serialize) -> Box<RawValue> {
    // Serialisation fails only for maps with keys that are not strings, which this module never passes.
    to_raw_value(value).unwrap_or_default()
}

/// The empty result of methods that only acknowledge.
pub(super) fn empty_result() -> McpResult {
    Ok(to_raw(&json!({})))
}

/// Builds a tool result with one text block.
pub(super) fn text_result(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

/// Writes a list whose items are JSON already. `others` are further fields of the result, each after a comma.
pub(super) fn list_result(key: &str, items: impl Iterator<Item = impl AsRef<str>>, others: &str) -> McpResult {
    let mut text = format!("{{\"{key}\":[");
    for (index, item) in items.enumerate() {
        text.push_str(if index > 0 { "," } else { "" });
        text.push_str(item.as_ref());
    }
    text.push(']');
    text.push_str(others);
    text.push('}');
    RawValue::from_string(text).map_err(|_| invalid_params("the list cannot be written"))
}

/// Builds a tool result with `isError` and the error envelope as text. Clients show results to the model, but often hide
/// JSON-RPC errors from it.
pub(super) fn error_result(error: &Error) -> Box<RawValue> {
    let envelope = to_exact_string(&agent_envelope(error)).unwrap_or_default();
    to_raw(&json!({ "content": [{ "type": "text", "text": envelope }], "isError": true }))
}

/// Builds the response to a request that is aborted by the shutdown of the server. A tool call gets an error result, so
/// that the model learns that it may try again.
pub(crate) fn stopping_result(method: &str) -> McpResult {
    let error = stopping_error();
    if method == "tools/call" { Ok(error_result(&error)) } else { Err(to_rpc_error(&error)) }
}

/// Parses the parameters of a request. Lone surrogates, which some clients write when they cut a text in the middle of a
/// character, are replaced.
pub(super) fn parse_params<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    // serde refuses lone surrogates; the repair runs only after it has failed.
    let parsed = serde_json::from_str(text).or_else(|error| match replace_lone_surrogates(text) {
        Some(repaired) => serde_json::from_str(&repaired),
        None => Err(error),
    });
    parsed.map_err(|error| invalid_params(&describe_error(&error)))
}

/// JSON-RPC error -32602.
pub(super) fn invalid_params(message: &str) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, message)
}

/// Converts an error outside a tool call: to the JSON-RPC error of the source if there is one, else by its code.
pub(super) fn to_rpc_error(error: &Error) -> RpcError {
    if let Some(upstream) = upstream_rpc_error(error) {
        return upstream;
    }
    // Two JSON-RPC codes stand for all of these. The error envelope in `data` has the exact one.
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
        _ => RpcError::INTERNAL,
    };
    RpcError { code, message: error.agent_message(), data: Some(to_raw(&agent_envelope(error))) }
}

/// Returns the error envelope with the message for agents.
fn agent_envelope(error: &Error) -> Value {
    let mut envelope = error.envelope();
    envelope["error"]["message"] = error.agent_message().into();
    envelope
}

/// Returns the JSON-RPC error that a source responded with, unchanged.
pub(super) fn upstream_rpc_error(error: &Error) -> Option<RpcError> {
    let details = error.details.as_ref()?;
    let code = details.get("rpc_code")?.as_i64()?;
    let message = details.get("rpc_message").and_then(|message| message.as_str()).unwrap_or(&error.message);
    Some(RpcError { code, message: message.to_owned(), data: details.get("rpc_data").map(to_raw) })
}
