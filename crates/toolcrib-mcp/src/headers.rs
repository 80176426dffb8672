//! The headers of 2026-07-28 that repeat parts of a request, so that proxies can route without reading bodies:
//! `Mcp-Method`, `Mcp-Name`, and `Mcp-Param-*` for arguments a tool's schema marks with `x-mcp-header`.

use std::{borrow::Cow, collections::HashSet};

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, value::RawValue};

use crate::message::RawObject;

const HEADER_KEYWORD: &str = "x-mcp-header";

/// `Mcp-Method`, and `Mcp-Name` where the method has one.
pub(crate) fn add_standard_headers(headers: &mut HeaderMap, method: &str, params: &RawObject<'_>) {
    insert_encoded(headers, HeaderName::from_static("mcp-method"), method);
    if let Some(name) = name_param(method).and_then(|key| params.get_string(key)) {
        insert_encoded(headers, HeaderName::from_static("mcp-name"), &name);
    }
}

/// Which parameter says what a request is about.
pub(crate) fn name_param(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The headers a call must carry for the arguments its tool's schema marks.
pub(crate) fn argument_headers(schema: &RawValue, arguments: &RawValue) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for mark in header_parameters(schema).unwrap_or_default() {
        let name = HeaderName::from_bytes(format!("mcp-param-{}", mark.name).as_bytes());
        if let (Ok(name), Some(value)) = (name, argument_text(arguments, &mark.path)) {
            insert_encoded(&mut headers, name, &value);
        }
    }
    headers
}

/// Whether the headers of a request say what its body says; the reason when not.
pub(crate) fn check_standard_headers(headers: &HeaderMap, method: &str, name: Option<&str>) -> Result<(), String> {
    check_header(headers, "mcp-method", Some(method))?;
    match (method, name) {
        ("tools/call" | "prompts/get" | "resources/read", Some(name)) => check_header(headers, "mcp-name", Some(name)),
        _ => Ok(()),
    }
}

/// Whether the headers of a call repeat the arguments its tool's schema marks.
pub(crate) fn check_argument_headers(
    headers: &HeaderMap,
    schema: &RawValue,
    arguments: &RawValue,
) -> Result<(), String> {
    for mark in header_parameters(schema).unwrap_or_default() {
        let value = argument_text(arguments, &mark.path);
        check_header(headers, &format!("mcp-param-{}", mark.name), value.as_deref())?;
    }
    Ok(())
}

fn check_header(headers: &HeaderMap, name: &str, value: Option<&str>) -> Result<(), String> {
    let said = match headers.get(name) {
        None => None,
        Some(said) => Some(decode_value(said).ok_or_else(|| format!("the header `{name}` cannot be decoded"))?),
    };
    let same_number = |a: &str, b: &str| matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b);
    match (said, value) {
        (None, None) => Ok(()),
        (Some(said), Some(value)) if said == value || same_number(&said, value) => Ok(()),
        (None, Some(_)) => Err(format!("the header `{name}` is missing")),
        (Some(_), _) => Err(format!("the header `{name}` does not say what the body says")),
    }
}

/// Whether a tool may be offered: its marks must follow the rules, else the specification bids to leave it out.
pub(crate) fn check_header_parameters(schema: &RawValue) -> Result<(), String> {
    header_parameters(schema).map(drop)
}

/// A property to be sent as a header too.
struct HeaderParameter {
    name: String,
    path: Vec<String>,
}

fn header_parameters(schema: &RawValue) -> Result<Vec<HeaderParameter>, String> {
    // Spares nearly all schemas the parsing, and the deep ones a refusal.
    if !schema.get().contains(HEADER_KEYWORD) {
        return Ok(Vec::new());
    }
    let schema: Value = serde_json::from_str(schema.get())
        .map_err(|_| format!("its schema has `{HEADER_KEYWORD}` but is nested too deeply to be read"))?;
    let mut found = Vec::new();
    if let Value::Object(root) = &schema {
        collect_header_parameters(root, &mut Vec::new(), &mut found)?;
    }
    let mut names = HashSet::new();
    match found.iter().find(|mark| !names.insert(mark.name.to_ascii_lowercase())) {
        Some(twice) => Err(format!("`{HEADER_KEYWORD}` names `{}` twice", twice.name)),
        None => Ok(found),
    }
}

/// Walks the properties that can be reached by name alone; a mark anywhere else is an error.
fn collect_header_parameters(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParameter>,
) -> Result<(), String> {
    if let Some(name) = schema.get(HEADER_KEYWORD) {
        found.push(parse_header_parameter(schema, name, path)?);
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    path.push(name.clone());
                    collect_header_parameters(property, path, found)?;
                    path.pop();
                }
            }
            (keyword, value) if has_unreachable_keyword(keyword, value) => {
                return Err(format!(
                    "`{HEADER_KEYWORD}` stands under `{keyword}`, where no argument can be told by name"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse_header_parameter(
    schema: &Map<String, Value>,
    name: &Value,
    path: &[String],
) -> Result<HeaderParameter, String> {
    let place = path.join(".");
    if path.is_empty() {
        return Err(format!("`{HEADER_KEYWORD}` stands at the root of the schema"));
    }
    let Some(name) = name.as_str().filter(|name| is_token(name)) else {
        return Err(format!("`{HEADER_KEYWORD}` of `{place}` is no header name"));
    };
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(HeaderParameter { name: name.to_owned(), path: path.to_vec() }),
        _ => Err(format!("`{HEADER_KEYWORD}` marks `{place}`, which is neither string, integer nor boolean")),
    }
}

/// Whether a keyword's value holds a mark in a place where schemas stand (not in examples and the like).
fn has_unreachable_keyword(keyword: &str, value: &Value) -> bool {
    match (keyword, value) {
        ("default" | "const" | "enum" | "examples", _) => false,
        ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(named)) => {
            named.values().any(has_header_keyword)
        }
        (_, Value::Array(schemas)) => schemas.iter().any(has_header_keyword),
        (_, schema) => has_header_keyword(schema),
    }
}

fn has_header_keyword(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return false };
    schema.contains_key(HEADER_KEYWORD) || schema.iter().any(|(keyword, value)| has_unreachable_keyword(keyword, value))
}

/// An argument as header text; none for an absent or null one, or one of the wrong type.
fn argument_text(arguments: &RawValue, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let arguments = RawObject::parse(arguments)?;
    let value = arguments.get(first)?;
    if !rest.is_empty() {
        return argument_text(value, rest);
    }
    match serde_json::from_str(value.get()).ok()? {
        Value::String(text) => Some(text),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn insert_encoded(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(&encode_value(value)) {
        headers.insert(name, value);
    }
}

/// Text that would not survive as a header travels in base64, between marks.
fn encode_value(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && text.trim_matches(' ') == text;
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if plain && !looks_encoded { text.into() } else { format!("=?base64?{}?=", STANDARD.encode(text)).into() }
}

/// What a header says, from either form; none for a broken encoding.
fn decode_value(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = value.to_str().ok()?.trim();
    let Some(encoded) = text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")) else {
        return Some(text.into());
    };
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn values_that_would_not_survive_are_encoded() {
        assert_eq!(encode_value("us west 1"), "us west 1");
        assert_eq!(encode_value(""), "");
        assert_eq!(encode_value("Hello, 世界"), "=?base64?SGVsbG8sIOS4lueVjA==?=");
        assert_eq!(encode_value(" padded "), "=?base64?IHBhZGRlZCA=?=");
        assert_eq!(encode_value("line1\nline2"), "=?base64?bGluZTEKbGluZTI=?=");
        assert_eq!(encode_value("=?base64?literal?="), "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    }

    #[test]
    fn marked_arguments_become_headers() {
        let schema = raw(&json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
            "gone": { "type": "string", "x-mcp-header": "Gone" },
            "null": { "type": "boolean", "x-mcp-header": "Null" },
            "x-mcp-header": { "type": "string" },
            "sample": { "type": "object", "default": { "x-mcp-header": "no schema" } },
        } }));
        let headers = argument_headers(&schema, &raw(&json!({ "region": "eu", "deep": { "n": 42.0 }, "null": null })));
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["mcp-param-region"], "eu");
        assert_eq!(headers["mcp-param-n"], "42");
    }

    #[test]
    fn marks_that_break_the_rules_are_refused() {
        let check = |schema: Value| check_header_parameters(&raw(&schema)).is_err();
        let property = |schema: Value| json!({ "properties": { "p": schema } });
        assert!(check(json!({ "x-mcp-header": "Root" })));
        assert!(check(property(json!({ "type": "string", "x-mcp-header": "" }))));
        assert!(check(property(json!({ "type": "string", "x-mcp-header": "a b" }))));
        assert!(check(property(json!({ "type": "string", "x-mcp-header": 1 }))));
        assert!(check(property(json!({ "type": "number", "x-mcp-header": "A" }))));
        assert!(check(property(json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "A" } }))));
        assert!(check(json!({ "allOf": [{ "properties": { "p": { "type": "string", "x-mcp-header": "A" } } }] })));
        assert!(check(json!({ "$defs": { "p": { "type": "string", "x-mcp-header": "A" } } })));
        let two = json!({ "type": "string", "x-mcp-header": "A" });
        let lower = json!({ "type": "string", "x-mcp-header": "a" });
        assert!(check(json!({ "properties": { "p": two, "q": lower } })));
        assert!(!check(property(json!({ "type": "string", "description": "see x-mcp-header" }))));
    }
}
