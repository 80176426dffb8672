//! Helpers to write JSON Schemas for the OpenAPI document.
//!
//! Responses are described as open objects, so that a later version may add fields; bodies of requests are [`closed`].

use serde_json::{Map, Value, json};

/// Schema of a text.
pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

/// Schema of a number of things.
pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

/// Schema of a boolean.
pub(super) fn boolean() -> Value {
    json!({ "type": "boolean" })
}

/// Schema of a point in time.
pub(super) fn timestamp() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

/// Schema of a list.
pub(super) fn array_of(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Adds a description to a schema.
pub(super) fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

/// Refuses fields that the schema does not name, for bodies of requests.
pub(super) fn closed(mut schema: Value) -> Value {
    schema["additionalProperties"] = json!(false);
    schema
}

/// Schema of an object with these required fields. Later versions may add others.
pub(super) fn object_schema(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let mut schema = partial_object(fields);
    schema["required"] = json!(required);
    schema
}

/// Schema of an object whose fields are all optional.
pub(super) fn partial_object(fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties })
}

/// Adds optional fields to the schema of an object.
pub(super) fn with_optional(mut schema: Value, fields: &[(&str, Value)]) -> Value {
    for (name, field) in fields {
        schema["properties"][*name] = field.clone();
    }
    schema
}

/// Allows `null` in addition to a schema. OpenAPI 3.1 has no `nullable` keyword: `null` is a type like any other, and a
/// value of an `enum`.
pub(super) fn nullable(schema: Value) -> Value {
    match schema.get("type").and_then(Value::as_str).map(str::to_owned) {
        Some(type_name) => {
            let mut schema = schema;
            schema["type"] = json!([type_name, "null"]);
            if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                values.push(Value::Null);
            }
            schema
        }
        // A reference has no type of its own to extend.
        None => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// Schema of a string with one of these values.
pub(super) fn string_enum(values: &[&str]) -> Value {
    json!({ "type": "string", "enum": values })
}

/// Schema of a list of strings.
pub(super) fn string_array() -> Value {
    array_of(text())
}
