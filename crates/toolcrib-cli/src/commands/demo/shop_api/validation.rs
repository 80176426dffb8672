//! Whether a request fits the shop's document: everything it carries becomes one value, which its operation's schema
//! is held against. It shares no code with what makes requests.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};
use toolcrib::core::schema::ArgumentError;
use url::form_urlencoded;

use super::document::ShopOperation;
use super::multipart::{self, FormPart};

/// A request, as it came.
pub(super) struct ShopRequest<'a> {
    /// The values in the path, encoded.
    pub(super) path_values: &'a BTreeMap<String, String>,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
}

/// A request that fits: `path`, `query` and `body` as values, and the parts of a form.
pub(super) struct ValidatedRequest {
    pub(super) values: Value,
    pub(super) parts: Vec<FormPart>,
}

pub(super) fn validate_request(
    route: &ShopOperation,
    asked: &ShopRequest<'_>,
) -> Result<ValidatedRequest, Vec<ArgumentError>> {
    let mut values =
        json!({ "path": typed_path_values(route, asked.path_values), "query": parse_query(route, asked.query)? });
    let mut parts = Vec::new();
    match route.body.as_deref() {
        None if !asked.body.is_empty() => return Err(violation("/body", "there is none here")),
        None => {}
        Some(wanted) => {
            let given = asked.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let given = given.unwrap_or_default();
            let media_type = given.split(';').next().unwrap_or_default().trim();
            if !media_type.eq_ignore_ascii_case(wanted) {
                return Err(violation("/body", &format!("must be `{wanted}`")));
            }
            values["body"] = if wanted == "multipart/form-data" {
                parts = multipart::parse_form_parts(given, asked.body).map_err(|reason| violation("/body", reason))?;
                parse_form(route, &parts)?
            } else {
                serde_json::from_slice(asked.body)
                    .map_err(|error| violation("/body", &format!("is no JSON: {error}")))?
            };
        }
    }
    route.validator.validate(&values).map(|_| ValidatedRequest { values, parts })
}

pub(super) fn describe_violations(faults: &[ArgumentError]) -> String {
    let each = faults.iter().map(|fault| format!("`{}` {}", fault.path, fault.message));
    format!("the request does not fit the document: {}", each.collect::<Vec<_>>().join("; "))
}

fn typed_path_values(route: &ShopOperation, places: &BTreeMap<String, String>) -> Value {
    let value = |name: &str, text: &str| {
        let schema = route.parameters.iter().find(|parameter| parameter.name == name).map(|found| &found.schema);
        parse_typed(schema, &percent_decode(text))
    };
    places.iter().map(|(name, text)| (name.clone(), value(name, text))).collect::<Map<_, _>>().into()
}

/// Single values, exploded arrays and deep objects, which is all that the document has.
fn parse_query(route: &ShopOperation, query: &str) -> Result<Value, Vec<ArgumentError>> {
    let mut values: Map<String, Value> = Map::new();
    for (key, text) in form_urlencoded::parse(query.as_bytes()) {
        let (name, inner) = match key.split_once('[') {
            Some((name, inner)) => (name, inner.strip_suffix(']')),
            None => (&*key, None),
        };
        let at = format!("/query/{key}");
        let unknown = || violation(&at, "is not in the document");
        let known = route.parameters.iter().find(|known| known.location == "query" && known.name == name);
        let schema = &known.ok_or_else(unknown)?.schema;
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

/// A form as the value that it stands for; bytes stand for themselves by their number.
fn parse_form(route: &ShopOperation, parts: &[FormPart]) -> Result<Value, Vec<ArgumentError>> {
    let mut values = Map::new();
    for part in parts {
        let at = format!("/body/{}", part.name);
        let value = match route.parts.get(&part.name) {
            Some(allowed) if !allowed.split(',').any(|allowed| allowed.trim() == part.content_type) => {
                return Err(violation(&at, &format!("must be one of {allowed}")));
            }
            Some(_) => format!("{} bytes", part.bytes.len()),
            None => String::from_utf8(part.bytes.clone()).map_err(|_| violation(&at, "is no UTF-8 text"))?,
        };
        if values.insert(part.name.clone(), value.into()).is_some() {
            return Err(violation(&at, "is given twice"));
        }
    }
    Ok(values.into())
}

/// Text as the type that a schema asks for, where it can be read as such.
fn parse_typed(schema: Option<&Value>, text: &str) -> Value {
    let wanted = schema.and_then(|schema| schema["type"].as_str()).unwrap_or_default();
    let read = serde_json::from_str::<Value>(text).ok();
    let read = read.filter(|value| match wanted {
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    });
    read.unwrap_or_else(|| text.into())
}

fn percent_decode(segment: &str) -> String {
    // A plus is itself in a path; the rest is as in a query.
    let pair = format!("v={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(pair.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

fn violation(path: &str, message: &str) -> Vec<ArgumentError> {
    vec![ArgumentError { path: path.to_owned(), message: message.to_owned() }]
}
