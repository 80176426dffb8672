//! `application/x-www-form-urlencoded`: in bodies, and where a query is one. A space is `%20`, which every reader of forms
//! knows as well as `+`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::escape::{self, EscapeMode};
use super::style::ValueWriter;
use super::{invalid_argument, require_nonempty, serialize_as, to_plain_text};
use crate::error::Result;
use crate::execution::{FormField, ParameterStyle, Serialization};

pub(super) const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// A form of which the document says nothing more.
pub(super) fn serialize_plain_form(argument: &str, value: &Value, room: usize) -> Result<String> {
    serialize_form(argument, value, &BTreeMap::new(), room)
}

/// A string is a form that is written already.
pub(super) fn serialize_form(
    argument: &str,
    value: &Value,
    fields: &BTreeMap<String, FormField>,
    room: usize,
) -> Result<String> {
    let properties = match value {
        Value::Object(properties) => properties,
        Value::String(text) => return Ok(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(invalid_argument(argument, "becomes a form and must be an object"));
        }
    };
    let pairs = form_pairs(argument, properties, fields, room)?;
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(pairs.join("&"))
}

fn form_pairs(
    argument: &str,
    properties: &Map<String, Value>,
    fields: &BTreeMap<String, FormField>,
    room: usize,
) -> Result<Vec<(String, String)>> {
    let undescribed = FormField::default();
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut left = room;
    for (name, value) in properties {
        let field = fields.get(name).unwrap_or(&undescribed);
        let writing = field_writer(argument, name, field, left);
        let made = match &field.serialization {
            Some(Serialization::Style { .. }) => writing.to_pairs(value)?,
            Some(Serialization::Content { media_type }) => {
                writing.to_pairs(&field_contents(value, field, Some(media_type)))?
            }
            None => writing.to_pairs(&field_contents(value, field, field.content_type.as_deref()))?,
        };
        let made = require_nonempty(&format!("{argument}.{name}"), field.required, made)?;
        let size: usize = made.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        left = left.saturating_sub(size);
        pairs.extend(made);
    }
    Ok(pairs)
}

/// As a parameter of a query is written; an array is repeated where nothing is said.
fn field_writer<'a>(argument: &'a str, name: &'a str, field: &FormField, room: usize) -> ValueWriter<'a> {
    let (style, explode, allow_reserved) = match &field.serialization {
        Some(Serialization::Style { style, explode, allow_reserved }) => (*style, *explode, *allow_reserved),
        Some(Serialization::Content { .. }) | None => (ParameterStyle::Form, true, false),
    };
    let escape = if allow_reserved { escape::RESERVED_IN_QUERY } else { EscapeMode::Unreserved };
    ValueWriter { argument, name, style, explode, escape, max_bytes: room }
}

/// Where no style is given, each value is a document of its own: of the type that the document names, else text, and JSON
/// of what is no text. Of an array each item is one.
fn field_contents(value: &Value, field: &FormField, media_type: Option<&str>) -> Value {
    let text = |value: &Value| match value {
        Value::Null => Value::Null,
        // A form is text: what is base64 stays so.
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
