//! The body of a request: which of its media types is sent, what the argument is, and what a form says of its fields.

mod fields;

use serde_json::{Value, json};

use super::super::convert::{Found, Shared, Version, members};
use super::super::library::At;
use super::super::parameters;
use super::super::schema::{Direction, Schemas, Translated};
use super::super::wording;
use crate::execution::{Body, Content};

const LONGEST_DESCRIPTION: usize = 160;

/// The body and the schema of its argument.
pub(super) fn read<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    found: &Found<'a>,
    broken: &mut Vec<String>,
) -> Option<(Body, Translated)> {
    match shared.version {
        Version::Two => of_swagger(shared, schemas, found, broken),
        Version::Three => {
            let value = found.operation.value.get("requestBody").filter(|value| !value.is_null())?;
            match shared.library.follow(At { value, ..found.operation }) {
                Ok(body) => {
                    if !body.value.is_object() {
                        broken.push("the body is not an object; anything is accepted as JSON".into());
                    }
                    Some(of_openapi(shared, schemas, body, broken))
                }
                Err(reason) => {
                    broken.push(format!("the body: {reason}; anything is accepted as JSON"));
                    Some((plain("application/json", Content::Json, false), Translated::of(json!({}))))
                }
            }
        }
    }
}

fn of_openapi<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    body: At<'a>,
    broken: &mut Vec<String>,
) -> (Body, Translated) {
    schemas.spend_on(body.value);
    let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
    let nothing = &Value::Null;
    let media: Vec<(&str, At<'a>)> = members(body.value, "content")
        .map(|(media_type, value)| {
            let at = At { value, ..body };
            (media_type.as_str(), shared.library.follow(at).unwrap_or(At { value: nothing, ..body }))
        })
        .collect();
    media.iter().for_each(|(_, media)| schemas.spend_on(media.value));
    let choice = media.iter().min_by_key(|(media_type, media)| {
        let files = is_multipart(media_type) && media.value.to_string().contains("\"binary\"");
        if files { 1 } else { rank(media_type) }
    });
    let Some((media_type, media)) = choice else {
        return (plain("application/json", Content::Json, required), Translated::of(json!({})));
    };
    let schema = media.value.get("schema").or_else(|| media.value.get("itemSchema"));
    let schema = schema.map(|value| At { value, ..*media });
    let says = body.value.get("description").and_then(Value::as_str);
    let encoding = media.value.get("encoding").unwrap_or(nothing);
    let (body, mut translated) = made(shared, schemas, media_type, schema, encoding, required, broken);
    describe(&mut translated, says);
    (body, translated)
}

/// What a body says about itself, where its schema says nothing.
fn describe(translated: &mut Translated, says: Option<&str>) {
    if let (Value::Object(fields), Some(text)) = (&mut translated.value, says.filter(|text| !text.trim().is_empty())) {
        fields.entry("description").or_insert_with(|| wording::shortened(text, LONGEST_DESCRIPTION).into());
    }
}

fn made<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    media_type: &str,
    schema: Option<At<'a>>,
    encoding: &Value,
    required: bool,
    broken: &mut Vec<String>,
) -> (Body, Translated) {
    let followed = schema.and_then(|at| shared.library.follow(at).ok()).map(|at| at.value);
    let says = |key: &str| followed.and_then(|schema| schema.get(key)).and_then(Value::as_str);
    // A range of media types says nothing about it; the schema may.
    let bytes = media_type.contains('*') && says("format") == Some("binary");
    let content = if bytes { Content::Binary } else { content(media_type) };
    let media_type = concrete(media_type, content);
    let mut translate = |at: Option<At<'a>>| match at {
        Some(at) => schemas.translate(at, Direction::Request, broken),
        None => Translated::of(json!({})),
    };
    match content {
        Content::Json => (plain(media_type, content, required), translate(schema)),
        Content::JsonLines => {
            let translated = translate(schema);
            let listed = says("type") == Some("array");
            let value = if listed { translated.value } else { json!({ "type": "array", "items": translated.value }) };
            (plain(media_type, content, required), Translated::referring(value, translated.references))
        }
        Content::Text => {
            let translated = translate(schema);
            let kind = translated.value.get("type").and_then(Value::as_str);
            let text = matches!(kind, Some("string" | "integer" | "number" | "boolean"));
            let xml = media_type.contains("xml");
            let value = match (text && translated.references.is_empty(), xml) {
                (true, _) => translated.value,
                (false, true) => json!({ "type": "string", "description": "XML" }),
                (false, false) => json!({ "type": "string" }),
            };
            (plain(media_type, content, required), Translated::of(value))
        }
        Content::Binary => (plain(media_type, content, required), Translated::of(fields::base64())),
        Content::Urlencoded | Content::Multipart => {
            let form = fields::read(shared, schemas, schema, encoding, content, broken);
            let body = Body { fields: form.fields, ..plain(media_type, content, required) };
            (body, form.schema)
        }
    }
}

/// Swagger 2.0: one parameter that is the body, or fields of a form.
fn of_swagger<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    found: &Found<'a>,
    broken: &mut Vec<String>,
) -> Option<(Body, Translated)> {
    let all = parameters::all(shared, found, &mut Vec::new());
    let is_in = |at: &&At<'a>, place: &str| at.value.get("in").and_then(Value::as_str) == Some(place);
    let consumes = found.operation.value.get("consumes").or_else(|| shared.root.value.get("consumes"));
    let consumes = consumes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if let Some(body) = all.iter().rev().find(|at| is_in(at, "body")) {
        let media_type = consumes.filter(|media| !is_form(media)).min_by_key(|media| rank(media));
        let required = body.value.get("required").and_then(Value::as_bool).unwrap_or(false);
        let schema = body.value.get("schema").map(|value| At { value, ..*body });
        let media_type = media_type.unwrap_or("application/json");
        let (made, mut translated) = made(shared, schemas, media_type, schema, &Value::Null, required, broken);
        describe(&mut translated, body.value.get("description").and_then(Value::as_str));
        return Some((made, translated));
    }
    let fields: Vec<At<'a>> = all.iter().filter(|at| is_in(at, "formData")).copied().collect();
    if fields.is_empty() {
        return None;
    }
    let forms: Vec<&str> = consumes.filter(|media| is_form(media)).collect();
    let form = fields::of_swagger(schemas, &fields, broken);
    let files = form.fields.values().any(|field| field.binary);
    let multipart = files || forms.first().is_some_and(|media| is_multipart(media));
    let (media_type, content) = match multipart {
        true => ("multipart/form-data", Content::Multipart),
        false => ("application/x-www-form-urlencoded", Content::Urlencoded),
    };
    let required = form.schema.value.get("required").is_some();
    Some((Body { fields: form.fields, ..plain(media_type, content, required) }, form.schema))
}

fn plain(media_type: &str, content: Content, required: bool) -> Body {
    let (argument, media_type) = ("body".to_owned(), media_type.to_owned());
    Body { argument, required, media_type, content, fields: Default::default() }
}

/// Which media type is preferred: the lowest.
fn rank(media_type: &str) -> usize {
    match (content(media_type), essence(media_type).as_str()) {
        (Content::Json, "application/json") => 0,
        (Content::Json, _) => 2,
        (Content::Urlencoded, _) => 3,
        (Content::Multipart, _) => 4,
        (Content::JsonLines, _) => 5,
        (Content::Text, "text/plain") => 6,
        (Content::Text, _) => 7,
        (Content::Binary, _) => 8,
    }
}

fn content(media_type: &str) -> Content {
    let essence = essence(media_type);
    match essence.as_str() {
        "application/x-www-form-urlencoded" => Content::Urlencoded,
        "application/jsonl" | "application/x-ndjson" | "application/x-jsonlines" | "application/json-seq" => {
            Content::JsonLines
        }
        _ if is_multipart(&essence) => Content::Multipart,
        _ if is_json(&essence) => Content::Json,
        _ if essence.starts_with("text/")
            || essence.ends_with("/xml")
            || essence.ends_with("+xml")
            || essence.ends_with("yaml")
            || matches!(essence.as_str(), "application/graphql" | "application/javascript" | "application/sql") =>
        {
            Content::Text
        }
        _ => Content::Binary,
    }
}

/// A media type that can be sent, where the document has a range of them.
fn concrete(media_type: &str, content: Content) -> &str {
    if !media_type.contains('*') {
        return media_type;
    }
    match content {
        Content::Json | Content::JsonLines => "application/json",
        Content::Urlencoded => "application/x-www-form-urlencoded",
        Content::Multipart => "multipart/form-data",
        Content::Text => "text/plain",
        Content::Binary => "application/octet-stream",
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
