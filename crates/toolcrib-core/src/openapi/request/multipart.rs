//! Multipart bodies: a part for each property, or for each item of one that is an array; names and file names quoted as
//! browsers do.

use serde_json::{Map, Value};

use super::body::{LARGEST_FORM, file};
use super::escape::Escape;
use super::style::Writing;
use super::{PreparedBody, document, media, plain, refused, traced};
use crate::error::Result;
use crate::execution::{Body, Field, Form};

pub(super) fn build(body: &Body, content_type: &str, value: &Value, boundary: &str) -> Result<PreparedBody> {
    let mut parts = Parts { argument: &body.argument, boundary, bytes: Vec::new() };
    let is_form = media::essence(content_type) == "multipart/form-data";
    match value {
        Value::Object(properties) => named(&mut parts, body, properties)?,
        // OpenAPI 3.2: an array is parts in this order, of which those of a form have names.
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(properties) if is_form => named(&mut parts, body, properties)?,
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => parts.push(&unnamed(&body.argument, item)?)?,
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(refused(&body.argument, "becomes a multipart form and must be an object"));
        }
    }
    Ok(PreparedBody { content_type: with_boundary(content_type, boundary), bytes: parts.end() })
}

struct Part<'a> {
    name: Option<&'a str>,
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    bytes: Vec<u8>,
}

fn named(parts: &mut Parts<'_>, body: &Body, properties: &Map<String, Value>) -> Result<()> {
    let undescribed = Field::default();
    for (name, value) in properties {
        let field = body.fields.get(name).unwrap_or(&undescribed);
        if let Some(Form::Style { style, explode, .. }) = &field.form
            && !field.binary
        {
            let (argument, escape, room) = (parts.argument, Escape::Nothing, LARGEST_FORM);
            let writing = Writing { argument, name, style: *style, explode: *explode, escape, room };
            let pairs = writing.pairs(value)?;
            for (name, value) in traced(&format!("{argument}.{name}"), field.required, pairs)? {
                let bytes = value.into_bytes();
                parts.push(&Part { name: Some(&name), filename: None, content_type: None, bytes })?;
            }
            continue;
        }
        let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
        let items: Vec<&Value> = items.iter().filter(|item| !item.is_null()).collect();
        for item in traced(&format!("{}.{name}", parts.argument), field.required, items)? {
            parts.push(&described(parts.argument, name, field, item)?)?;
        }
    }
    Ok(())
}

/// A part by the document's word, else by its kind: a file is bytes, an object or an array JSON, anything else text,
/// which needs no content type.
fn described<'a>(argument: &str, name: &'a str, field: &'a Field, value: &'a Value) -> Result<Part<'a>> {
    let declared = match &field.form {
        Some(Form::Content { media_type }) => Some(media_type.as_str()),
        Some(Form::Style { .. }) | None => field.content_type.as_deref(),
    };
    let declared = declared.and_then(media::first_concrete);
    if field.binary {
        let (filename, bytes) = file(&format!("{argument}.{name}"), value)?;
        let content_type = Some(declared.unwrap_or("application/octet-stream"));
        return Ok(Part { name: Some(name), filename: Some(filename.unwrap_or(name)), content_type, bytes });
    }
    let nested = value.is_object() || value.is_array();
    let content_type = declared.or(nested.then_some("application/json"));
    let bytes = content_type.map_or_else(|| plain(value), |content_type| document(value, content_type)).into_bytes();
    Ok(Part { name: Some(name), filename: None, content_type, bytes })
}

/// A part that has no name and of which nothing is said.
fn unnamed<'a>(argument: &str, value: &'a Value) -> Result<Part<'a>> {
    let content_type = match value {
        Value::Object(properties) if is_file(properties) => {
            let (filename, bytes) = file(argument, value)?;
            return Ok(Part { name: None, filename, content_type: Some("application/octet-stream"), bytes });
        }
        Value::Object(_) | Value::Array(_) => "application/json",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => "text/plain",
    };
    Ok(Part { name: None, filename: None, content_type: Some(content_type), bytes: plain(value).into_bytes() })
}

fn is_file(properties: &Map<String, Value>) -> bool {
    properties.contains_key("base64") && properties.keys().all(|key| key == "base64" || key == "name")
}

struct Parts<'a> {
    argument: &'a str,
    boundary: &'a str,
    bytes: Vec<u8>,
}

impl Parts<'_> {
    fn push(&mut self, part: &Part<'_>) -> Result<()> {
        let mut head = format!("--{}\r\n", self.boundary);
        let disposition = match (part.name, part.filename) {
            (Some(name), None) => Some(format!("form-data; name=\"{}\"", quoted(name))),
            (Some(name), Some(file)) => {
                Some(format!("form-data; name=\"{}\"; filename=\"{}\"", quoted(name), quoted(file)))
            }
            (None, Some(file)) => Some(format!("attachment; filename=\"{}\"", quoted(file))),
            (None, None) => None,
        };
        if let Some(disposition) = disposition {
            head.push_str(&format!("Content-Disposition: {disposition}\r\n"));
        }
        if let Some(content_type) = part.content_type {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        if self.bytes.len() + head.len() + part.bytes.len() > LARGEST_FORM {
            return Err(refused(self.argument, "makes the request too large; give it less"));
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(&part.bytes);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        self.bytes
    }
}

fn quoted(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len());
    for character in name.chars() {
        if character == '"' || character.is_control() {
            quoted.push_str(&Escape::Unreserved.value(character.encode_utf8(&mut [0; 4])));
        } else {
            quoted.push(character);
        }
    }
    quoted
}

/// The media type with our boundary, whichever the document has.
fn with_boundary(content_type: &str, boundary: &str) -> String {
    let is_boundary = |piece: &&str| piece.trim().to_ascii_lowercase().starts_with("boundary=");
    let kept: Vec<&str> = content_type.split(';').map(str::trim).filter(|piece| !is_boundary(piece)).collect();
    format!("{}; boundary={boundary}", kept.join("; "))
}
