//! From what a step gives, by the names that go on the wire, to the arguments of the tool.

use serde_json::{Map, Value};
use toolcrib_core::arazzo::OperationArguments;
use toolcrib_core::execution::{Operation, OperationParameter, ParameterLocation};
use toolcrib_core::schema::{parse_typed, property_types};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

use super::target::TargetTool;

pub(super) fn build_arguments(target: &TargetTool, given: &OperationArguments) -> Result<Value> {
    let schema: Value = serde_json::from_str(target.input_schema.get()).unwrap_or_default();
    let mut input = Map::new();
    let places = [
        (ParameterLocation::Path, &given.path),
        (ParameterLocation::Query, &given.query),
        (ParameterLocation::Header, &given.headers),
        (ParameterLocation::Cookie, &given.cookies),
    ];
    for (place, values) in places {
        for (name, value) in values {
            match find_parameter(&target.operation, place, name) {
                Some(parameter) => {
                    let value = coerce_type(value, &schema, &parameter.argument);
                    input.insert(parameter.argument.clone(), value);
                }
                // The operation itself says what they are.
                None if place == ParameterLocation::Header && is_content_header(name) => {}
                None => return Err(unknown_parameter_error(target, place, name)),
            }
        }
    }
    if let Some(value) = &given.querystring {
        let parameter =
            target.operation.parameters.iter().find(|parameter| parameter.location == ParameterLocation::Querystring);
        let parameter =
            parameter.ok_or_else(|| unknown_parameter_error(target, ParameterLocation::Querystring, "querystring"))?;
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

fn find_parameter<'a>(
    operation: &'a Operation,
    place: ParameterLocation,
    name: &str,
) -> Option<&'a OperationParameter> {
    operation.parameters.iter().filter(|parameter| parameter.location == place).find(|parameter| match place {
        ParameterLocation::Header => parameter.name.eq_ignore_ascii_case(name),
        ParameterLocation::Path
        | ParameterLocation::Query
        | ParameterLocation::Cookie
        | ParameterLocation::Querystring => parameter.name == name,
    })
}

/// Text that was cut out of an answer or a template is the number that the document wants, and the other way round: on
/// the wire both are text.
fn coerce_type(value: &Value, schema: &Value, argument: &str) -> Value {
    let types = property_types(schema, argument);
    let is = |kinds: &[&str]| types.iter().any(|known| kinds.contains(&known.as_str()));
    match value {
        Value::String(text) if !is(&["string"]) => {
            let read = parse_typed(schema, argument, text.trim());
            if read.is_string() { value.clone() } else { read }
        }
        Value::Number(_) if is(&["string"]) && !is(&["number", "integer"]) => Value::String(value.to_string()),
        Value::Bool(_) if is(&["string"]) && !is(&["boolean"]) => Value::String(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            value.clone()
        }
    }
}

fn is_content_header(header: &str) -> bool {
    ["accept", "content-type"].iter().any(|name| header.eq_ignore_ascii_case(name))
}

fn unknown_parameter_error(target: &TargetTool, place: ParameterLocation, name: &str) -> Error {
    let source = &target.source;
    let tool = &target.name;
    let name = sanitize_truncated(name, 80);
    let place = match place {
        ParameterLocation::Path => "path",
        ParameterLocation::Query | ParameterLocation::Querystring => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    };
    let hint = match name.eq_ignore_ascii_case("authorization") {
        true => format!("; credentials stand in `auth` of the source `{source}`"),
        false => String::new(),
    };
    Error::new(Code::ToolInvalidInput, format!("`{tool}` has no {place} parameter `{name}`{hint}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_fit_the_types_that_a_schema_leads_to() {
        let schema = json!({
            "properties": {
                "n": { "$ref": "#/$defs/n" }, "m": { "type": ["integer", "null"] },
                "a": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] }, "s": { "$ref": "#/$defs/s" },
                "both": { "type": ["string", "integer"] }, "any": {}, "l": { "type": "array", "items": { "type": "integer" } },
            },
            "$defs": { "n": { "type": "integer" }, "s": { "type": "string" } },
        });
        for (argument, value, expected) in [
            ("n", json!(" 7 "), json!(7)),
            ("n", json!("seven"), json!("seven")),
            ("m", json!("7"), json!(7)),
            ("a", json!("true"), json!(true)),
            ("s", json!(7), json!("7")),
            ("s", json!(true), json!("true")),
            ("s", json!("7"), json!("7")),
            ("both", json!("7"), json!("7")),
            ("both", json!(7), json!(7)),
            ("any", json!("7"), json!("7")),
            ("l", json!("1,2"), json!([1, 2])),
        ] {
            assert_eq!(coerce_type(&value, &schema, argument), expected, "{argument} {value}");
        }
    }
}
