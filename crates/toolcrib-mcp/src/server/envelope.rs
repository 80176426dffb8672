//! How answers are written: what every result of 2026-07-28 must say about itself is put in without reading the rest.

use serde_json::value::RawValue;

use crate::{
    error::RpcError,
    message::{self, RawObject, raw},
};

const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
const UNWRITABLE: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the answer cannot be written"}}"#;

/// The text of an answer, whatever happens.
pub(super) fn response(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> String {
    message::response(id, outcome).unwrap_or_else(|_| UNWRITABLE.to_owned())
}

/// An error that answers something without a readable id.
pub(super) fn refusal(id: Option<&RawValue>, error: RpcError) -> String {
    response(id.unwrap_or(RawValue::NULL), &Err(error))
}

/// A result with its type and who made it. One that has a type keeps it.
pub(super) fn complete(result: Box<RawValue>, server: &RawValue) -> Box<RawValue> {
    let text = result.get();
    if text.contains("\"resultType\"") || text.contains("\"_meta\"") {
        return open_and_complete(&result, server).unwrap_or(result);
    }
    // The usual case is done by cutting, for results may be large.
    let Some(rest) = text.strip_prefix('{') else { return result };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    let text = format!(r#"{{"resultType":"complete","_meta":{{"{SERVER_KEY}":{server}}}{comma}{rest}"#);
    RawValue::from_string(text).unwrap_or(result)
}

fn open_and_complete(result: &RawValue, server: &RawValue) -> Option<Box<RawValue>> {
    let mut object = RawObject::open(result)?;
    if object.get("resultType").is_none() {
        object.set("resultType", raw("complete").ok()?);
    }
    let meta = object.get("_meta").map(ToOwned::to_owned);
    let mut meta = meta.as_deref().and_then(RawObject::open).unwrap_or_default();
    meta.lend(SERVER_KEY, server);
    object.set("_meta", meta.close().ok()?);
    object.close().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: &str, expected: &str) {
        let server = raw(&json!({ "name": "crib", "version": "1" })).unwrap();
        let result = RawValue::from_string(result.to_owned()).unwrap();
        assert_eq!(complete(result, &server).get(), expected);
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
