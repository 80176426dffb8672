//! JSON Schema of arguments: validation with every fault and its path, and text from a command line turned into typed
//! values.

mod cost;
mod validator;

use serde_json::Value;

pub use validator::{Fault, Validation, Validator};

/// Turns `text` into what the schema's property `key` asks for. Where it asks for nothing in particular, text stays text.
pub fn typed(schema: &Value, key: &str, text: &str) -> Value {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    let types = types(schema, key);
    let allows = |name: &str| types.iter().any(|known| known == name);
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    match parsed {
        Some(Value::Number(number)) if allows("integer") && (number.is_i64() || number.is_u64()) => number.into(),
        Some(Value::Number(number)) if allows("number") => number.into(),
        Some(Value::Bool(value)) if allows("boolean") => value.into(),
        Some(Value::Null) if allows("null") => Value::Null,
        Some(Value::Array(items)) if allows("array") => items.into(),
        Some(Value::Object(fields)) if allows("object") => fields.into(),
        _ if allows("array") && !allows("string") => {
            let items = property.and_then(|property| property.get("items")).cloned().unwrap_or_default();
            let wrapper = serde_json::json!({ "properties": { "item": items }, "$defs": schema.get("$defs") });
            text.split(',').map(|item| typed(&wrapper, "item", item)).collect()
        }
        _ => text.into(),
    }
}

/// The types that the schema's property `key` may have; none where it says nothing about them.
pub fn types(schema: &Value, key: &str) -> Vec<String> {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    property.map(|property| types_of(schema, property, 0)).unwrap_or_default()
}

/// The types a property may have, through local references and alternatives.
fn types_of(root: &Value, property: &Value, depth: usize) -> Vec<String> {
    if depth > 8 {
        return Vec::new();
    }
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map(|target| types_of(root, target, depth + 1)).unwrap_or_default();
    }
    let mut types: Vec<String> = match property.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let constants = property.get("enum").and_then(Value::as_array).into_iter().flatten().chain(property.get("const"));
    types.extend(constants.map(|constant| type_name(constant).to_owned()));
    for key in ["anyOf", "oneOf", "allOf"] {
        let alternatives = property.get(key).and_then(Value::as_array).into_iter().flatten();
        types.extend(alternatives.flat_map(|alternative| types_of(root, alternative, depth + 1)));
    }
    types
}

/// The JSON type of a value, as schemas name it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_typed_by_the_schema() {
        let schema = json!({
            "properties": {
                "n": {"type": "integer"}, "f": {"type": ["number", "null"]}, "s": {"type": "string"},
                "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "r": {"$ref": "#/$defs/n"},
                "l": {"type": "array", "items": {"type": "integer"}}, "e": {"enum": ["a", 1]}, "o": {"type": "object"},
            },
            "$defs": {"n": {"type": "number"}},
        });
        for (key, text, value) in [
            ("n", "7", json!(7)),
            ("n", "7.5", json!("7.5")),
            ("f", "7.5", json!(7.5)),
            ("f", "null", json!(null)),
            ("s", "7", json!("7")),
            ("b", "true", json!(true)),
            ("r", "1", json!(1)),
            ("l", "[1,2]", json!([1, 2])),
            ("l", "1,2", json!([1, 2])),
            ("e", "1", json!(1)),
            ("e", "a", json!("a")),
            ("o", "{\"x\":1}", json!({"x": 1})),
            ("unknown", "7", json!("7")),
        ] {
            assert_eq!(typed(&schema, key, text), value, "{key}={text}");
        }
    }
}
