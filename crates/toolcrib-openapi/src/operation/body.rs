//! Converts the request body: selects one of its media types, and builds the schema of the argument and the encoding of
//! form fields.
//!
//! A document may offer several media types for one body. The first by [`media_type_rank`] is the default; an argument of
//! its own chooses another. The schema of the body is then one of several, as far as they differ.

mod form_fields;

use serde_json::{Value, json};
use toolcrib_core::execution::{BodyAlternative, BodyEncoding, BodySpec};

use super::super::convert::{DocumentContext, OperationRef, SpecVersion, object_members};
use super::super::description;
use super::super::document_set::NodeRef;
use super::super::parameters;
use super::super::request::media_type::{self, essence};
use super::super::schema::{Direction, SchemaTranslator, TranslatedSchema};

/// Maximum length of the description of the body.
const MAX_DESCRIPTION_LEN: usize = 160;
/// Maximum number of media types besides the default.
const MAX_ALTERNATIVES: usize = 15;

/// Body of an operation.
pub(super) struct ConvertedBody {
    /// The default media type.
    pub(super) body: BodySpec,
    /// Schema of the argument, for all media types.
    pub(super) schema: TranslatedSchema,
    /// Schemas of the media types, if they differ.
    pub(super) media_schemas: Vec<MediaSchema>,
    /// Other media types.
    pub(super) alternatives: Vec<BodyAlternative>,
}

impl ConvertedBody {
    /// Body with one media type.
    fn single((body, schema): (BodySpec, TranslatedSchema)) -> ConvertedBody {
        ConvertedBody { body, schema, media_schemas: Vec::new(), alternatives: Vec::new() }
    }
}

/// Schema of the body in some of its media types.
pub(super) struct MediaSchema {
    pub(super) media_types: Vec<String>,
    pub(super) schema: TranslatedSchema,
}

/// Returns the body and the schema of its argument, if the operation has a body.
pub(super) fn convert_body<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    operation_ref: &OperationRef<'a>,
    faults: &mut Vec<String>,
) -> Option<ConvertedBody> {
    match context.version {
        SpecVersion::Swagger2 => convert_swagger_body(context, translator, operation_ref, faults),
        SpecVersion::OpenApi3 => {
            let value = operation_ref.operation.value.get("requestBody").filter(|value| !value.is_null())?;
            match context.documents.resolve(NodeRef { value, ..operation_ref.operation }) {
                Ok(body) => {
                    if !body.value.is_object() {
                        faults.push("the body is not an object; anything is accepted as JSON".into());
                    }
                    Some(convert_openapi_body(context, translator, body, faults))
                }
                // An unresolvable body must not make the operation unusable.
                Err(reason) => {
                    faults.push(format!("the body: {reason}; anything is accepted as JSON"));
                    let body = body_without_fields("application/json", BodyEncoding::Json, false);
                    Some(ConvertedBody::single((body, TranslatedSchema::any())))
                }
            }
        }
    }
}

/// Converts the `requestBody` of OpenAPI 3.
fn convert_openapi_body<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    body: NodeRef<'a>,
    faults: &mut Vec<String>,
) -> ConvertedBody {
    translator.charge_reading(body.value);
    let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
    let null = &Value::Null;
    // The declared media types. One that cannot be resolved counts as empty.
    let mut media: Vec<(&str, NodeRef<'a>)> = object_members(body.value, "content")
        .map(|(media_type, value)| {
            let node = NodeRef { value, ..body };
            (media_type.as_str(), context.documents.resolve(node).unwrap_or(NodeRef { value: null, ..body }))
        })
        .collect();
    media.iter().for_each(|(_, media)| translator.charge_reading(media.value));
    media.sort_by_key(|(media_type, _)| media_type_rank(media_type));
    let description = body.value.get("description").and_then(Value::as_str);
    let media = media.into_iter().map(|(media_type, media)| {
        // OpenAPI 3.2 describes the items of a stream by `itemSchema`.
        let schema = media.value.get("schema").or_else(|| media.value.get("itemSchema"));
        let schema = schema.map(|value| NodeRef { value, ..media });
        BodyMedia { media_type, schema, encoding: media.value.get("encoding").unwrap_or(null) }
    });
    // A body without media types accepts any JSON.
    convert_media(context, translator, media.collect(), required, description, faults).unwrap_or_else(|| {
        let body = body_without_fields("application/json", BodyEncoding::Json, required);
        ConvertedBody::single((body, TranslatedSchema::any()))
    })
}

/// A media type of a body.
#[derive(Clone, Copy)]
struct BodyMedia<'a> {
    media_type: &'a str,
    schema: Option<NodeRef<'a>>,
    /// The Encoding Object of a form.
    encoding: &'a Value,
}

/// Converts the media types of a body, the default first. Returns `None` if there are none.
fn convert_media<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    media: Vec<BodyMedia<'a>>,
    required: bool,
    description: Option<&str>,
    faults: &mut Vec<String>,
) -> Option<ConvertedBody> {
    let (default, others) = media.split_first()?;
    let (body, schema) = build_body(context, translator, *default, required, faults);
    // JSON types that one of the media types so far accepts.
    let mut accepted_types = value_types(context, body.content, default.schema);
    let mut alternatives: Vec<BodyAlternative> = Vec::new();
    let mut media_schemas = vec![MediaSchema { media_types: vec![body.media_type.clone()], schema }];
    for other in others.iter().take(MAX_ALTERNATIVES) {
        // Only faults of the default are reported: what agents send unless they choose otherwise.
        let (alternative, schema) = build_body(context, translator, *other, required, &mut Vec::new());
        let known = alternatives.iter().map(|alternative| &alternative.body).chain([&body]);
        if known.into_iter().any(|known| known.media_type == alternative.media_type) {
            continue;
        }
        let files = alternative.fields.iter().filter(|(_, field)| field.binary).map(|(name, _)| name.clone());
        let mut file_fields: Vec<String> = files.collect();
        if let (false, Some(default)) = (file_fields.is_empty(), default.schema) {
            let properties = translator.object_schema(default).properties;
            file_fields.retain(|name| properties.get(name).is_none_or(|node| form_fields::is_file(context, *node)));
        }
        match media_schemas.iter_mut().find(|known| known.schema.value == schema.value) {
            Some(known) => known.media_types.push(alternative.media_type.clone()),
            None => media_schemas.push(MediaSchema { media_types: vec![alternative.media_type.clone()], schema }),
        }
        let mut value_types = value_types(context, alternative.content, other.schema);
        value_types.retain(|name| !accepted_types.contains(name));
        accepted_types.extend(&value_types);
        let value_types = value_types.into_iter().map(str::to_owned).collect();
        alternatives.push(BodyAlternative { body: alternative, file_fields, value_types });
    }
    let mut schema = if media_schemas.len() == 1 {
        media_schemas.swap_remove(0).schema
    } else {
        // Each is in the schema twice: for any media type, and for its own.
        for media in &mut media_schemas {
            media.schema = translator.define("body", Direction::Request, &media.schema);
        }
        let variants = || media_schemas.iter().map(|media| &media.schema);
        if media_schemas[0].schema.value == json!({}) {
            TranslatedSchema::any()
        } else {
            let references = variants().flat_map(|schema| schema.references.iter().cloned()).collect();
            let variants: Vec<&Value> = variants().map(|schema| &schema.value).collect();
            TranslatedSchema::with_references(json!({ "anyOf": variants }), references)
        }
    };
    add_description(&mut schema, description);
    Some(ConvertedBody { body, schema, media_schemas, alternatives })
}

/// Names of the JSON types.
const JSON_TYPES: [&str; 5] = ["object", "array", "string", "number", "boolean"];

/// Returns the JSON types that a body may have: those that its schema names, or all that its encoding can express.
fn value_types(context: &DocumentContext<'_>, content: BodyEncoding, schema: Option<NodeRef<'_>>) -> Vec<&'static str> {
    let only = |names: &[&'static str]| names.to_vec();
    match content {
        BodyEncoding::JsonLines => only(&["array"]),
        BodyEncoding::Urlencoded | BodyEncoding::Multipart => only(&["object"]),
        BodyEncoding::Text | BodyEncoding::Binary => only(&["string"]),
        BodyEncoding::Json => {
            let schema = schema.and_then(|node| context.documents.resolve(node).ok()).map(|node| node.value);
            let has = |key: &str| schema.is_some_and(|schema| schema.get(key).is_some());
            let names: Vec<&str> = match schema.and_then(|schema| schema.get("type")) {
                Some(Value::String(name)) => vec![name],
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
                _ if has("properties") => vec!["object"],
                _ => JSON_TYPES.to_vec(),
            };
            let is_named = |name: &&str| names.contains(name) || (*name == "number" && names.contains(&"integer"));
            JSON_TYPES.into_iter().filter(is_named).collect()
        }
    }
}

/// Adds the description of the body, unless its schema has one.
fn add_description(translated: &mut TranslatedSchema, description: Option<&str>) {
    if let (Value::Object(fields), Some(text)) =
        (&mut translated.value, description.filter(|text| !text.trim().is_empty()))
    {
        fields.entry("description").or_insert_with(|| description::shorten(text, MAX_DESCRIPTION_LEN).into());
    }
}

/// Builds the body for one media type. The kind of content decides what the argument looks like.
fn build_body<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    media: BodyMedia<'a>,
    required: bool,
    faults: &mut Vec<String>,
) -> (BodySpec, TranslatedSchema) {
    let BodyMedia { media_type, schema, encoding } = media;
    // The kind decides between JSON, text, bytes and forms; the schema is translated accordingly.
    let resolved = schema.and_then(|node| context.documents.resolve(node).ok()).map(|node| node.value);
    let keyword = |key: &str| resolved.and_then(|schema| schema.get(key)).and_then(Value::as_str);
    // For a range of media types, the format of the schema decides.
    let is_binary = media_type.contains('*') && keyword("format") == Some("binary");
    let content = if is_binary { BodyEncoding::Binary } else { body_encoding(media_type) };
    let media_type = concrete_media_type(media_type, content);
    // Without a schema anything is accepted.
    let mut translate = |node: Option<NodeRef<'a>>| match node {
        Some(node) => translator.translate(node, Direction::Request, faults),
        None => TranslatedSchema::any(),
    };
    let mut body = body_without_fields(media_type, content, required);
    let translated = match content {
        BodyEncoding::Json => translate(schema),
        // The argument is the list of lines.
        BodyEncoding::JsonLines => {
            let translated = translate(schema);
            // A document may describe the list, or one line of it.
            let is_array = keyword("type") == Some("array");
            let value = if is_array { translated.value } else { json!({ "type": "array", "items": translated.value }) };
            TranslatedSchema::with_references(value, translated.references)
        }
        // Only scalars have an obvious text form; for anything else the agent writes the text itself.
        BodyEncoding::Text => {
            let translated = translate(schema);
            let kind = translated.value.get("type").and_then(Value::as_str);
            let is_scalar = matches!(kind, Some("string" | "integer" | "number" | "boolean"));
            let is_xml = media_type.contains("xml");
            let value = match (is_scalar && translated.references.is_empty(), is_xml) {
                (true, _) => translated.value,
                (false, true) => json!({ "type": "string", "description": "XML" }),
                (false, false) => json!({ "type": "string" }),
            };
            TranslatedSchema::without_references(value)
        }
        // Agents pass bytes as base64.
        BodyEncoding::Binary => TranslatedSchema::without_references(form_fields::file_schema()),
        BodyEncoding::Urlencoded | BodyEncoding::Multipart => {
            let form = form_fields::convert_fields(context, translator, schema, encoding, content, faults);
            body.fields = form.fields;
            form.schema
        }
    };
    (body, translated)
}

/// Converts the body of Swagger 2.0: a parameter in `body`, or parameters in `formData`.
fn convert_swagger_body<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    operation_ref: &OperationRef<'a>,
    faults: &mut Vec<String>,
) -> Option<ConvertedBody> {
    let all = parameters::resolve_parameters(context, operation_ref, &mut Vec::new());
    // Faults of parameters are reported by `parameters`, so they are ignored here.
    let is_in = |node: &&NodeRef<'a>, location: &str| node.value.get("in").and_then(Value::as_str) == Some(location);
    let consumes = operation_ref.operation.value.get("consumes").or_else(|| context.root.value.get("consumes"));
    let consumes = consumes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    // The operation's own body parameter comes last and overrides the one of the path item.
    if let Some(body) = all.iter().rev().find(|node| is_in(node, "body")) {
        // `consumes` of the document may list form types for other operations.
        let mut media_types: Vec<&'a str> = consumes.filter(|media| !is_form(media)).collect();
        media_types.sort_by_key(|media| media_type_rank(media));
        if media_types.is_empty() {
            media_types.push("application/json");
        }
        let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
        let schema = body.value.get("schema").map(|value| NodeRef { value, ..*body });
        let description = body.value.get("description").and_then(Value::as_str);
        let media = media_types.into_iter().map(|media_type| BodyMedia { media_type, schema, encoding: &Value::Null });
        return convert_media(context, translator, media.collect(), required, description, faults);
    }
    // Without a body parameter, form fields make up the body.
    let fields: Vec<NodeRef<'a>> = all.iter().filter(|node| is_in(node, "formData")).copied().collect();
    if fields.is_empty() {
        return None;
    }
    let forms: Vec<&str> = consumes.filter(|media| is_form(media)).collect();
    let form = form_fields::convert_swagger_fields(translator, &fields, faults);
    // Files can only be sent as multipart.
    let files = form.fields.values().any(|field| field.binary);
    let multipart = files || forms.first().is_some_and(|media| is_multipart(media));
    let (media_type, content) = if multipart {
        ("multipart/form-data", BodyEncoding::Multipart)
    } else {
        ("application/x-www-form-urlencoded", BodyEncoding::Urlencoded)
    };
    // A form with required fields is required itself.
    let required = form.schema.value.get("required").is_some();
    let body = BodySpec { fields: form.fields, ..body_without_fields(media_type, content, required) };
    let other = match content {
        BodyEncoding::Urlencoded => Some(("multipart/form-data", BodyEncoding::Multipart)),
        BodyEncoding::Multipart if !files => Some(("application/x-www-form-urlencoded", BodyEncoding::Urlencoded)),
        BodyEncoding::Json
        | BodyEncoding::JsonLines
        | BodyEncoding::Multipart
        | BodyEncoding::Text
        | BodyEncoding::Binary => None,
    };
    // Without files, both kinds of forms can be sent, if the operation consumes them.
    let other = other.filter(|(media_type, _)| forms.iter().any(|form| essence(form) == *media_type));
    let alternatives = other.map(|(media_type, content)| {
        let body = BodySpec { media_type: media_type.to_owned(), content, ..body.clone() };
        BodyAlternative { body, file_fields: Vec::new(), value_types: Vec::new() }
    });
    let alternatives = alternatives.into_iter().collect();
    Some(ConvertedBody { body, schema: form.schema, media_schemas: Vec::new(), alternatives })
}

/// Returns a body without form fields.
fn body_without_fields(media_type: &str, content: BodyEncoding, required: bool) -> BodySpec {
    let argument = "body".to_owned();
    let media_type = media_type.to_owned();
    BodySpec { argument, required, media_type, content, fields: Default::default() }
}

/// Returns the preference of a media type, the lowest first. JSON is what agents write best; bytes have to be encoded
/// as base64.
fn media_type_rank(media_type: &str) -> usize {
    match (body_encoding(media_type), essence(media_type).as_str()) {
        (BodyEncoding::Json, "application/json") => 0,
        (BodyEncoding::Json, _) => 1,
        (BodyEncoding::Urlencoded, _) => 2,
        (BodyEncoding::Multipart, _) => 3,
        (BodyEncoding::JsonLines, _) => 4,
        (BodyEncoding::Text, "text/plain") => 5,
        (BodyEncoding::Text, _) => 6,
        (BodyEncoding::Binary, _) => 7,
    }
}

/// Returns how the content of a media type is encoded.
pub fn body_encoding(media_type: &str) -> BodyEncoding {
    // By the full type first, then by its structure.
    let essence = essence(media_type);
    match essence.as_str() {
        "application/x-www-form-urlencoded" => BodyEncoding::Urlencoded,
        // One JSON text per line.
        "application/jsonl" | "application/x-ndjson" | "application/x-jsonlines" | "application/json-seq" => {
            BodyEncoding::JsonLines
        }
        _ if is_multipart(&essence) => BodyEncoding::Multipart,
        _ if is_json(&essence) => BodyEncoding::Json,
        // Anything that is known to be text; other types are bytes.
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

/// Returns a concrete media type for a range such as `*/*`.
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

/// Returns whether a media type is JSON. A range counts as JSON.
pub(super) fn is_json(media_type: &str) -> bool {
    media_type::is_json(media_type) || matches!(essence(media_type).as_str(), "*/*" | "application/*" | "json" | "")
}

fn is_multipart(media_type: &str) -> bool {
    media_type.trim_start().to_ascii_lowercase().starts_with("multipart/")
}

/// Returns whether a media type is a form.
fn is_form(media_type: &str) -> bool {
    is_multipart(media_type) || essence(media_type) == "application/x-www-form-urlencoded"
}
