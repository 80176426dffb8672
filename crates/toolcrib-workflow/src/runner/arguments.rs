//! Maps the parameters and body of a workflow step, named as in the HTTP request, to the arguments of the tool.
//!
//! Arazzo names parameters by location and wire name (`in: query, name: limit`). The tool has one flat list of
//! arguments, in which two parameters of the same name in different locations have different names; the execution
//! specification maps one to the other. Headers, parts of the query and media types of the body that the operation does
//! not declare are sent beside the arguments.

use serde_json::{Map, Value, json};
use toolcrib_connector::UndeclaredParameters;
use toolcrib_core::execution::{BodyEncoding, BodySpec, Operation, OperationParameter, ParameterLocation};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Error, Result};
use toolcrib_openapi::body_encoding;
use toolcrib_openapi::request::media_type::essence;
use toolcrib_schema::{array_at, follow_references, non_null_alternatives};

use super::step::document_error;
use super::target::TargetTool;
use crate::OperationArguments;
use crate::coerce::coerce_type;

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
            document_error(message)
        })?;
        let content = body.content_type.as_deref().map_or(body_parameter.content, body_encoding);
        let is_form = matches!(content, BodyEncoding::Urlencoded | BodyEncoding::Multipart);
        let argument = &body_parameter.argument;
        let value = if is_form { coerce_fields(&body.value, &schema, argument) } else { body.value.clone() };
        let declared = body.content_type.as_deref().map(|chosen| find_media_type(&target.operation, chosen));
        // The schema of the operation says nothing about a body in another encoding.
        if declared == Some(None) && declared_bodies(&target.operation).all(|body| body.content != content) {
            undeclared.body = Some((argument.clone(), value));
        } else {
            input.insert(argument.clone(), value);
        }
        match (declared, &target.operation.body_choice) {
            (Some(Some(media_type)), Some(choice)) => {
                input.insert(choice.argument.clone(), media_type.into());
            }
            (Some(Some(_)), None) | (None, _) => {}
            (Some(None), _) => undeclared.content_type.clone_from(&body.content_type),
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
    let declared = || declared_bodies(operation).map(|body| body.media_type.as_str());
    let chosen = normalize_media_type(content_type);
    let equal = declared().find(|media_type| normalize_media_type(media_type) == chosen);
    equal.or_else(|| declared().find(|media_type| essence(media_type) == essence(content_type)))
}

/// The bodies that an operation accepts, one for each media type.
fn declared_bodies(operation: &Operation) -> impl Iterator<Item = &BodySpec> {
    let alternatives = operation.body_choice.iter().flat_map(|choice| &choice.alternatives);
    operation.body.iter().chain(alternatives.map(|alternative| &alternative.body))
}

/// A media type with its parameters in lower case, without white space and quotes around them.
fn normalize_media_type(media_type: &str) -> String {
    let parts = media_type.split(';').map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.map(|part| match part.split_once('=') {
        Some((name, value)) => format!("{}={}", name.trim(), value.trim().trim_matches('"')),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(";").to_ascii_lowercase()
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
    document_error(format!("`{tool}` has no {location} parameter `{name}`"))
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
    fn an_equal_media_type_is_preferred_to_one_with_other_parameters() {
        let body = |media_type: &str| json!({ "argument": "body", "required": false, "media_type": media_type, "content": "json" });
        let choice = json!({ "argument": "type", "alternatives": [{ "body": body("Application/JSON; V=\"2\"") }] });
        let operation = json!({ "method": "POST", "path": "/", "server": "", "accept": [], "parameters": [],
            "body": body("application/json; charset=utf-8"), "body_choice": choice });
        let operation: Operation = serde_json::from_value(operation).unwrap();
        for (content_type, expected) in [
            ("application/json;v=2", Some("Application/JSON; V=\"2\"")),
            ("APPLICATION/json ; v = 2 ;", Some("Application/JSON; V=\"2\"")),
            ("application/json;charset=UTF-8", Some("application/json; charset=utf-8")),
            ("application/json", Some("application/json; charset=utf-8")),
            ("text/json", None),
        ] {
            assert_eq!(find_media_type(&operation, content_type), expected, "{content_type}");
        }
    }
}
