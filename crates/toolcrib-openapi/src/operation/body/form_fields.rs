//! Converts the fields of a form: which of them are files, how each is serialised, and the schema of the whole form.
//! Fields with the default encoding have no entry, which keeps execution specifications short.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolcrib_core::execution::{BodyEncoding, BodyField, ParameterLocation, Serialization};

use super::super::super::convert::DocumentContext;
use super::super::super::document_set::NodeRef;
use super::super::super::object_schema::ObjectSchema;
use super::super::super::parameters;
use super::super::super::schema::{Direction, SchemaTranslator, TranslatedSchema};
use super::super::ArgumentsSchema;

/// Fields of a form and the schema of its argument.
pub(super) struct FormFields {
    /// Fields that differ from the default encoding.
    pub(super) fields: BTreeMap<String, BodyField>,
    /// Schema of the form as one object.
    pub(super) schema: TranslatedSchema,
}

/// Returns the schema of a file argument: base64, optionally with a file name. Agents have no other way to pass bytes
/// in JSON.
pub(super) fn file_schema() -> Value {
    json!({ "type": ["string", "object"], "description": "base64, or {name, base64}" })
}

/// Converts the fields of a form of OpenAPI 3. `encoding` is the Encoding Object of the media type.
pub(super) fn convert_fields<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    schema: Option<NodeRef<'a>>,
    encoding: &Value,
    content: BodyEncoding,
    faults: &mut Vec<String>,
) -> FormFields {
    let Some(schema) = schema else {
        return FormFields {
            fields: BTreeMap::new(),
            schema: TranslatedSchema::without_references(json!({ "type": "object" })),
        };
    };
    // The properties are read from the original schema, because the translated one may have moved them to `$defs`.
    let mut translated = translator.translate(schema, Direction::Request, faults);
    let ObjectSchema { properties, required, .. } = translator.object_schema(schema);
    let mut fields = BTreeMap::new();
    for (name, node) in &properties {
        let field_encoding = encoding.get(name).unwrap_or(&Value::Null);
        let mut field = convert_field(context, *node, field_encoding, content);
        // Other fields are checked by the schema alone.
        field.required = required.contains(name) && is_list_or_object(context, *node);
        if field != BodyField::default() {
            fields.insert(name.clone(), field);
        }
    }
    // The document describes a file as a string of bytes, but agents pass base64, so the schema is built anew.
    if fields.values().any(|field| field.binary) {
        translated = schema_with_files(context, translator, schema, &properties, &fields, &required, faults);
    }
    FormFields { fields, schema: translated }
}

/// Returns how a field is encoded.
fn convert_field(
    context: &DocumentContext<'_>,
    node: NodeRef<'_>,
    encoding: &Value,
    content: BodyEncoding,
) -> BodyField {
    // `contentType` may be a list; a range cannot be sent.
    // The Encoding Object takes precedence over the schema.
    let content_type = encoding.get("contentType").and_then(Value::as_str);
    let content_type =
        content_type.and_then(|types| types.split(',').map(str::trim).find(|media_type| !media_type.contains('*')));
    let has_style = ["style", "explode", "allowReserved"].iter().any(|key| encoding.get(*key).is_some());
    // Styles apply to forms as they do to query parameters.
    let serialization = has_style.then(|| parameters::read_style(encoding, ParameterLocation::Query));
    let binary = content == BodyEncoding::Multipart && is_encoded_file(context, node, encoding, 0);
    // A text with a `contentEncoding` is sent unchanged, with the media type of bytes.
    let resolved = context.documents.resolve(node).map_or(&Value::Null, |node| node.value);
    let is_encoded = content == BodyEncoding::Multipart && !binary && resolved.get("contentEncoding").is_some();
    let content_type = content_type.or(is_encoded.then_some("application/octet-stream"));
    BodyField { binary, content_type: content_type.map(str::to_owned), serialization, required: false }
}

/// Returns whether a field is an array or object. An empty one leaves no trace in a form.
fn is_list_or_object(context: &DocumentContext<'_>, node: NodeRef<'_>) -> bool {
    let Ok(node) = context.documents.resolve(node) else { return false };
    matches!(node.value.get("type").and_then(Value::as_str), Some("array" | "object"))
}

/// Maximum nesting of arrays when looking for files. Arrays may refer to themselves.
const MAX_LIST_DEPTH: usize = 4;

/// Returns whether a field, or an item of it, is a file by its schema alone.
pub(super) fn is_file(context: &DocumentContext<'_>, node: NodeRef<'_>) -> bool {
    is_encoded_file(context, node, &Value::Null, 0)
}

/// Returns whether a field, or an item of it, is a file. `encoding` is its Encoding Object.
fn is_encoded_file(context: &DocumentContext<'_>, node: NodeRef<'_>, encoding: &Value, depth: usize) -> bool {
    // A reference is followed at every level, since the items of a list may be one.
    let Ok(node) = context.documents.resolve(node) else { return false };
    let text = |key: &str| node.value.get(key).and_then(Value::as_str);
    // A list of files is a file field that is repeated.
    if let (Some("array"), Some(items)) = (text("type"), node.value.get("items")) {
        return depth < MAX_LIST_DEPTH
            && is_encoded_file(context, NodeRef { value: items, ..node }, encoding, depth + 1);
    }
    // OpenAPI 3.1 describes encoded bytes as text with `contentEncoding`, which agents pass as text.
    let is_encoded = text("contentEncoding").is_some();
    let media_type = encoding.get("contentType").and_then(Value::as_str).or(text("contentMediaType"));
    let is_string = matches!(text("type"), Some("string") | None) && node.value.get("properties").is_none();
    // Media types whose content is not text.
    let binary_type = |media: &str| {
        ["image/", "audio/", "video/", "application/octet-stream", "application/pdf", "application/zip"]
            .iter()
            .any(|prefix| media.starts_with(prefix))
    };
    text("format") == Some("binary")
        || text("type") == Some("file")
        || (is_string && !is_encoded && media_type.is_some_and(binary_type))
}

/// Builds the schema of a form with files, field by field.
fn schema_with_files<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    schema: NodeRef<'a>,
    properties: &BTreeMap<String, NodeRef<'a>>,
    fields: &BTreeMap<String, BodyField>,
    required: &BTreeSet<String>,
    faults: &mut Vec<String>,
) -> TranslatedSchema {
    // Keeps the form as strict as the document has it.
    let mut form = ArgumentsSchema { is_closed: is_closed(context, schema), ..ArgumentsSchema::default() };
    for (name, node) in properties {
        let resolved = context.documents.resolve(*node).unwrap_or(*node);
        let read_only = |node: NodeRef<'_>| node.value.get("readOnly") == Some(&Value::Bool(true));
        // `readOnly` may be beside a reference or in its target.
        if read_only(*node) || read_only(resolved) {
            continue;
        }
        // Files get a schema of their own, lists of files a list of it.
        let is_file = fields.get(name).is_some_and(|field| field.binary);
        let is_array = resolved.value.get("type").and_then(Value::as_str) == Some("array");
        let field_schema = match (is_file, is_array) {
            (true, true) => TranslatedSchema::without_references(json!({ "type": "array", "items": file_schema() })),
            (true, false) => TranslatedSchema::without_references(file_schema()),
            (false, _) => translator.translate(*node, Direction::Request, faults),
        };
        form.add(name, field_schema, required.contains(name));
    }
    form.into_schema()
}

/// Returns whether the form rejects other fields.
fn is_closed(context: &DocumentContext<'_>, schema: NodeRef<'_>) -> bool {
    let Ok(node) = context.documents.resolve(schema) else { return false };
    node.value.get("additionalProperties") == Some(&Value::Bool(false))
}

/// Converts the `formData` parameters of Swagger 2.0.
pub(super) fn convert_swagger_fields<'a>(
    translator: &mut SchemaTranslator<'a>,
    parameters: &[NodeRef<'a>],
    faults: &mut Vec<String>,
) -> FormFields {
    let mut form = ArgumentsSchema::default();
    let mut fields = BTreeMap::new();
    for node in parameters {
        let text = |key: &str| node.value.get(key).and_then(Value::as_str);
        let Some(name) = text("name") else { continue };
        let binary = text("type") == Some("file");
        let is_required = node.value.get("required") == Some(&Value::Bool(true));
        let mut translated = translator.translate(*node, Direction::Request, faults);
        if binary {
            translated.value = file_schema();
        }
        form.add(name, translated, is_required);
        // Lists are joined by `collectionFormat`; other values have one form only.
        let is_array = text("type") == Some("array");
        let serialization: Option<Serialization> = is_array
            .then(|| parameters::collection_format_serialization(text("collectionFormat"), ParameterLocation::Query));
        // Only an empty list could vanish from the form without being noticed.
        let required = is_array && is_required;
        fields.insert(name.to_owned(), BodyField { binary, content_type: None, serialization, required });
    }
    // Default fields need no entry.
    fields.retain(|_, field| *field != BodyField::default());
    FormFields { fields, schema: form.into_schema() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use url::Url;

    use crate::{ConversionOptions, DocumentSet, convert};
    use toolcrib_core::execution::{BodySpec, ExecutionSpec};
    use toolcrib_core::source::{OpenApiSource, SourceId};
    use toolcrib_core::tool::EXECUTION_SPEC_KEY;

    /// Returns the body of a form with this schema, and the schema of its argument.
    fn convert_form(media_type: &str, schema: Value) -> (BodySpec, Value) {
        let content = json!({ media_type: { "schema": schema } });
        let operation = json!({ "operationId": "send", "requestBody": { "content": content } });
        let document = json!({ "openapi": "3.0.3", "paths": { "/t": { "post": operation } } });
        let documents = DocumentSet::new(Url::parse("file:///t.json").unwrap(), document);
        let source = SourceId::parse("t").unwrap();
        let converted =
            convert(&documents, ConversionOptions { source: &source, openapi: &OpenApiSource::default() }).unwrap();
        let tool: Value = serde_json::from_str(converted.tools[0].get()).unwrap();
        let backing: ExecutionSpec = serde_json::from_value(tool[EXECUTION_SPEC_KEY].clone()).unwrap();
        let body = backing.execution.operation().and_then(|operation| operation.body.clone()).unwrap();
        (body, tool["inputSchema"]["properties"]["body"].clone())
    }

    #[test]
    fn a_form_with_files_accepts_other_fields_only_if_its_schema_does() {
        let is_file = json!({ "image": { "type": "string", "format": "binary" } });
        for (additional, expected) in
            [(json!(false), json!(false)), (json!(true), json!(null)), (json!({}), json!(null))]
        {
            let schema = json!({ "type": "object", "properties": is_file, "additionalProperties": additional });
            let (_, schema) = convert_form("multipart/form-data", schema);
            assert_eq!(schema["additionalProperties"], expected, "{schema}");
        }
    }

    #[test]
    fn required_lists_of_a_form_are_recorded() {
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
