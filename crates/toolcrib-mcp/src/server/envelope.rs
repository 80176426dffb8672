//! How answers are written: what every result of 2026-07-28 must say about itself is put in without reading the rest.

use serde_json::value::RawValue;

use crate::{
    error::RpcError,
    message::{self, RawObject, to_raw},
};

const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
const ENCODE_FAILURE: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the answer cannot be written"}}"#;

/// The text of an answer, whatever happens.
pub(super) fn encode_response(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> String {
    message::encode_response(id, outcome).unwrap_or_else(|_| ENCODE_FAILURE.to_owned())
}

/// An error that answers something without a readable id.
pub(super) fn encode_error(id: Option<&RawValue>, error: RpcError) -> String {
    encode_response(id.unwrap_or(RawValue::NULL), &Err(error))
}

/// A result with its type and who made it. One that has a type keeps it.
pub(super) fn add_result_metadata(result: Box<RawValue>, server: &RawValue) -> Box<RawValue> {
    let text = result.get();
    if text.contains("\"resultType\"") || text.contains("\"_meta\"") {
        return add_metadata_by_parsing(&result, server).unwrap_or(result);
    }
    // The usual case is done by cutting, for results may be large.
    let Some(rest) = text.strip_prefix('{') else { return result };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    let text = format!(r#"{{"resultType":"complete","_meta":{{"{SERVER_INFO_KEY}":{server}}}{comma}{rest}"#);
    RawValue::from_string(text).unwrap_or(result)
}

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
    fn a_result_says_its_type_and_who_made_it() {
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
