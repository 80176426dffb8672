//! Whether a request fits the shop's document: everything it carries becomes one value, which its operation's schema
//! is held against. It shares no code with what makes requests.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};
use toolcrib::core::schema::Fault;
use url::form_urlencoded;

use super::document::Route;
use super::multipart::{self, Part};

/// A request, as it came.
pub(super) struct Asked<'a> {
    /// The values in the path, encoded.
    pub(super) places: &'a BTreeMap<String, String>,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
}

/// A request that fits: `path`, `query` and `body` as values, and the parts of a form.
pub(super) struct Fitting {
    pub(super) values: Value,
    pub(super) parts: Vec<Part>,
}

pub(super) fn fitting(route: &Route, asked: &Asked<'_>) -> Result<Fitting, Vec<Fault>> {
    let mut values = json!({ "path": path(route, asked.places), "query": query(route, asked.query)? });
    let mut parts = Vec::new();
    match route.body.as_deref() {
        None if !asked.body.is_empty() => return Err(fault("/body", "there is none here")),
        None => {}
        Some(wanted) => {
            let given = asked.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let given = given.unwrap_or_default();
            let media_type = given.split(';').next().unwrap_or_default().trim();
            if !media_type.eq_ignore_ascii_case(wanted) {
                return Err(fault("/body", &format!("must be `{wanted}`")));
            }
            values["body"] = if wanted == "multipart/form-data" {
                parts = multipart::parts(given, asked.body).map_err(|reason| fault("/body", reason))?;
                form(route, &parts)?
            } else {
                serde_json::from_slice(asked.body).map_err(|error| fault("/body", &format!("is no JSON: {error}")))?
            };
        }
    }
    route.validator.validate(&values).map(|_| Fitting { values, parts })
}

pub(super) fn in_words(faults: &[Fault]) -> String {
    let each = faults.iter().map(|fault| format!("`{}` {}", fault.path, fault.message));
    format!("the request does not fit the document: {}", each.collect::<Vec<_>>().join("; "))
}

fn path(route: &Route, places: &BTreeMap<String, String>) -> Value {
    let value = |name: &str, text: &str| {
        let schema = route.parameters.iter().find(|parameter| parameter.name == name).map(|found| &found.schema);
        typed(schema, &decoded(text))
    };
    places.iter().map(|(name, text)| (name.clone(), value(name, text))).collect::<Map<_, _>>().into()
}

/// Single values, exploded arrays and deep objects, which is all that the document has.
fn query(route: &Route, query: &str) -> Result<Value, Vec<Fault>> {
    let mut values: Map<String, Value> = Map::new();
    for (key, text) in form_urlencoded::parse(query.as_bytes()) {
        let (name, inner) = match key.split_once('[') {
            Some((name, inner)) => (name, inner.strip_suffix(']')),
            None => (&*key, None),
        };
        let at = format!("/query/{key}");
        let unknown = || fault(&at, "is not in the document");
        let known = route.parameters.iter().find(|known| known.place == "query" && known.name == name);
        let schema = &known.ok_or_else(unknown)?.schema;
        match (schema["type"].as_str(), inner) {
            (Some("object"), Some(inner)) => {
                let object = values.entry(name).or_insert_with(|| json!({}));
                if !object[inner].is_null() {
                    return Err(fault(&at, "is given twice"));
                }
                object[inner] = typed(schema["properties"].get(inner), &text);
            }
            (Some("array"), None) => {
                let list = values.entry(name).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(typed(schema.get("items"), &text)));
            }
            (Some("object" | "array"), _) | (_, Some(_)) => return Err(unknown()),
            (_, None) => {
                if values.insert(name.to_owned(), typed(Some(schema), &text)).is_some() {
                    return Err(fault(&at, "is given twice"));
                }
            }
        }
    }
    Ok(values.into())
}

/// A form as the value that it stands for; bytes stand for themselves by their number.
fn form(route: &Route, parts: &[Part]) -> Result<Value, Vec<Fault>> {
    let mut values = Map::new();
    for part in parts {
        let at = format!("/body/{}", part.name);
        let value = match route.parts.get(&part.name) {
            Some(allowed) if !allowed.split(',').any(|allowed| allowed.trim() == part.content_type) => {
                return Err(fault(&at, &format!("must be one of {allowed}")));
            }
            Some(_) => format!("{} bytes", part.bytes.len()),
            None => String::from_utf8(part.bytes.clone()).map_err(|_| fault(&at, "is no UTF-8 text"))?,
        };
        if values.insert(part.name.clone(), value.into()).is_some() {
            return Err(fault(&at, "is given twice"));
        }
    }
    Ok(values.into())
}

/// Text as the type that a schema asks for, where it can be read as such.
fn typed(schema: Option<&Value>, text: &str) -> Value {
    let wanted = schema.and_then(|schema| schema["type"].as_str()).unwrap_or_default();
    let read = serde_json::from_str::<Value>(text).ok();
    let read = read.filter(|value| match wanted {
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    });
    read.unwrap_or_else(|| text.into())
}

fn decoded(segment: &str) -> String {
    // A plus is itself in a path; the rest is as in a query.
    let pair = format!("v={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(pair.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

fn fault(path: &str, message: &str) -> Vec<Fault> {
    vec![Fault { path: path.to_owned(), message: message.to_owned() }]
}
