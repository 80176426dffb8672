//! The shop's OpenAPI document, read as far as the shop needs it: which request is which operation, and what fits it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcrib::core::ResultExt;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::schema::Validator;
use toolcrib::{Code, Result};

pub(super) const DOCUMENT_JSON: &str = include_str!("openapi.json");

pub(super) struct ShopDocument {
    pub(super) etag: String,
    operations: Vec<ShopOperation>,
}

/// One operation.
pub(super) struct ShopOperation {
    pub(super) id: String,
    method: String,
    segments: Vec<String>,
    pub(super) parameters: Vec<OperationParameter>,
    /// The media type of its body.
    pub(super) body: Option<String>,
    /// The media types that parts of the body may have, by their names.
    pub(super) parts: BTreeMap<String, String>,
    pub(super) requires_token: bool,
    /// Of everything that a request carries: `path`, `query`, `body`.
    pub(super) validator: Validator,
}

pub(super) struct OperationParameter {
    pub(super) name: String,
    /// `path` or `query`.
    pub(super) location: String,
    pub(super) schema: Value,
}

/// The operation of a request, with the values in its path.
pub(super) enum OperationMatch<'a> {
    Operation(&'a ShopOperation, BTreeMap<String, String>),
    WrongMethod,
    NotFound,
}

impl ShopDocument {
    pub(super) fn parse() -> Result<ShopDocument> {
        let root: Value = serde_json::from_str(DOCUMENT_JSON).context(Code::Internal, "read the shop's document")?;
        let mut routes = Vec::new();
        for (path, item) in entries(&root["paths"]) {
            let shared = resolve_parameters(&root, &item["parameters"]);
            for (method, operation) in entries(item).filter(|(key, _)| *key != "parameters") {
                let own = resolve_parameters(&root, &operation["parameters"]);
                let all: Vec<&Value> = shared.iter().chain(&own).copied().collect();
                routes.push(ShopOperation::from_document(&root, method, path, operation, &all)?);
            }
        }
        Ok(ShopDocument {
            etag: format!("\"{}\"", Fingerprint::digest(DOCUMENT_JSON).short_hex(16)),
            operations: routes,
        })
    }

    pub(super) fn match_request(&self, method: &str, path: &str) -> OperationMatch<'_> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let mut other_method = false;
        for route in &self.operations {
            let Some(places) = route.match_path(&segments) else { continue };
            if route.method == method {
                return OperationMatch::Operation(route, places);
            }
            other_method = true;
        }
        if other_method { OperationMatch::WrongMethod } else { OperationMatch::NotFound }
    }
}

impl ShopOperation {
    fn from_document(
        root: &Value,
        method: &str,
        path: &str,
        operation: &Value,
        parameters: &[&Value],
    ) -> Result<ShopOperation> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let content = entries(&operation["requestBody"]["content"]).next();
        let body = content.map(|(_, content)| &content["schema"]);
        let parts = content.into_iter().flat_map(|(_, content)| entries(&content["encoding"]));
        let schema = request_schema(root, parameters, body).to_string();
        let schema = serde_json::value::RawValue::from_string(schema).context(Code::Internal, "write a schema")?;
        Ok(ShopOperation {
            id: text(&operation["operationId"]),
            method: method.to_ascii_uppercase(),
            segments: path.trim_start_matches('/').split('/').map(str::to_owned).collect(),
            parameters: parameters
                .iter()
                .map(|parameter| OperationParameter {
                    name: text(&parameter["name"]),
                    location: text(&parameter["in"]),
                    schema: parameter["schema"].clone(),
                })
                .collect(),
            body: content.map(|(media_type, _)| media_type.to_owned()),
            parts: parts.map(|(name, encoding)| (name.to_owned(), text(&encoding["contentType"]))).collect(),
            requires_token: !operation["security"].is_null(),
            validator: Validator::new(schema.into()),
        })
    }

    /// The values in a path, still encoded, where it is this one.
    fn match_path(&self, given: &[&str]) -> Option<BTreeMap<String, String>> {
        if given.len() != self.segments.len() {
            return None;
        }
        let mut places = BTreeMap::new();
        for (own, given) in self.segments.iter().zip(given) {
            match own.strip_prefix('{').and_then(|own| own.strip_suffix('}')) {
                Some(name) if !given.is_empty() => {
                    places.insert(name.to_owned(), (*given).to_owned());
                }
                Some(_) => return None,
                None if own == given => {}
                None => return None,
            }
        }
        Some(places)
    }
}

/// One schema for everything that a request of an operation carries. Nothing else is allowed in it.
fn request_schema(root: &Value, parameters: &[&Value], body: Option<&Value>) -> Value {
    let place = |place: &str| {
        let here = || parameters.iter().filter(|parameter| parameter["in"] == place);
        let named = |parameter: &&&Value| parameter["name"].as_str().unwrap_or_default().to_owned();
        let properties: Map<String, Value> = here().map(|p| (named(&p), p["schema"].clone())).collect();
        let required: Vec<String> =
            here().filter(|parameter| parameter["required"] == true).map(|p| named(&p)).collect();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    };
    let mut schema = json!({
        "type": "object",
        "properties": { "path": place("path"), "query": place("query") },
        "required": ["path", "query"],
        "additionalProperties": false,
        "components": root["components"],
    });
    if let Some(body) = body {
        schema["properties"]["body"] = body.clone();
        schema["required"] = json!(["path", "query", "body"]);
    }
    schema
}

/// Parameters with their references followed.
fn resolve_parameters<'a>(root: &'a Value, list: &'a Value) -> Vec<&'a Value> {
    let followed = |parameter: &'a Value| match parameter["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or(parameter),
        None => parameter,
    };
    list.as_array().into_iter().flatten().map(followed).collect()
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}
