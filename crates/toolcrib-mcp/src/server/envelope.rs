//! Encodes responses, and adds the metadata that every result of 2026-07-28 must have without parsing large results.
//!
//! ```json
//! {"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolcrib"}},"content":[]}
//! ```

use serde_json::value::RawValue;

use crate::{
    error::RpcError,
    message::{self, RawObject, to_raw},
};

/// `_meta` key under which results of 2026-07-28 name the server.
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
/// Response of last resort: a constant, and therefore without the id of its request.
const ENCODE_FAILURE: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the response cannot be encoded"}}"#;

/// Encodes a response. Never fails: a response that cannot be encoded becomes an error without an id.
pub(super) fn encode_response(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> String {
    message::encode_response(id, outcome).unwrap_or_else(|_| ENCODE_FAILURE.to_owned())
}

/// Encodes an error response; without a valid id, under the id `null`.
pub(super) fn encode_error(id: Option<&RawValue>, error: RpcError) -> String {
    encode_response(id.unwrap_or(RawValue::NULL), &Err(error))
}

/// Adds `resultType` and `serverInfo` to a result. An existing `resultType` is kept; `serverInfo` is replaced, because
/// it names the server that the client is connected to.
pub(super) fn add_result_metadata(result: Box<RawValue>, server: &RawValue) -> Box<RawValue> {
    let text = result.get();
    // A match may also be text at a deeper level; then the slow path only costs time.
    if text.contains("\"resultType\"") || text.contains("\"_meta\"") {
        return add_metadata_by_parsing(&result, server).unwrap_or(result);
    }
    // The usual case inserts text after the first brace: results may be large, and parsing them would cost.
    // A result that is not an object is invalid; it is passed on for the client to see.
    let Some(rest) = text.strip_prefix('{') else { return result };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    let text = format!(r#"{{"resultType":"complete","_meta":{{"{SERVER_INFO_KEY}":{server}}}{comma}{rest}"#);
    RawValue::from_string(text).unwrap_or(result)
}

/// The slow path, for results that contain one of the keys at any depth.
fn add_metadata_by_parsing(result: &RawValue, server: &RawValue) -> Option<Box<RawValue>> {
    let mut object = RawObject::parse(result)?;
    if object.get("resultType").is_none() {
        object.set("resultType", to_raw("complete").ok()?);
    }
    let meta = object.get("_meta").map(ToOwned::to_owned);
    let mut meta = meta.as_deref().and_then(RawObject::parse).unwrap_or_default();
    meta.set_borrowed(SERVER_INFO_KEY, server);
    object.set("_meta", meta.to_raw().ok()?);
    object.to_raw().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: &str, expected: &str) {
        let server = to_raw(&json!({ "name": "crib", "version": "1" })).unwrap();
        let result = RawValue::from_string(result.to_owned()).unwrap();
        assert_eq!(add_result_metadata(result, &server).get(), expected);
    }

    #[test]
    fn a_result_gets_its_type_and_the_server_info() {
        let meta = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"crib","version":"1"}}"#;
        check("{}", &format!(r#"{{"resultType":"complete",{meta}}}"#));
        check(r#"{ "a":1}"#, &format!(r#"{{"resultType":"complete",{meta}, "a":1}}"#));
        check(r#"{"resultType":"task"}"#, &format!(r#"{{"resultType":"task",{meta}}}"#));
        check(
            r#"{"content":["resultType"]}"#,
            &format!(r#"{{"content":["resultType"],"resultType":"complete",{meta}}}"#),
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstream"},"x":1}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"crib","version":"1"},"x":1},"resultType":"complete"}"#,
        );
        check("null", "null");
    }
}
