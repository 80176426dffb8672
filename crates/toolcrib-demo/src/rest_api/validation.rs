//! Validation of requests against the shop's document: path, query and body become one JSON value, which is validated
//! with the operation's schema. Shares no code with Toolcrib's OpenAPI client, so that the two check each other.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};
use toolcrib::core::percent;
use toolcrib::schema::ArgumentError;
use url::form_urlencoded;

use super::document::ShopOperation;
use super::multipart::{self, FormPart};

/// The parts of a request that are validated.
pub(super) struct ShopRequest<'a> {
    /// Path parameters by name, percent-encoded.
    pub(super) path_values: &'a BTreeMap<String, String>,
    /// The query string, without `?`.
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
}

/// A valid request.
pub(super) struct ValidatedRequest {
    /// An object with `path`, `query` and `body`.
    pub(super) values: Value,
    /// The parts of a multipart body.
    pub(super) parts: Vec<FormPart>,
}

/// Parses and validates a request of an operation.
pub(super) fn validate_request(
    operation: &ShopOperation,
    request: &ShopRequest<'_>,
) -> Result<ValidatedRequest, Vec<ArgumentError>> {
    let mut values = json!({ "path": typed_path_values(operation, request.path_values), "query": parse_query(operation, request.query)? });
    let mut parts = Vec::new();
    match operation.body.as_deref() {
        None if !request.body.is_empty() => return Err(violation("/body", "this operation takes no body")),
        None => {}
        Some(expected) => {
            // The media type without parameters; a multipart type carries its boundary as one.
            let content_type = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let content_type = content_type.unwrap_or_default();
            let media_type = content_type.split(';').next().unwrap_or_default().trim();
            if !media_type.eq_ignore_ascii_case(expected) {
                return Err(violation("/body", &format!("must be `{expected}`")));
            }
            values["body"] = if expected == "multipart/form-data" {
                parts = multipart::parse_form_parts(content_type, request.body)
                    .map_err(|reason| violation("/body", reason))?;
                parse_form(operation, &parts)?
            } else {
                serde_json::from_slice(request.body)
                    .map_err(|error| violation("/body", &format!("is not JSON: {error}")))?
            };
        }
    }
    operation.validator.validate(&values).map(|_| ValidatedRequest { values, parts })
}

/// Joins all violations to one message.
pub(super) fn describe_violations(violations: &[ArgumentError]) -> String {
    let messages = violations.iter().map(|violation| format!("`{}` {}", violation.path, violation.message));
    format!("the request is not valid: {}", messages.collect::<Vec<_>>().join("; "))
}

/// Decodes path parameters and converts them to the types of their schemas. Not an error by itself: a value of a wrong
/// type stays text and fails validation.
fn typed_path_values(operation: &ShopOperation, path_values: &BTreeMap<String, String>) -> Value {
    let value = |name: &str, text: &str| {
        let parameter = operation.parameters.iter().find(|parameter| parameter["name"] == name);
        parse_typed(parameter.map(|parameter| &parameter["schema"]), &percent::decode_lossy(text))
    };
    path_values.iter().map(|(name, text)| (name.clone(), value(name, text))).collect::<Map<_, _>>().into()
}

/// Parses single values, exploded arrays (`a=1&a=2`) and deep objects (`a[b]=1`): the styles that the document uses.
fn parse_query(operation: &ShopOperation, query: &str) -> Result<Value, Vec<ArgumentError>> {
    let mut values: Map<String, Value> = Map::new();
    for (key, text) in form_urlencoded::parse(query.as_bytes()) {
        // `filter[max_price]` is the property `max_price` of the parameter `filter`.
        let (name, inner) = match key.split_once('[') {
            Some((name, inner)) => (name, inner.strip_suffix(']')),
            None => (&*key, None),
        };
        let at = format!("/query/{key}");
        let unknown = || violation(&at, "is not in the document");
        let is_named = |parameter: &&Value| parameter["in"] == "query" && parameter["name"] == name;
        let schema = &operation.parameters.iter().find(is_named).ok_or_else(unknown)?["schema"];
        match (schema["type"].as_str(), inner) {
            (Some("object"), Some(inner)) => {
                let object = values.entry(name).or_insert_with(|| json!({}));
                if !object[inner].is_null() {
                    return Err(violation(&at, "is given twice"));
                }
                object[inner] = parse_typed(schema["properties"].get(inner), &text);
            }
            (Some("array"), None) => {
                let list = values.entry(name).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(parse_typed(schema.get("items"), &text)));
            }
            (Some("object" | "array"), _) | (_, Some(_)) => return Err(unknown()),
            (_, None) => {
                if values.insert(name.to_owned(), parse_typed(Some(schema), &text)).is_some() {
                    return Err(violation(&at, "is given twice"));
                }
            }
        }
    }
    Ok(values.into())
}

/// Converts a multipart form to an object. A file becomes text with its size, so that the schema can require a string.
fn parse_form(operation: &ShopOperation, parts: &[FormPart]) -> Result<Value, Vec<ArgumentError>> {
    let mut values = Map::new();
    for part in parts {
        let at = format!("/body/{}", part.name);
        let value = match operation.parts.get(&part.name) {
            Some(allowed) if !allowed.split(',').any(|allowed| allowed.trim() == part.content_type) => {
                return Err(violation(&at, &format!("must be one of {allowed}")));
            }
            Some(_) => format!("{} bytes", part.bytes.len()),
            None => String::from_utf8(part.bytes.clone()).map_err(|_| violation(&at, "is not UTF-8 text"))?,
        };
        if values.insert(part.name.clone(), value.into()).is_some() {
            return Err(violation(&at, "is given twice"));
        }
    }
    Ok(values.into())
}

/// Converts text to the type of its schema; text that has another type stays a string and fails validation.
fn parse_typed(schema: Option<&Value>, text: &str) -> Value {
    let schema_type = schema.and_then(|schema| schema["type"].as_str()).unwrap_or_default();
    let parsed = serde_json::from_str::<Value>(text).ok();
    let parsed = parsed.filter(|value| match schema_type {
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    });
    parsed.unwrap_or_else(|| text.into())
}

/// A list with one violation.
fn violation(path: &str, message: &str) -> Vec<ArgumentError> {
    vec![ArgumentError { path: path.to_owned(), message: message.to_owned() }]
}
