//! The fields of a form: which of them are files, how each is written, and the schema of the whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::super::convert::DocumentContext;
use super::super::super::document_set::NodeRef;
use super::super::super::object_schema::ObjectSchema;
use super::super::super::parameters;
use super::super::super::schema::{Direction, SchemaTranslator, TranslatedSchema};
use crate::execution::{BodyEncoding, FormField, ParameterLocation, Serialization};

pub(super) struct FormFields {
    pub(super) fields: BTreeMap<String, FormField>,
    pub(super) schema: TranslatedSchema,
}

/// A file is base64, with a name where one is wanted.
pub(super) fn file_schema() -> Value {
    json!({ "type": ["string", "object"], "description": "base64, or {name, base64}" })
}

pub(super) fn convert_fields<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    schema: Option<NodeRef<'a>>,
    encoding: &Value,
    content: BodyEncoding,
    broken: &mut Vec<String>,
) -> FormFields {
    let Some(schema) = schema else {
        return FormFields {
            fields: BTreeMap::new(),
            schema: TranslatedSchema::without_references(json!({ "type": "object" })),
        };
    };
    let mut translated = schemas.translate(schema, Direction::Request, broken);
    let ObjectSchema { properties, required, .. } = schemas.object_schema(schema);
    let mut fields = BTreeMap::new();
    for (name, at) in &properties {
        let said = encoding.get(name).unwrap_or(&Value::Null);
        let mut field = convert_field(shared, *at, said, content);
        field.required = required.contains(name) && is_list_or_object(shared, *at);
        if field != FormField::default() {
            fields.insert(name.clone(), field);
        }
    }
    // Files are not what their schemas say, so these need one of their own.
    if fields.values().any(|field| field.binary) {
        translated = schema_with_files(shared, schemas, schema, &properties, &fields, &required, broken);
    }
    FormFields { fields, schema: translated }
}

fn convert_field(shared: &DocumentContext<'_>, at: NodeRef<'_>, encoding: &Value, content: BodyEncoding) -> FormField {
    let content_type = encoding.get("contentType").and_then(Value::as_str);
    let content_type = content_type.and_then(|types| types.split(',').map(str::trim).find(|one| !one.contains('*')));
    let styled = ["style", "explode", "allowReserved"].iter().any(|key| encoding.get(*key).is_some());
    let form = styled.then(|| parameters::read_style(encoding, ParameterLocation::Query));
    let binary = content == BodyEncoding::Multipart && is_file(shared, at, encoding, 0);
    // Text that is encoded bytes goes as it is, and says what it is.
    let followed = shared.documents.resolve(at).map_or(&Value::Null, |at| at.value);
    let encoded = content == BodyEncoding::Multipart && !binary && followed.get("contentEncoding").is_some();
    let content_type = content_type.or(encoded.then_some("application/octet-stream"));
    FormField { binary, content_type: content_type.map(str::to_owned), serialization: form, required: false }
}

/// Whether it is a list or an object, of which an empty one leaves no trace in a form.
fn is_list_or_object(shared: &DocumentContext<'_>, at: NodeRef<'_>) -> bool {
    let Ok(at) = shared.documents.resolve(at) else { return false };
    matches!(at.value.get("type").and_then(Value::as_str), Some("array" | "object"))
}

/// Lists of lists may be without end.
const MAX_LIST_DEPTH: usize = 4;

fn is_file(shared: &DocumentContext<'_>, at: NodeRef<'_>, encoding: &Value, depth: usize) -> bool {
    let Ok(at) = shared.documents.resolve(at) else { return false };
    let text = |key: &str| at.value.get(key).and_then(Value::as_str);
    if let (Some("array"), Some(items)) = (text("type"), at.value.get("items")) {
        return depth < MAX_LIST_DEPTH && is_file(shared, NodeRef { value: items, ..at }, encoding, depth + 1);
    }
    let encoded = text("contentEncoding").is_some();
    let typed = encoding.get("contentType").and_then(Value::as_str).or(text("contentMediaType"));
    let string = matches!(text("type"), Some("string") | None) && at.value.get("properties").is_none();
    let binary_type = |media: &str| {
        ["image/", "audio/", "video/", "application/octet-stream", "application/pdf", "application/zip"]
            .iter()
            .any(|prefix| media.starts_with(prefix))
    };
    text("format") == Some("binary")
        || text("type") == Some("file")
        || (string && !encoded && typed.is_some_and(binary_type))
}

/// The schema of a form with files in it, field by field.
fn schema_with_files<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    schema: NodeRef<'a>,
    properties: &BTreeMap<String, NodeRef<'a>>,
    fields: &BTreeMap<String, FormField>,
    required: &BTreeSet<String>,
    broken: &mut Vec<String>,
) -> TranslatedSchema {
    let mut out = Map::new();
    let mut references = Vec::new();
    for (name, at) in properties {
        let followed = shared.documents.resolve(*at).unwrap_or(*at);
        let read_only = |at: NodeRef<'_>| at.value.get("readOnly") == Some(&Value::Bool(true));
        if read_only(*at) || read_only(followed) {
            continue;
        }
        let file = fields.get(name).is_some_and(|field| field.binary);
        let many = followed.value.get("type").and_then(Value::as_str) == Some("array");
        let value = match (file, many) {
            (true, true) => json!({ "type": "array", "items": file_schema() }),
            (true, false) => file_schema(),
            (false, _) => {
                let translated = schemas.translate(*at, Direction::Request, broken);
                references.extend(translated.references);
                translated.value
            }
        };
        out.insert(name.clone(), value);
    }
    let required: Vec<&String> = required.iter().filter(|name| out.contains_key(*name)).collect();
    let mut value = json!({ "type": "object", "properties": out });
    if !required.is_empty() {
        value["required"] = json!(required);
    }
    if is_closed(shared, schema) {
        value["additionalProperties"] = false.into();
    }
    TranslatedSchema::with_references(value, references)
}

/// Whether the form takes no other fields.
fn is_closed(shared: &DocumentContext<'_>, schema: NodeRef<'_>) -> bool {
    let Ok(at) = shared.documents.resolve(schema) else { return false };
    at.value.get("additionalProperties") == Some(&Value::Bool(false))
}

/// The fields that Swagger 2.0 keeps among the parameters.
pub(super) fn convert_swagger_fields<'a>(
    schemas: &mut SchemaTranslator<'a>,
    given: &[NodeRef<'a>],
    broken: &mut Vec<String>,
) -> FormFields {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut references = Vec::new();
    let mut fields = BTreeMap::new();
    for at in given {
        let text = |key: &str| at.value.get(key).and_then(Value::as_str);
        let Some(name) = text("name") else { continue };
        let binary = text("type") == Some("file");
        let translated = schemas.translate(*at, Direction::Request, broken);
        references.extend(translated.references);
        properties.insert(name.to_owned(), if binary { file_schema() } else { translated.value });
        if at.value.get("required") == Some(&Value::Bool(true)) {
            required.push(name.to_owned());
        }
        let listed = text("type") == Some("array");
        let form: Option<Serialization> =
            listed.then(|| parameters::collection_format_encoding(text("collectionFormat"), ParameterLocation::Query));
        let required = listed && at.value.get("required") == Some(&Value::Bool(true));
        fields.insert(name.to_owned(), FormField { binary, content_type: None, serialization: form, required });
    }
    fields.retain(|_, field| *field != FormField::default());
    let mut value = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        value["required"] = json!(required);
    }
    FormFields { fields, schema: TranslatedSchema::with_references(value, references) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use url::Url;

    use crate::execution::{BodySpec, ExecutionSpec};
    use crate::openapi::{ConversionOptions, DocumentSet, convert};
    use crate::source::{OpenApiSource, SourceId};
    use crate::tool::EXECUTION_SPEC_KEY;

    /// The body of a form with this schema, and the schema of its argument.
    fn convert_form(media_type: &str, schema: Value) -> (BodySpec, Value) {
        let content = json!({ media_type: { "schema": schema } });
        let operation = json!({ "operationId": "send", "requestBody": { "content": content } });
        let document = json!({ "openapi": "3.0.3", "paths": { "/t": { "post": operation } } });
        let library = DocumentSet::new(Url::parse("file:///t.json").unwrap(), document);
        let source = SourceId::parse("t").unwrap();
        let converted =
            convert(&library, ConversionOptions { source: &source, openapi: &OpenApiSource::default() }).unwrap();
        let tool: Value = serde_json::from_str(converted.tools[0].get()).unwrap();
        let backing: ExecutionSpec = serde_json::from_value(tool[EXECUTION_SPEC_KEY].clone()).unwrap();
        let body = backing.execution.operation().and_then(|operation| operation.body.clone()).unwrap();
        (body, tool["inputSchema"]["properties"]["body"].clone())
    }

    #[test]
    fn a_form_with_files_takes_other_fields_only_where_its_schema_does() {
        let file = json!({ "image": { "type": "string", "format": "binary" } });
        for (more, expected) in [(json!(false), json!(false)), (json!(true), json!(null)), (json!({}), json!(null))] {
            let schema = json!({ "type": "object", "properties": file, "additionalProperties": more });
            let (_, schema) = convert_form("multipart/form-data", schema);
            assert_eq!(schema["additionalProperties"], expected, "{schema}");
        }
    }

    #[test]
    fn a_list_that_a_form_must_have_is_known() {
        let properties = json!({ "tags": { "type": "array", "items": {} }, "name": { "type": "string" } });
        let schema = json!({ "type": "object", "properties": properties, "required": ["tags", "name"] });
        for media_type in ["multipart/form-data", "application/x-www-form-urlencoded"] {
            let (body, _) = convert_form(media_type, schema.clone());
            let required: Vec<&String> =
                body.fields.iter().filter(|(_, field)| field.required).map(|(name, _)| name).collect();
            assert_eq!(required, ["tags"], "{media_type}");
        }
    }
}
