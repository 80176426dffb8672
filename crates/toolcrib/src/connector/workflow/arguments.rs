//! From what a step gives, by the names that go on the wire, to the arguments of the tool.

use serde_json::{Map, Value};
use toolcrib_core::arazzo::Arguments;
use toolcrib_core::execution::{Operation, Parameter, Place};
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};

use super::sources::Target;

pub(super) fn arguments(target: &Target, given: &Arguments) -> Result<Value> {
    let schema: Value = serde_json::from_str(target.input_schema.get()).unwrap_or_default();
    let mut input = Map::new();
    let places = [
        (Place::Path, &given.path),
        (Place::Query, &given.query),
        (Place::Header, &given.headers),
        (Place::Cookie, &given.cookies),
    ];
    for (place, values) in places {
        for (name, value) in values {
            match parameter(&target.operation, place, name) {
                Some(parameter) => {
                    let value = fitted(value, &schema["properties"][&parameter.argument]);
                    input.insert(parameter.argument.clone(), value);
                }
                // The operation itself says what they are.
                None if place == Place::Header && is_content(name) => {}
                None => return Err(unknown(target, place, name)),
            }
        }
    }
    if let Some(value) = &given.querystring {
        let parameter = target.operation.parameters.iter().find(|parameter| parameter.place == Place::Querystring);
        let parameter = parameter.ok_or_else(|| unknown(target, Place::Querystring, "querystring"))?;
        input.insert(parameter.argument.clone(), value.clone());
    }
    if let Some(body) = &given.body {
        let wanted = target.operation.body.as_ref().ok_or_else(|| {
            let message = format!("the step gives a body, and `{}` takes none", target.name);
            Error::new(Code::ToolInvalidInput, message)
        })?;
        input.insert(wanted.argument.clone(), body.value.clone());
    }
    Ok(Value::Object(input))
}

fn parameter<'a>(operation: &'a Operation, place: Place, name: &str) -> Option<&'a Parameter> {
    operation.parameters.iter().filter(|parameter| parameter.place == place).find(|parameter| match place {
        Place::Header => parameter.name.eq_ignore_ascii_case(name),
        Place::Path | Place::Query | Place::Cookie | Place::Querystring => parameter.name == name,
    })
}

/// Text that was cut out of an answer or a template is the number that the document wants, and the other way round: on
/// the wire both are text.
fn fitted(value: &Value, schema: &Value) -> Value {
    let is = |kind: &str| schema["type"] == kind;
    match value {
        Value::String(text) if is("integer") || is("number") || is("boolean") => {
            let read: Option<Value> = serde_json::from_str(text.trim()).ok();
            read.filter(|read| if is("boolean") { read.is_boolean() } else { read.is_number() })
                .unwrap_or_else(|| value.clone())
        }
        Value::Number(_) | Value::Bool(_) if is("string") => Value::String(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            value.clone()
        }
    }
}

fn is_content(header: &str) -> bool {
    ["accept", "content-type"].iter().any(|name| header.eq_ignore_ascii_case(name))
}

fn unknown(target: &Target, place: Place, name: &str) -> Error {
    let (source, tool, name) = (&target.source, &target.name, shown_short(name, 80));
    let place = match place {
        Place::Path => "path",
        Place::Query | Place::Querystring => "query",
        Place::Header => "header",
        Place::Cookie => "cookie",
    };
    let hint = match name.eq_ignore_ascii_case("authorization") {
        true => format!("; credentials stand in `auth` of the source `{source}`"),
        false => String::new(),
    };
    Error::new(Code::ToolInvalidInput, format!("`{tool}` has no {place} parameter `{name}`{hint}"))
}
