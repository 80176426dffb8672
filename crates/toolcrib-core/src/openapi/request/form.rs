//! `application/x-www-form-urlencoded`: in bodies, and where a query is one. A space is `%20`, which every reader of forms
//! knows as well as `+`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::escape::{self, Escape};
use super::style::Writing;
use super::{document, plain, refused, traced};
use crate::error::Result;
use crate::execution::{Field, Form, Style};

pub(super) const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// A form of which the document says nothing more.
pub(super) fn plain_text(argument: &str, value: &Value, room: usize) -> Result<String> {
    text(argument, value, &BTreeMap::new(), room)
}

/// A string is a form that is written already.
pub(super) fn text(argument: &str, value: &Value, fields: &BTreeMap<String, Field>, room: usize) -> Result<String> {
    let properties = match value {
        Value::Object(properties) => properties,
        Value::String(text) => return Ok(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(refused(argument, "becomes a form and must be an object"));
        }
    };
    let pairs = pairs(argument, properties, fields, room)?;
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(pairs.join("&"))
}

fn pairs(
    argument: &str,
    properties: &Map<String, Value>,
    fields: &BTreeMap<String, Field>,
    room: usize,
) -> Result<Vec<(String, String)>> {
    let undescribed = Field::default();
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut left = room;
    for (name, value) in properties {
        let field = fields.get(name).unwrap_or(&undescribed);
        let writing = writing(argument, name, field, left);
        let made = match &field.form {
            Some(Form::Style { .. }) => writing.pairs(value)?,
            Some(Form::Content { media_type }) => writing.pairs(&contents(value, field, Some(media_type)))?,
            None => writing.pairs(&contents(value, field, field.content_type.as_deref()))?,
        };
        let made = traced(&format!("{argument}.{name}"), field.required, made)?;
        let size: usize = made.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        left = left.saturating_sub(size);
        pairs.extend(made);
    }
    Ok(pairs)
}

/// As a parameter of a query is written; an array is repeated where nothing is said.
fn writing<'a>(argument: &'a str, name: &'a str, field: &Field, room: usize) -> Writing<'a> {
    let (style, explode, allow_reserved) = match &field.form {
        Some(Form::Style { style, explode, allow_reserved }) => (*style, *explode, *allow_reserved),
        Some(Form::Content { .. }) | None => (Style::Form, true, false),
    };
    let escape = if allow_reserved { escape::RESERVED_IN_QUERY } else { Escape::Unreserved };
    Writing { argument, name, style, explode, escape, room }
}

/// Where no style is given, each value is a document of its own: of the type that the document names, else text, and JSON
/// of what is no text. Of an array each item is one.
fn contents(value: &Value, field: &Field, media_type: Option<&str>) -> Value {
    let text = |value: &Value| match value {
        Value::Null => Value::Null,
        // A form is text: what is base64 stays so.
        Value::Object(file) if field.binary => file.get("base64").cloned().unwrap_or_default(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Value::String(media_type.map_or_else(|| plain(value), |media_type| document(value, media_type)))
        }
    };
    match value {
        Value::Array(items) => Value::Array(items.iter().map(text).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => text(value),
    }
}
