//! Serialises `application/x-www-form-urlencoded`, in bodies and queries. A space becomes `%20`, which all parsers
//! accept as well as `+`. Also serialises forms within a query (`in: querystring`, or a parameter with form content).

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolcrib_core::error::Result;
use toolcrib_core::execution::{BodyField, ParameterStyle, Serialization};
use toolcrib_core::json::long_integer;

use super::escape::{self, EscapeMode};
use super::style::ValueWriter;
use super::{invalid_argument, require_nonempty, serialize_as, to_plain_text};

/// Media type of a form without files.
pub(super) const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// Serialises a form without declared fields.
pub(super) fn serialize_plain_form(argument: &str, value: &Value, max_bytes: usize) -> Result<String> {
    serialize_form(argument, value, &BTreeMap::new(), max_bytes)
}

/// Serialises a form. A string is taken as already serialised.
pub(super) fn serialize_form(
    argument: &str,
    value: &Value,
    fields: &BTreeMap<String, BodyField>,
    max_bytes: usize,
) -> Result<String> {
    let properties = match value {
        Value::Object(properties) => properties,
        Value::String(text) if long_integer(value).is_none() => return Ok(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(invalid_argument(argument, "is sent as a form and must be an object"));
        }
    };
    let pairs = form_pairs(argument, properties, fields, max_bytes)?;
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(pairs.join("&"))
}

/// Returns the encoded pairs of all properties, of at most `max_bytes` together.
fn form_pairs(
    argument: &str,
    properties: &Map<String, Value>,
    fields: &BTreeMap<String, BodyField>,
    max_bytes: usize,
) -> Result<Vec<(String, String)>> {
    let default_field = BodyField::default();
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut remaining = max_bytes;
    for (name, value) in properties {
        let field = fields.get(name).unwrap_or(&default_field);
        // All fields together share the size limit.
        let writer = field_writer(argument, name, field, remaining);
        let field_pairs = match &field.serialization {
            Some(Serialization::Style { .. }) => writer.write_pairs(value)?,
            Some(Serialization::Content { media_type }) => {
                writer.write_pairs(&field_contents(value, field, Some(media_type)))?
            }
            None => writer.write_pairs(&field_contents(value, field, field.content_type.as_deref()))?,
        };
        let field_pairs = require_nonempty(&format!("{argument}.{name}"), field.required, field_pairs)?;
        let size: usize = field_pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        remaining = remaining.saturating_sub(size);
        pairs.extend(field_pairs);
    }
    Ok(pairs)
}

/// Returns the writer of a field, which is serialised like a query parameter. By default arrays are repeated.
fn field_writer<'a>(argument: &'a str, name: &'a str, field: &BodyField, max_bytes: usize) -> ValueWriter<'a> {
    // Without a style, a form is written like an exploded query parameter.
    let (style, explode, allow_reserved) = match &field.serialization {
        Some(Serialization::Style { style, explode, allow_reserved }) => (*style, *explode, *allow_reserved),
        Some(Serialization::Content { .. }) | None => (ParameterStyle::Form, true, false),
    };
    let escape = if allow_reserved { escape::RESERVED_IN_QUERY } else { EscapeMode::Unreserved };
    ValueWriter { argument, name, style, explode, escape, max_bytes }
}

/// Serialises the values of a field without a style: as the declared media type, else as text, and objects as JSON. The
/// items of an array are serialised one by one.
fn field_contents(value: &Value, field: &BodyField, media_type: Option<&str>) -> Value {
    let text = |value: &Value| match value {
        Value::Null => Value::Null,
        // A form is text, so base64 content is not decoded.
        Value::Object(file) if field.binary => file.get("base64").cloned().unwrap_or_default(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Value::String(media_type.map_or_else(|| to_plain_text(value), |media_type| serialize_as(value, media_type)))
        }
    };
    match value {
        Value::Array(items) => Value::Array(items.iter().map(text).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => text(value),
    }
}
