//! Builds multipart bodies: a part for each property, or for each item of an array. Names and file names are quoted as
//! browsers do.
//!
//! ```text
//! --BOUNDARY
//! Content-Disposition: form-data; name="photo"; filename="a.png"
//! Content-Type: image/png
//!
//! (bytes)
//! --BOUNDARY--
//! ```

use serde_json::{Map, Value};
use toolcrib_core::error::Result;
use toolcrib_core::execution::{BodyField, BodySpec, Serialization};

use super::body::{MAX_FORM_BYTES, decode_file};
use super::escape::EscapeMode;
use super::style::ValueWriter;
use super::{PreparedBody, invalid_argument, media_type, require_nonempty, serialize_as, to_plain_text};

/// Builds a multipart body.
pub(super) fn build_multipart(
    body: &BodySpec,
    content_type: &str,
    value: &Value,
    boundary: &str,
) -> Result<PreparedBody> {
    let mut builder = MultipartBuilder { argument: &body.argument, boundary, bytes: Vec::new() };
    let is_form = media_type::essence(content_type) == "multipart/form-data";
    match value {
        Value::Object(properties) => push_properties(&mut builder, body, properties)?,
        // OpenAPI 3.2: an array lists the parts in order; those of a form have names.
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(properties) if is_form => push_properties(&mut builder, body, properties)?,
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => builder.push(&unnamed_part(&body.argument, item)?)?,
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(invalid_argument(&body.argument, "is sent as a multipart form and must be an object"));
        }
    }
    Ok(PreparedBody { content_type: with_boundary(content_type, boundary), bytes: builder.finish() })
}

/// One part with its headers.
struct MultipartPart<'a> {
    name: Option<&'a str>,
    /// Makes the part a file.
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    bytes: Vec<u8>,
}

/// Adds the parts of all properties of an object.
fn push_properties(builder: &mut MultipartBuilder<'_>, body: &BodySpec, properties: &Map<String, Value>) -> Result<()> {
    let default_field = BodyField::default();
    for (name, value) in properties {
        let field = body.fields.get(name).unwrap_or(&default_field);
        // A declared style writes the field as pairs, of which each is a part.
        if let Some(Serialization::Style { style, explode, .. }) = &field.serialization
            && !field.binary
        {
            let argument = builder.argument;
            let escape = EscapeMode::Unescaped;
            let max_bytes = MAX_FORM_BYTES;
            let writer = ValueWriter { argument, name, style: *style, explode: *explode, escape, max_bytes };
            let pairs = writer.write_pairs(value)?;
            for (name, value) in require_nonempty(&format!("{argument}.{name}"), field.required, pairs)? {
                let bytes = value.into_bytes();
                builder.push(&MultipartPart { name: Some(&name), filename: None, content_type: None, bytes })?;
            }
            continue;
        }
        // Without a style, every item of an array is a part of its own.
        let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
        let items: Vec<&Value> = items.iter().filter(|item| !item.is_null()).collect();
        for item in require_nonempty(&format!("{}.{name}", builder.argument), field.required, items)? {
            builder.push(&property_part(builder.argument, name, field, item)?)?;
        }
    }
    Ok(())
}

/// Builds the part of a property. Without a declared type, a file is bytes, an object or array is JSON, and anything
/// else is text, which needs no content type.
fn property_part<'a>(
    argument: &str,
    name: &'a str,
    field: &'a BodyField,
    value: &'a Value,
) -> Result<MultipartPart<'a>> {
    let declared = match &field.serialization {
        Some(Serialization::Content { media_type }) => Some(media_type.as_str()),
        Some(Serialization::Style { .. }) | None => field.content_type.as_deref(),
    };
    // The declared type may be a list or a range; only a concrete one can be sent.
    let declared = declared.and_then(media_type::first_concrete);
    if field.binary {
        let (filename, bytes) = decode_file(&format!("{argument}.{name}"), value)?;
        let content_type = Some(declared.unwrap_or("application/octet-stream"));
        // Servers recognise a file by its file name, so it always gets one.
        return Ok(MultipartPart { name: Some(name), filename: Some(filename.unwrap_or(name)), content_type, bytes });
    }
    let is_nested = value.is_object() || value.is_array();
    let content_type = declared.or(is_nested.then_some("application/json"));
    let bytes = content_type
        .map_or_else(|| to_plain_text(value), |content_type| serialize_as(value, content_type))
        .into_bytes();
    Ok(MultipartPart { name: Some(name), filename: None, content_type, bytes })
}

/// Builds a part without a name and without a declaration.
fn unnamed_part<'a>(argument: &str, value: &'a Value) -> Result<MultipartPart<'a>> {
    let content_type = match value {
        Value::Object(properties) if is_file(properties) => {
            let (filename, bytes) = decode_file(argument, value)?;
            return Ok(MultipartPart { name: None, filename, content_type: Some("application/octet-stream"), bytes });
        }
        Value::Object(_) | Value::Array(_) => "application/json",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => "text/plain",
    };
    Ok(MultipartPart {
        name: None,
        filename: None,
        content_type: Some(content_type),
        bytes: to_plain_text(value).into_bytes(),
    })
}

/// Returns whether an object is a file: `{"name","base64"}`.
fn is_file(properties: &Map<String, Value>) -> bool {
    properties.contains_key("base64") && properties.keys().all(|key| key == "base64" || key == "name")
}

/// Writes parts into a body of bounded size.
struct MultipartBuilder<'a> {
    /// Name of the argument, for errors.
    argument: &'a str,
    boundary: &'a str,
    bytes: Vec<u8>,
}

impl MultipartBuilder<'_> {
    /// Appends a part, unless the body would exceed [`MAX_FORM_BYTES`].
    fn push(&mut self, part: &MultipartPart<'_>) -> Result<()> {
        let mut head = format!("--{}\r\n", self.boundary);
        // Parts of other multipart types than forms have no name.
        let disposition = match (part.name, part.filename) {
            (Some(name), None) => Some(format!("form-data; name=\"{}\"", quote_name(name))),
            (Some(name), Some(file)) => {
                Some(format!("form-data; name=\"{}\"; filename=\"{}\"", quote_name(name), quote_name(file)))
            }
            (None, Some(file)) => Some(format!("attachment; filename=\"{}\"", quote_name(file))),
            (None, None) => None,
        };
        if let Some(disposition) = disposition {
            head.push_str(&format!("Content-Disposition: {disposition}\r\n"));
        }
        if let Some(content_type) = part.content_type {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        // Checked before copying, since names repeat for every item.
        if self.bytes.len() + head.len() + part.bytes.len() > MAX_FORM_BYTES {
            return Err(invalid_argument(self.argument, "makes the request too large; shorten it"));
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(&part.bytes);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Writes the closing boundary and returns the body.
    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        self.bytes
    }
}

/// Percent-encodes quotes and control characters in a quoted name. A line break in a name would begin another header of
/// the part.
fn quote_name(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len());
    for character in name.chars() {
        if character == '"' || character.is_control() {
            quoted.push_str(&EscapeMode::Unreserved.encode_value(character.encode_utf8(&mut [0; 4])));
        } else {
            quoted.push(character);
        }
    }
    quoted
}

/// Sets the boundary of a media type, replacing the one of the document.
fn with_boundary(content_type: &str, boundary: &str) -> String {
    let is_boundary = |piece: &&str| piece.trim().to_ascii_lowercase().starts_with("boundary=");
    let parameters: Vec<&str> = content_type.split(';').map(str::trim).filter(|piece| !is_boundary(piece)).collect();
    format!("{}; boundary={boundary}", parameters.join("; "))
}
