//! The body, by what it is made of, and its media type.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::{PreparedBody, form, media, multipart, plain, refused};
use crate::error::Result;
use crate::execution::{Body, Content, Operation};

/// How large the form or the parts may become. Names repeat in them, so a small argument could make a huge body.
pub(super) const LARGEST_FORM: usize = 64 * 1024 * 1024;

/// Agents write base64 with padding and without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn build(
    operation: &Operation,
    arguments: &Map<String, Value>,
    boundary: &str,
) -> Result<Option<PreparedBody>> {
    let Some(body) = &operation.body else { return Ok(None) };
    let value = match arguments.get(&body.argument) {
        Some(Value::Null) | None if !body.required => return Ok(None),
        // A body that must be there can be JSON's null, but nothing else that is nothing.
        Some(Value::Null) if body.content == Content::Json => &Value::Null,
        Some(Value::Null) | None => return Err(refused(&body.argument, "is required; give it a value")),
        Some(value) => value,
    };
    let content_type = content_type(body);
    Ok(Some(match body.content {
        Content::Json => PreparedBody { content_type, bytes: value.to_string().into_bytes() },
        Content::JsonLines => PreparedBody { bytes: lines(value, &content_type).into_bytes(), content_type },
        Content::Text => PreparedBody { content_type, bytes: plain(value).into_bytes() },
        Content::Binary => PreparedBody { content_type, bytes: file(&body.argument, value)?.1 },
        Content::Urlencoded => {
            let text = form::text(&body.argument, value, &body.fields, LARGEST_FORM)?;
            PreparedBody { content_type, bytes: text.into_bytes() }
        }
        Content::Multipart => multipart::build(body, &content_type, value, boundary)?,
    }))
}

/// The document's, parameters and all. One that is a range, or none at all, gives way to what the content is.
fn content_type(body: &Body) -> String {
    let fallback = match body.content {
        Content::Json => "application/json",
        Content::JsonLines => "application/x-ndjson",
        Content::Urlencoded => form::MEDIA_TYPE,
        Content::Multipart => "multipart/form-data",
        Content::Text => "text/plain",
        Content::Binary => "application/octet-stream",
    };
    let is_one = media::is_sound(&body.media_type) && !media::essence(&body.media_type).contains('*');
    if is_one { body.media_type.clone() } else { fallback.to_owned() }
}

/// One JSON text a line; in a JSON text sequence (RFC 7464) each has its mark before it.
fn lines(value: &Value, content_type: &str) -> String {
    let mark = if media::essence(content_type).ends_with("json-seq") { "\u{1e}" } else { "" };
    let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
    items.iter().map(|item| format!("{mark}{item}\n")).collect()
}

/// A file: base64, or `{"name","base64"}`. With its name, where it has one, and what is in it.
pub(super) fn file<'a>(argument: &str, value: &'a Value) -> Result<(Option<&'a str>, Vec<u8>)> {
    let (name, text) = match value {
        Value::String(text) => (None, Some(text.as_str())),
        Value::Object(file) => (file.get("name").and_then(Value::as_str), file.get("base64").and_then(Value::as_str)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => (None, None),
    };
    let Some(text) = text else {
        return Err(refused(argument, "is a file: give it in base64, or as {\"name\",\"base64\"}"));
    };
    // The alphabet for addresses and the line breaks of mail are base64 too.
    let standard: String = text
        .chars()
        .filter(|character| !matches!(character, '\r' | '\n'))
        .map(|character| match character {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    let bytes = BASE64.decode(standard).map_err(|_| refused(argument, "is not base64; encode what is in the file"))?;
    Ok((name, bytes))
}
