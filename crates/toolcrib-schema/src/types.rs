//! Types of JSON Schema: declared by `type`, or those of values.

use serde_json::Value;
use toolcrib_core::json::long_integer;

/// All types.
pub const JSON_TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Returns the names in a `type` keyword, which is a string or an array.
pub fn declared_types(keyword: Option<&Value>) -> impl Iterator<Item = &str> {
    let names = match keyword {
        Some(Value::Array(names)) => names.as_slice(),
        Some(other) => std::slice::from_ref(other),
        None => &[],
    };
    names.iter().filter_map(Value::as_str)
}

/// Returns the type of a value. All numbers are `number`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) if long_integer(value).is_some() => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the narrowest type of a value: `integer` for a number without a fraction.
pub(crate) fn narrow_type_name(value: &Value) -> &'static str {
    if is_integral(value) { "integer" } else { type_name(value) }
}

/// Returns whether a value is of a type. Every integer is a number.
pub(crate) fn is_of_type(value: &Value, name: &str) -> bool {
    type_name(value) == name || narrow_type_name(value) == name
}

/// Returns whether a value is a number without a fraction.
pub(crate) fn is_integral(value: &Value) -> bool {
    let is_integer = value.is_i64() || value.is_u64() || long_integer(value).is_some();
    is_integer || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}
