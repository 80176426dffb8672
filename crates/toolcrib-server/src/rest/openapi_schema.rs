//! Shapes of JSON for the document, in as few words as will do.

use serde_json::{Map, Value, json};

/// An object that always has these fields, and may have others in a later version.
pub(super) fn object_schema(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let mut shape = partial_object(fields);
    shape["required"] = json!(required);
    shape
}

/// An object that has those of these fields that it needs.
pub(super) fn partial_object(fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone())).collect();
    json!({ "type": "object", "properties": properties })
}

/// An object with more fields, which it may lack.
pub(super) fn with_optional(mut shape: Value, fields: &[(&str, Value)]) -> Value {
    for (name, field) in fields {
        shape["properties"][*name] = field.clone();
    }
    shape
}

pub(super) fn nullable(shape: Value) -> Value {
    match shape.get("type").and_then(Value::as_str).map(str::to_owned) {
        Some(kind) => {
            let mut shape = shape;
            shape["type"] = json!([kind, "null"]);
            if let Some(words) = shape.get_mut("enum").and_then(Value::as_array_mut) {
                words.push(Value::Null);
            }
            shape
        }
        None => json!({ "anyOf": [shape, { "type": "null" }] }),
    }
}

pub(super) fn string_enum(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

pub(super) fn string_array() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}
