//! Corrects the values of single keywords that documents often get wrong. A value that cannot be corrected gives
//! `None`, and the keyword is dropped: the schema then accepts more, and the server decides.

use std::collections::HashSet;

use serde_json::{Value, json};
use toolcrib_core::json::{as_float, parse_exact, plain_text};
use toolcrib_schema::JSON_TYPES;

/// Returns the valid types in `type`, each once.
pub(super) fn fix_types(value: &Value) -> Option<Value> {
    match value {
        Value::String(name) => fix_type_name(name).map(Into::into),
        Value::Array(names) => {
            let mut values: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(Value::as_str).filter_map(fix_type_name) {
                if !values.contains(&name) {
                    values.push(name);
                }
            }
            // A single type needs no list.
            match values.as_slice() {
                [] => None,
                [only] => Some((*only).into()),
                several => Some(json!(several)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Returns the JSON type that a name stands for. Documents use more than the seven types.
fn fix_type_name(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let values = JSON_TYPES.into_iter().find(|values| *values == lower);
    values.or(match lower.as_str() {
        // Formats, and names of types in programming languages.
        "file" | "date" | "datetime" | "date-time" | "uuid" | "uri" | "str" | "text" => Some("string"),
        "int" | "int32" | "int64" | "long" => Some("integer"),
        "float" | "double" | "decimal" => Some("number"),
        "bool" => Some("boolean"),
        "list" => Some("array"),
        "map" | "dict" | "hash" => Some("object"),
        _ => None,
    })
}

/// Returns the values of `enum` without duplicates, converted to the declared type where possible.
pub(super) fn fix_enum(value: &Value, declared: Option<&Value>) -> Option<Value> {
    let declared = declared.and_then(Value::as_str);
    let mut values: Vec<Value> = Vec::new();
    let mut seen = HashSet::new();
    for value in value.as_array()? {
        // Documents list numbers and booleans as strings, and the reverse.
        let value = match (declared, value) {
            (Some("string"), Value::Number(_) | Value::Bool(_)) => value.to_string().into(),
            (Some("string"), Value::String(_)) => plain_text(value).into(),
            (Some("boolean"), Value::String(text)) => {
                text.to_ascii_lowercase().parse::<bool>().map_or_else(|_| value.clone(), Value::Bool)
            }
            (Some("integer" | "number"), Value::String(text)) => {
                parse_exact(text).ok().filter(is_number).unwrap_or_else(|| value.clone())
            }
            _ => value.clone(),
        };
        if seen.insert(value.to_string()) {
            values.push(value);
        }
    }
    (!values.is_empty()).then(|| values.into())
}

/// Returns a number, also from a string.
pub(super) fn fix_number(value: &Value) -> Option<Value> {
    match value {
        _ if is_number(value) => Some(value.clone()),
        // Numbers in quotes are a common mistake.
        Value::String(text) => parse_exact(text).ok().filter(is_number),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns a number above zero, also from a string.
pub(super) fn fix_step(value: &Value) -> Option<Value> {
    fix_number(value).filter(|step| as_float(step).is_some_and(|step| step > 0.0))
}

fn is_number(value: &Value) -> bool {
    as_float(value).is_some()
}

/// Returns a non-negative integer, also from a float or a string.
pub(super) fn fix_count(value: &Value) -> Option<Value> {
    let number = fix_number(value)?;
    let integer = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
        Some(float as u64)
    });
    integer.map(Into::into)
}
