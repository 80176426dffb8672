//! Maps the parameters and body of a workflow step, named as in the HTTP request, to the arguments of the tool.
//!
//! Arazzo names parameters by location and wire name (`in: query, name: limit`). The tool has one flat list of
//! arguments, in which two parameters of the same name in different locations have different names; the execution
//! specification maps one to the other. Headers, parts of the query and media types of the body that the operation does
//! not declare are sent beside the arguments.

use serde_json::{Map, Value, json};
use toolcrib_connector::UndeclaredParameters;
use toolcrib_core::execution::{BodyEncoding, Operation, OperationParameter, ParameterLocation};
use toolcrib_core::json::{long_integer, plain_text};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use toolcrib_openapi::{body_encoding, essence};
use toolcrib_schema::{array_at, follow_references, non_null_alternatives, parse_typed, property_types, type_name};

use super::target::TargetTool;
use crate::OperationArguments;

/// Maximum number of schemas that are searched for the fields of a form.
const MAX_FIELD_SCHEMAS: usize = 64;

/// Arguments of the tool, and what the step sends beside them.
pub(super) struct StepArguments {
    pub(super) arguments: Value,
    pub(super) undeclared: UndeclaredParameters,
}

/// Builds the arguments. A path parameter or cookie that the operation does not have is an error of the document.
pub(super) fn build_arguments(target: &TargetTool, provided: &OperationArguments) -> Result<StepArguments> {
    let schema: Value = serde_json::from_str(target.input_schema.get()).unwrap_or_default();
    // Parameters by location, with values converted to the type in the schema.
    let mut input = Map::new();
    let mut undeclared = UndeclaredParameters::default();
    let by_location = [
        (ParameterLocation::Path, &provided.path),
        (ParameterLocation::Query, &provided.query),
        (ParameterLocation::Header, &provided.headers),
        (ParameterLocation::Cookie, &provided.cookies),
    ];
    for (location, values) in by_location {
        for (name, value) in values {
            match find_parameter(&target.operation, location, name) {
                Some(parameter) => {
                    let value = coerce_type(value, &schema, &parameter.argument);
                    input.insert(parameter.argument.clone(), value);
                }
                // `Accept` and `Content-Type`: both follow from the operation itself.
                None if location == ParameterLocation::Header && is_content_header(name) => {}
                None if location == ParameterLocation::Header => {
                    undeclared.headers.insert(name.clone(), value.clone());
                }
                None if location == ParameterLocation::Query => {
                    undeclared.query.insert(name.clone(), value.clone());
                }
                None => return Err(unknown_parameter_error(target, location, name)),
            }
        }
    }
    // The whole query string as one parameter (OpenAPI 3.2).
    if let Some(value) = &provided.querystring {
        let parameter =
            target.operation.parameters.iter().find(|parameter| parameter.location == ParameterLocation::Querystring);
        let parameter =
            parameter.ok_or_else(|| unknown_parameter_error(target, ParameterLocation::Querystring, "querystring"))?;
        input.insert(parameter.argument.clone(), value.clone());
    }
    // The body is passed on unchanged, apart from the types in forms; the call validates it against the tool's schema.
    if let Some(body) = &provided.body {
        let body_parameter = target.operation.body.as_ref().ok_or_else(|| {
            let message = format!("the step has a request body, but `{}` accepts none", target.name);
            Error::new(Code::ToolInvalidInput, message)
        })?;
        let content = body.content_type.as_deref().map_or(body_parameter.content, body_encoding);
        let is_form = matches!(content, BodyEncoding::Urlencoded | BodyEncoding::Multipart);
        let argument = &body_parameter.argument;
        let value = if is_form { coerce_fields(&body.value, &schema, argument) } else { body.value.clone() };
        input.insert(argument.clone(), value);
        if let Some(content_type) = &body.content_type {
            match (find_media_type(&target.operation, content_type), &target.operation.body_choice) {
                (Some(media_type), Some(choice)) => {
                    input.insert(choice.argument.clone(), media_type.into());
                }
                (Some(_), None) => {}
                (None, _) => undeclared.content_type = Some(content_type.clone()),
            }
        }
    }
    Ok(StepArguments { arguments: Value::Object(input), undeclared })
}

/// Finds a parameter by location and name; header names are case-insensitive.
fn find_parameter<'a>(
    operation: &'a Operation,
    location: ParameterLocation,
    name: &str,
) -> Option<&'a OperationParameter> {
    operation.parameters.iter().filter(|parameter| parameter.location == location).find(|parameter| match location {
        ParameterLocation::Header => parameter.name.eq_ignore_ascii_case(name),
        ParameterLocation::Path
        | ParameterLocation::Query
        | ParameterLocation::Cookie
        | ParameterLocation::Querystring => parameter.name == name,
    })
}

/// Converts the fields of a form to the types in the schema of the body. A payload in form encoding has only texts.
fn coerce_fields(body: &Value, schema: &Value, argument: &str) -> Value {
    let Value::Object(fields) = body else { return body.clone() };
    let schemas = field_schemas(schema, &schema["properties"][argument]);
    let property = |name: &String| schemas.iter().find_map(|schema| schema.get("properties")?.get(name));
    let properties: Map<String, Value> =
        fields.keys().filter_map(|name| Some((name.clone(), property(name)?.clone()))).collect();
    let field_schema = json!({ "properties": properties, "$defs": schema.get("$defs") });
    fields.iter().map(|(name, value)| (name.clone(), coerce_type(value, &field_schema, name))).collect()
}

/// Schemas that may declare fields of a body: its alternatives, such as several media types, members of `allOf`, and the
/// schema itself.
fn field_schemas<'a>(root: &'a Value, body: &'a Value) -> Vec<&'a Value> {
    let mut schemas = vec![follow_references(root, body)];
    let mut position = 0;
    while position < schemas.len() && schemas.len() < MAX_FIELD_SCHEMAS {
        let schema = schemas[position];
        position += 1;
        let members = array_at(schema, "allOf").iter().take(MAX_FIELD_SCHEMAS);
        let members = members.map(|member| follow_references(root, member));
        for member in non_null_alternatives(root, schema).into_iter().chain(members) {
            // A definition may refer to itself.
            if !schemas.iter().any(|known| std::ptr::eq(*known, member)) {
                schemas.push(member);
            }
        }
    }
    // The others are more specific than the schema around them.
    schemas.rotate_left(1);
    schemas
}

/// Finds a media type of the body, as the operation declares it: an equal one, else one that differs in parameters such
/// as `charset`.
fn find_media_type<'a>(operation: &'a Operation, content_type: &str) -> Option<&'a str> {
    let alternatives = operation.body_choice.iter().flat_map(|choice| &choice.alternatives);
    let bodies = operation.body.iter().chain(alternatives.map(|alternative| &alternative.body));
    let declared: Vec<&str> = bodies.map(|body| body.media_type.as_str()).collect();
    let equal = declared.iter().find(|media_type| media_type.eq_ignore_ascii_case(content_type.trim()));
    let similar = || declared.iter().find(|media_type| essence(media_type) == essence(content_type));
    equal.or_else(similar).copied()
}

/// Converts between text and the type in the tool's schema. Expressions over responses and templates yield text where
/// the schema wants a number, or the other way round; on the wire both are text.
fn coerce_type(value: &Value, schema: &Value, argument: &str) -> Value {
    let types = property_types(schema, argument);
    let accepts = |kinds: &[&str]| types.iter().any(|kind| kinds.contains(&kind.as_str()));
    match value {
        Value::String(_) if long_integer(value).is_some() => {
            let is_text = accepts(&["string"]) && !accepts(&["number", "integer"]);
            if is_text { plain_text(value).into() } else { value.clone() }
        }
        Value::String(text) if !accepts(&["string"]) => {
            let parsed = parse_typed(schema, argument, text.trim());
            if type_name(&parsed) == "string" { value.clone() } else { parsed }
        }
        Value::Number(_) if accepts(&["string"]) && !accepts(&["number", "integer"]) => {
            Value::String(value.to_string())
        }
        Value::Bool(_) if accepts(&["string"]) && !accepts(&["boolean"]) => Value::String(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            value.clone()
        }
    }
}

/// Headers that an Arazzo document may set although OpenAPI forbids to declare them as parameters.
fn is_content_header(header: &str) -> bool {
    ["accept", "content-type"].iter().any(|name| header.eq_ignore_ascii_case(name))
}

/// Error for a parameter that the operation does not declare.
fn unknown_parameter_error(target: &TargetTool, location: ParameterLocation, name: &str) -> Error {
    let tool = &target.name;
    let name = sanitize_truncated(name, 80);
    let location = match location {
        ParameterLocation::Path => "path",
        ParameterLocation::Query | ParameterLocation::Querystring => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    };
    Error::new(Code::ToolInvalidInput, format!("`{tool}` has no {location} parameter `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_forms_are_converted_to_the_types_in_the_schema() {
        let form = json!({ "properties": { "n": { "$ref": "#/$defs/n" }, "s": { "type": "string" } } });
        let defs = json!({ "n": { "type": "integer" }, "form": form });
        let alternatives = json!({ "anyOf": [{ "type": "string" }, form] });
        for body in [
            form.clone(),
            json!({ "$ref": "#/$defs/form" }),
            json!({ "allOf": [{ "$ref": "#/$defs/form" }, { "properties": { "other": {} } }] }),
            json!({ "allOf": [alternatives] }),
            json!({ "anyOf": [{ "type": "string" }, { "allOf": [{ "$ref": "#/$defs/form" }] }] }),
            json!({ "allOf": [{ "$ref": "#/properties/body" }, form] }),
            alternatives,
        ] {
            let schema = json!({ "properties": { "body": body }, "$defs": defs });
            let coerced = coerce_fields(&json!({ "n": "7", "s": 7, "x": "7" }), &schema, "body");
            assert_eq!(coerced, json!({ "n": 7, "s": "7", "x": "7" }), "{schema}");
        }
        assert_eq!(coerce_fields(&json!("n=7"), &json!({}), "body"), json!("n=7"));
    }

    #[test]
    fn values_are_converted_to_the_types_in_the_schema() {
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
