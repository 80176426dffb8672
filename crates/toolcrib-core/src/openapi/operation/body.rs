//! The body of a request: which of its media types is sent, what the argument is, and what a form says of its fields.

mod form_fields;

use serde_json::{Value, json};

use super::super::convert::{DocumentContext, OperationRef, SpecVersion, object_members};
use super::super::description;
use super::super::document_set::NodeRef;
use super::super::parameters;
use super::super::schema::{Direction, SchemaTranslator, TranslatedSchema};
use crate::execution::{BodyEncoding, BodySpec};

const MAX_DESCRIPTION_LEN: usize = 160;

/// The body and the schema of its argument.
pub(super) fn convert_body<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    found: &OperationRef<'a>,
    broken: &mut Vec<String>,
) -> Option<(BodySpec, TranslatedSchema)> {
    match shared.version {
        SpecVersion::Swagger2 => convert_swagger_body(shared, schemas, found, broken),
        SpecVersion::OpenApi3 => {
            let value = found.operation.value.get("requestBody").filter(|value| !value.is_null())?;
            match shared.documents.resolve(NodeRef { value, ..found.operation }) {
                Ok(body) => {
                    if !body.value.is_object() {
                        broken.push("the body is not an object; anything is accepted as JSON".into());
                    }
                    Some(convert_openapi_body(shared, schemas, body, broken))
                }
                Err(reason) => {
                    broken.push(format!("the body: {reason}; anything is accepted as JSON"));
                    Some((
                        body_without_fields("application/json", BodyEncoding::Json, false),
                        TranslatedSchema::without_references(json!({})),
                    ))
                }
            }
        }
    }
}

fn convert_openapi_body<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    body: NodeRef<'a>,
    broken: &mut Vec<String>,
) -> (BodySpec, TranslatedSchema) {
    schemas.charge_reading(body.value);
    let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
    let nothing = &Value::Null;
    let media: Vec<(&str, NodeRef<'a>)> = object_members(body.value, "content")
        .map(|(media_type, value)| {
            let at = NodeRef { value, ..body };
            (media_type.as_str(), shared.documents.resolve(at).unwrap_or(NodeRef { value: nothing, ..body }))
        })
        .collect();
    media.iter().for_each(|(_, media)| schemas.charge_reading(media.value));
    let choice = media.iter().min_by_key(|(media_type, media)| {
        let files = is_multipart(media_type) && media.value.to_string().contains("\"binary\"");
        if files { 1 } else { media_type_rank(media_type) }
    });
    let Some((media_type, media)) = choice else {
        return (
            body_without_fields("application/json", BodyEncoding::Json, required),
            TranslatedSchema::without_references(json!({})),
        );
    };
    let schema = media.value.get("schema").or_else(|| media.value.get("itemSchema"));
    let schema = schema.map(|value| NodeRef { value, ..*media });
    let says = body.value.get("description").and_then(Value::as_str);
    let encoding = media.value.get("encoding").unwrap_or(nothing);
    let (body, mut translated) = build_body(shared, schemas, media_type, schema, encoding, required, broken);
    add_description(&mut translated, says);
    (body, translated)
}

/// What a body says about itself, where its schema says nothing.
fn add_description(translated: &mut TranslatedSchema, says: Option<&str>) {
    if let (Value::Object(fields), Some(text)) = (&mut translated.value, says.filter(|text| !text.trim().is_empty())) {
        fields.entry("description").or_insert_with(|| description::shorten(text, MAX_DESCRIPTION_LEN).into());
    }
}

fn build_body<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    media_type: &str,
    schema: Option<NodeRef<'a>>,
    encoding: &Value,
    required: bool,
    broken: &mut Vec<String>,
) -> (BodySpec, TranslatedSchema) {
    let followed = schema.and_then(|at| shared.documents.resolve(at).ok()).map(|at| at.value);
    let says = |key: &str| followed.and_then(|schema| schema.get(key)).and_then(Value::as_str);
    // A range of media types says nothing about it; the schema may.
    let bytes = media_type.contains('*') && says("format") == Some("binary");
    let content = if bytes { BodyEncoding::Binary } else { content_kind(media_type) };
    let media_type = concrete_media_type(media_type, content);
    let mut translate = |at: Option<NodeRef<'a>>| match at {
        Some(at) => schemas.translate(at, Direction::Request, broken),
        None => TranslatedSchema::without_references(json!({})),
    };
    match content {
        BodyEncoding::Json => (body_without_fields(media_type, content, required), translate(schema)),
        BodyEncoding::JsonLines => {
            let translated = translate(schema);
            let listed = says("type") == Some("array");
            let value = if listed { translated.value } else { json!({ "type": "array", "items": translated.value }) };
            (
                body_without_fields(media_type, content, required),
                TranslatedSchema::with_references(value, translated.references),
            )
        }
        BodyEncoding::Text => {
            let translated = translate(schema);
            let kind = translated.value.get("type").and_then(Value::as_str);
            let text = matches!(kind, Some("string" | "integer" | "number" | "boolean"));
            let xml = media_type.contains("xml");
            let value = match (text && translated.references.is_empty(), xml) {
                (true, _) => translated.value,
                (false, true) => json!({ "type": "string", "description": "XML" }),
                (false, false) => json!({ "type": "string" }),
            };
            (body_without_fields(media_type, content, required), TranslatedSchema::without_references(value))
        }
        BodyEncoding::Binary => (
            body_without_fields(media_type, content, required),
            TranslatedSchema::without_references(form_fields::file_schema()),
        ),
        BodyEncoding::Urlencoded | BodyEncoding::Multipart => {
            let form = form_fields::convert_fields(shared, schemas, schema, encoding, content, broken);
            let body = BodySpec { fields: form.fields, ..body_without_fields(media_type, content, required) };
            (body, form.schema)
        }
    }
}

/// Swagger 2.0: one parameter that is the body, or fields of a form.
fn convert_swagger_body<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    found: &OperationRef<'a>,
    broken: &mut Vec<String>,
) -> Option<(BodySpec, TranslatedSchema)> {
    let all = parameters::resolve_parameters(shared, found, &mut Vec::new());
    let is_in = |at: &&NodeRef<'a>, place: &str| at.value.get("in").and_then(Value::as_str) == Some(place);
    let consumes = found.operation.value.get("consumes").or_else(|| shared.root.value.get("consumes"));
    let consumes = consumes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if let Some(body) = all.iter().rev().find(|at| is_in(at, "body")) {
        let media_type = consumes.filter(|media| !is_form(media)).min_by_key(|media| media_type_rank(media));
        let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
        let schema = body.value.get("schema").map(|value| NodeRef { value, ..*body });
        let media_type = media_type.unwrap_or("application/json");
        let (made, mut translated) = build_body(shared, schemas, media_type, schema, &Value::Null, required, broken);
        add_description(&mut translated, body.value.get("description").and_then(Value::as_str));
        return Some((made, translated));
    }
    let fields: Vec<NodeRef<'a>> = all.iter().filter(|at| is_in(at, "formData")).copied().collect();
    if fields.is_empty() {
        return None;
    }
    let forms: Vec<&str> = consumes.filter(|media| is_form(media)).collect();
    let form = form_fields::convert_swagger_fields(schemas, &fields, broken);
    let files = form.fields.values().any(|field| field.binary);
    let multipart = files || forms.first().is_some_and(|media| is_multipart(media));
    let (media_type, content) = match multipart {
        true => ("multipart/form-data", BodyEncoding::Multipart),
        false => ("application/x-www-form-urlencoded", BodyEncoding::Urlencoded),
    };
    let required = form.schema.value.get("required").is_some();
    Some((BodySpec { fields: form.fields, ..body_without_fields(media_type, content, required) }, form.schema))
}

fn body_without_fields(media_type: &str, content: BodyEncoding, required: bool) -> BodySpec {
    let argument = "body".to_owned();
    let media_type = media_type.to_owned();
    BodySpec { argument, required, media_type, content, fields: Default::default() }
}

/// Which media type is preferred: the lowest.
fn media_type_rank(media_type: &str) -> usize {
    match (content_kind(media_type), essence(media_type).as_str()) {
        (BodyEncoding::Json, "application/json") => 0,
        (BodyEncoding::Json, _) => 2,
        (BodyEncoding::Urlencoded, _) => 3,
        (BodyEncoding::Multipart, _) => 4,
        (BodyEncoding::JsonLines, _) => 5,
        (BodyEncoding::Text, "text/plain") => 6,
        (BodyEncoding::Text, _) => 7,
        (BodyEncoding::Binary, _) => 8,
    }
}

fn content_kind(media_type: &str) -> BodyEncoding {
    let essence = essence(media_type);
    match essence.as_str() {
        "application/x-www-form-urlencoded" => BodyEncoding::Urlencoded,
        "application/jsonl" | "application/x-ndjson" | "application/x-jsonlines" | "application/json-seq" => {
            BodyEncoding::JsonLines
        }
        _ if is_multipart(&essence) => BodyEncoding::Multipart,
        _ if is_json(&essence) => BodyEncoding::Json,
        _ if essence.starts_with("text/")
            || essence.ends_with("/xml")
            || essence.ends_with("+xml")
            || essence.ends_with("yaml")
            || matches!(essence.as_str(), "application/graphql" | "application/javascript" | "application/sql") =>
        {
            BodyEncoding::Text
        }
        _ => BodyEncoding::Binary,
    }
}

/// A media type that can be sent, where the document has a range of them.
fn concrete_media_type(media_type: &str, content: BodyEncoding) -> &str {
    if !media_type.contains('*') {
        return media_type;
    }
    match content {
        BodyEncoding::Json | BodyEncoding::JsonLines => "application/json",
        BodyEncoding::Urlencoded => "application/x-www-form-urlencoded",
        BodyEncoding::Multipart => "multipart/form-data",
        BodyEncoding::Text => "text/plain",
        BodyEncoding::Binary => "application/octet-stream",
    }
}

/// Without its parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.ends_with("/json")
        || essence.ends_with("+json")
        || matches!(essence.as_str(), "*/*" | "application/*" | "json" | "")
}

fn is_multipart(media_type: &str) -> bool {
    media_type.trim_start().to_ascii_lowercase().starts_with("multipart/")
}

fn is_form(media_type: &str) -> bool {
    is_multipart(media_type) || essence(media_type) == "application/x-www-form-urlencoded"
}
