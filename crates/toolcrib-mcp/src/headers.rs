//! HTTP headers of 2026-07-28 that repeat parts of the request body, so that proxies can route without parsing it:
//! `Mcp-Method`, `Mcp-Name`, and `Mcp-Param-*` for arguments that the tool's schema marks with `x-mcp-header`.
//!
//! The client builds them, the server checks them against the body; a difference is an error (400, -32020), because a
//! proxy and the server would otherwise act on different requests. A gateway that renames a tool builds them anew.
//!
//! ```text
//! schema     {"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}
//! arguments  {"region":"eu-1"}
//! header     Mcp-Param-Region: eu-1
//! ```

use std::{borrow::Cow, collections::HashSet};

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, value::RawValue};

use crate::message::RawObject;

/// JSON Schema keyword whose value is the header name of a property.
const HEADER_KEYWORD: &str = "x-mcp-header";

/// Adds `Mcp-Method`, and `Mcp-Name` for methods that name a tool, prompt, resource or task.
pub(crate) fn add_standard_headers(headers: &mut HeaderMap, method: &str, params: &RawObject<'_>) {
    insert_encoded(headers, HeaderName::from_static("mcp-method"), method);
    if let Some(name) = name_param(method).and_then(|key| params.get_string(key)) {
        insert_encoded(headers, HeaderName::from_static("mcp-name"), &name);
    }
}

/// Returns the parameter that names the object of a request, if its method has one.
pub(crate) fn name_param(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Builds the `Mcp-Param-*` headers of a call. Arguments that are absent or null have none. A schema with invalid
/// keywords yields none at all; such a tool is skipped when it is listed.
pub(crate) fn argument_headers(schema: &RawValue, arguments: &RawValue) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for parameter in header_parameters(schema).unwrap_or_default() {
        let name = HeaderName::from_bytes(format!("mcp-param-{}", parameter.name).as_bytes());
        if let (Ok(name), Some(value)) = (name, argument_text(arguments, &parameter.path)) {
            insert_encoded(&mut headers, name, &value);
        }
    }
    headers
}

/// Checks that the standard headers of a request match its body; returns the reason otherwise. `Mcp-Name` is checked
/// for the three methods that the specification names.
pub(crate) fn check_standard_headers(headers: &HeaderMap, method: &str, name: Option<&str>) -> Result<(), String> {
    check_header(headers, "mcp-method", Some(method))?;
    match (method, name) {
        ("tools/call" | "prompts/get" | "resources/read", Some(name)) => check_header(headers, "mcp-name", Some(name)),
        _ => Ok(()),
    }
}

/// Checks that the `Mcp-Param-*` headers of a call match its arguments; returns the reason otherwise. A header for an
/// absent argument is a mismatch, too.
pub(crate) fn check_argument_headers(
    headers: &HeaderMap,
    schema: &RawValue,
    arguments: &RawValue,
) -> Result<(), String> {
    for parameter in header_parameters(schema).unwrap_or_default() {
        let value = argument_text(arguments, &parameter.path);
        check_header(headers, &format!("mcp-param-{}", parameter.name), value.as_deref())?;
    }
    Ok(())
}

/// Checks that one header has the value of the body; `None` means that it must be absent.
fn check_header(headers: &HeaderMap, name: &str, value: Option<&str>) -> Result<(), String> {
    let header = match headers.get(name) {
        None => None,
        Some(header) => Some(decode_value(header).ok_or_else(|| format!("the header `{name}` cannot be decoded"))?),
    };
    // `42` and `42.0` are the same number in JSON.
    let same_number = |a: &str, b: &str| matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b);
    match (header, value) {
        (None, None) => Ok(()),
        (Some(header), Some(value)) if header == value || same_number(&header, value) => Ok(()),
        (None, Some(_)) => Err(format!("the header `{name}` is missing")),
        (Some(_), _) => Err(format!("the header `{name}` does not match the body")),
    }
}

/// Checks the `x-mcp-header` keywords of a schema. The specification requires clients to exclude a tool whose keywords
/// are invalid.
pub(crate) fn check_header_parameters(schema: &RawValue) -> Result<(), String> {
    header_parameters(schema).map(drop)
}

/// A property that is also sent as a header.
struct HeaderParameter {
    /// Header name without the prefix `Mcp-Param-`.
    name: String,
    /// Property names from the root of the arguments.
    path: Vec<String>,
}

/// Finds all header parameters of a schema, or returns why they are invalid.
fn header_parameters(schema: &RawValue) -> Result<Vec<HeaderParameter>, String> {
    // Nearly no schema has the keyword. Skipping the others saves parsing, and keeps tools with schemas too deep for
    // serde_json.
    if !schema.get().contains(HEADER_KEYWORD) {
        return Ok(Vec::new());
    }
    let schema: Value = serde_json::from_str(schema.get())
        .map_err(|_| format!("its schema has `{HEADER_KEYWORD}` but is nested too deeply to be parsed"))?;
    let mut parameters = Vec::new();
    if let Value::Object(root) = &schema {
        collect_header_parameters(root, &mut Vec::new(), &mut parameters)?;
    }
    // Header names are case-insensitive.
    let mut names = HashSet::new();
    match parameters.iter().find(|parameter| !names.insert(parameter.name.to_ascii_lowercase())) {
        Some(duplicate) => Err(format!("`{HEADER_KEYWORD}` uses the name `{}` twice", duplicate.name)),
        None => Ok(parameters),
    }
}

/// Collects keywords of properties that are reachable by property names alone; a keyword elsewhere is an error. The
/// depth is bounded by serde_json, which refuses to parse more than 127 levels.
fn collect_header_parameters(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    parameters: &mut Vec<HeaderParameter>,
) -> Result<(), String> {
    if let Some(name) = schema.get(HEADER_KEYWORD) {
        parameters.push(parse_header_parameter(schema, name, path)?);
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            // The only keyword through which an argument keeps a fixed path from the root.
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    path.push(name.clone());
                    collect_header_parameters(property, path, parameters)?;
                    path.pop();
                }
            }
            (keyword, value) if has_unreachable_keyword(keyword, value) => {
                return Err(format!(
                    "`{HEADER_KEYWORD}` is used under `{keyword}`, where it does not belong to one argument"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Parses one keyword at `path`: a valid header name on a property of a primitive type.
fn parse_header_parameter(
    schema: &Map<String, Value>,
    name: &Value,
    path: &[String],
) -> Result<HeaderParameter, String> {
    let property = path.join(".");
    if path.is_empty() {
        return Err(format!("`{HEADER_KEYWORD}` is used at the root of the schema"));
    }
    let Some(name) = name.as_str().filter(|name| HeaderName::from_bytes(name.as_bytes()).is_ok()) else {
        return Err(format!("`{HEADER_KEYWORD}` of `{property}` is not a header name"));
    };
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(HeaderParameter { name: name.to_owned(), path: path.to_vec() }),
        _ => Err(format!("`{HEADER_KEYWORD}` is used on `{property}`, which is neither string, integer nor boolean")),
    }
}

/// Whether the value of a schema keyword contains a subschema with `x-mcp-header`. Keywords that hold data and not
/// schemas, such as `default`, are skipped.
fn has_unreachable_keyword(keyword: &str, value: &Value) -> bool {
    match (keyword, value) {
        // An object in one of these is data, in which the keyword has no meaning.
        ("default" | "const" | "enum" | "examples", _) => false,
        ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(schemas)) => {
            schemas.values().any(has_header_keyword)
        }
        (_, Value::Array(schemas)) => schemas.iter().any(has_header_keyword),
        (_, schema) => has_header_keyword(schema),
    }
}

/// Whether a schema or one of its subschemas has `x-mcp-header`.
fn has_header_keyword(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return false };
    schema.contains_key(HEADER_KEYWORD) || schema.iter().any(|(keyword, value)| has_unreachable_keyword(keyword, value))
}

/// Returns the argument at `path` as header text; `None` if it is absent, null or not primitive.
fn argument_text(arguments: &RawValue, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let arguments = RawObject::parse(arguments)?;
    let value = arguments.get(first)?;
    if !rest.is_empty() {
        return argument_text(value, rest);
    }
    // An integer of any length, as it is written.
    let digits = value.get().strip_prefix('-').unwrap_or(value.get());
    if digits.starts_with(|first: char| first.is_ascii_digit()) && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.get().to_owned());
    }
    match serde_json::from_str(value.get()).ok()? {
        Value::String(text) => Some(text),
        Value::Bool(value) => Some(value.to_string()),
        // An integer may be written as `42.0`.
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Inserts a header with its value in the encoded form.
fn insert_encoded(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Encoded text is always a valid header value; the error case does not occur.
    if let Ok(value) = HeaderValue::from_str(&encode_value(value)) {
        headers.insert(name, value);
    }
}

/// Encodes text that an HTTP header cannot carry unchanged as `=?base64?…?=`, as the specification prescribes.
fn encode_value(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && text.trim_matches(' ') == text;
    // Text that looks encoded must be encoded too, or the peer would decode it.
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !looks_encoded { text.into() } else { format!("=?base64?{}?=", STANDARD.encode(text)).into() }
}

/// Decodes a header value; `None` if its base64 or UTF-8 is invalid.
fn decode_value(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = value.to_str().ok()?.trim();
    let Some(encoded) = text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")) else {
        return Some(text.into());
    };
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn values_that_a_header_cannot_carry_are_encoded() {
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
    fn invalid_header_keywords_are_rejected() {
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
