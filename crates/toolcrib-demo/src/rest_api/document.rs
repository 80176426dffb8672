//! The shop's OpenAPI document: matches a request to its operation, and builds the schema that validates it. Supports
//! only what the bundled document uses.
//!
//! For each operation, the parameters and the body become one schema, so that one validation covers the whole request:
//!
//! ```json
//! { "path": { "id": 7 }, "query": { "limit": 5 }, "body": { "sku": "apple-1", "quantity": 2 } }
//! ```

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcrib::core::ResultExt;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::schema::{Validator, follow_references};
use toolcrib::{Code, Result};

/// The document as served at `/openapi.json`.
pub(super) const DOCUMENT_JSON: &str = include_str!("openapi.json");

/// The parsed document.
pub(super) struct ShopDocument {
    /// Quoted entity tag of [`DOCUMENT_JSON`].
    pub(super) etag: String,
    /// In the order of the document.
    operations: Vec<ShopOperation>,
}

/// One operation of the document.
pub(super) struct ShopOperation {
    /// `operationId`.
    pub(super) id: String,
    /// In upper case.
    method: String,
    /// Segments of the path template; `{name}` matches any non-empty segment.
    segments: Vec<String>,
    /// Parameters of the path item and the operation, with references resolved.
    pub(super) parameters: Vec<Value>,
    /// Media type of the request body.
    pub(super) body: Option<String>,
    /// Allowed media types of the parts of a multipart body, by part name.
    pub(super) parts: BTreeMap<String, String>,
    /// Whether the operation has a `security` requirement; the only scheme is the bearer token.
    pub(super) requires_token: bool,
    /// Validates an object with `path`, `query` and `body`.
    pub(super) validator: Validator,
}

/// Result of looking up the operation of a request.
pub(super) enum OperationMatch<'a> {
    /// The operation and its path parameters, percent-encoded.
    Operation(&'a ShopOperation, BTreeMap<String, String>),
    /// The path exists with another method: 405.
    WrongMethod,
    /// No operation has the path: 404.
    NotFound,
}

impl ShopDocument {
    /// Parses [`DOCUMENT_JSON`].
    pub(super) fn parse() -> Result<ShopDocument> {
        let root: Value = serde_json::from_str(DOCUMENT_JSON).context(Code::Internal, "read the shop's document")?;
        let mut operations = Vec::new();
        for (path, item) in entries(&root["paths"]) {
            let shared = resolve_parameters(&root, &item["parameters"]);
            for (method, operation) in entries(item).filter(|(key, _)| *key != "parameters") {
                let own = resolve_parameters(&root, &operation["parameters"]);
                let all: Vec<&Value> = shared.iter().chain(&own).copied().collect();
                operations.push(ShopOperation::from_document(&root, method, path, operation, &all)?);
            }
        }
        Ok(ShopDocument { etag: format!("\"{}\"", Fingerprint::digest(DOCUMENT_JSON).short_hex(16)), operations })
    }

    /// Finds the operation for a method and a path.
    pub(super) fn match_request(&self, method: &str, path: &str) -> OperationMatch<'_> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let mut other_method = false;
        for operation in &self.operations {
            let Some(path_values) = operation.match_path(&segments) else { continue };
            if operation.method == method {
                return OperationMatch::Operation(operation, path_values);
            }
            other_method = true;
        }
        if other_method { OperationMatch::WrongMethod } else { OperationMatch::NotFound }
    }
}

impl ShopOperation {
    /// Collects everything that matching and validation need from one operation.
    fn from_document(
        root: &Value,
        method: &str,
        path: &str,
        operation: &Value,
        parameters: &[&Value],
    ) -> Result<ShopOperation> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Each operation of the document has at most one media type.
        let content = entries(&operation["requestBody"]["content"]).next();
        let body = content.map(|(_, content)| &content["schema"]);
        let parts = content.into_iter().flat_map(|(_, content)| entries(&content["encoding"]));
        let schema = request_schema(root, parameters, body).to_string();
        let schema = serde_json::value::RawValue::from_string(schema).context(Code::Internal, "write a schema")?;
        Ok(ShopOperation {
            id: text(&operation["operationId"]),
            method: method.to_ascii_uppercase(),
            segments: path.trim_start_matches('/').split('/').map(str::to_owned).collect(),
            parameters: parameters.iter().map(|parameter| (*parameter).clone()).collect(),
            body: content.map(|(media_type, _)| media_type.to_owned()),
            parts: parts.map(|(name, encoding)| (name.to_owned(), text(&encoding["contentType"]))).collect(),
            requires_token: !operation["security"].is_null(),
            validator: Validator::new(schema.into()),
        })
    }

    /// Returns the path parameters, percent-encoded, if the path matches the template.
    fn match_path(&self, segments: &[&str]) -> Option<BTreeMap<String, String>> {
        if segments.len() != self.segments.len() {
            return None;
        }
        let mut path_values = BTreeMap::new();
        for (template, segment) in self.segments.iter().zip(segments) {
            match template.strip_prefix('{').and_then(|template| template.strip_suffix('}')) {
                Some(name) if !segment.is_empty() => {
                    path_values.insert(name.to_owned(), (*segment).to_owned());
                }
                Some(_) => return None,
                None if template == segment => {}
                None => return None,
            }
        }
        Some(path_values)
    }
}

/// Builds one schema for path, query and body of an operation; it allows no other properties.
fn request_schema(root: &Value, parameters: &[&Value], body: Option<&Value>) -> Value {
    let object_schema = |location: &str| {
        let located = || parameters.iter().filter(|parameter| parameter["in"] == location);
        let name = |parameter: &Value| parameter["name"].as_str().unwrap_or_default().to_owned();
        let properties: Map<String, Value> =
            located().map(|parameter| (name(parameter), parameter["schema"].clone())).collect();
        let required: Vec<String> =
            located().filter(|parameter| parameter["required"] == true).map(|parameter| name(parameter)).collect();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    };
    let mut schema = json!({
        "type": "object",
        "properties": { "path": object_schema("path"), "query": object_schema("query") },
        "required": ["path", "query"],
        "additionalProperties": false,
        // References such as `#/components/schemas/Order` resolve within this schema.
        "components": root["components"],
    });
    if let Some(body) = body {
        schema["properties"]["body"] = body.clone();
        schema["required"] = json!(["path", "query", "body"]);
    }
    schema
}

/// Returns the parameters with `$ref`s resolved within the document.
fn resolve_parameters<'a>(root: &'a Value, list: &'a Value) -> Vec<&'a Value> {
    list.as_array().into_iter().flatten().map(|parameter| follow_references(root, parameter)).collect()
}

/// The entries of an object; none for any other value.
fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}
