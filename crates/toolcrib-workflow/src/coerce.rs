//! Conversion of values that expressions yield to the types that a schema wants. Used for arguments of operations and for
//! inputs of nested workflows.

use serde_json::Value;
use toolcrib_core::json::{long_integer, plain_text};
use toolcrib_schema::{parse_typed, property_types, type_name};

/// Converts between text and the type of a property in the schema. Expressions over responses and templates yield text where
/// the schema wants a number, or the other way round; on the wire both are text.
pub(crate) fn coerce_type(value: &Value, schema: &Value, property: &str) -> Value {
    let types = property_types(schema, property);
    let accepts = |kinds: &[&str]| types.iter().any(|kind| kinds.contains(&kind.as_str()));
    match value {
        Value::String(_) if long_integer(value).is_some() => {
            let is_text = accepts(&["string"]) && !accepts(&["number", "integer"]);
            if is_text { plain_text(value).into() } else { value.clone() }
        }
        Value::String(text) if !accepts(&["string"]) => {
            let parsed = parse_typed(schema, property, text.trim());
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
