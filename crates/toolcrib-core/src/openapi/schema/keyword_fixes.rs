//! Single words of a schema, put right where people write more, or other things, than the specification has.

use std::collections::HashSet;

use serde_json::{Number, Value, json};

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

pub(super) fn fix_types(value: &Value) -> Option<Value> {
    match value {
        Value::String(name) => fix_type_name(name).map(Into::into),
        Value::Array(names) => {
            let mut known: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(Value::as_str).filter_map(fix_type_name) {
                if !known.contains(&name) {
                    known.push(name);
                }
            }
            match known.as_slice() {
                [] => None,
                [only] => Some((*only).into()),
                several => Some(json!(several)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The type that a word means, where people write more than the seven there are.
fn fix_type_name(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let known = TYPES.into_iter().find(|known| *known == lower);
    known.or(match lower.as_str() {
        "file" | "date" | "datetime" | "date-time" | "uuid" | "uri" | "str" | "text" => Some("string"),
        "int" | "int32" | "int64" | "long" => Some("integer"),
        "float" | "double" | "decimal" => Some("number"),
        "bool" => Some("boolean"),
        "list" => Some("array"),
        "map" | "dict" | "hash" => Some("object"),
        _ => None,
    })
}

/// The values there are to choose from, each once, and of the type that is asked for where a document is careless.
pub(super) fn fix_enum(value: &Value, asked: Option<&Value>) -> Option<Value> {
    let asked = asked.and_then(Value::as_str);
    let mut known: Vec<Value> = Vec::new();
    let mut seen = HashSet::new();
    for value in value.as_array()? {
        let value = match (asked, value) {
            (Some("string"), Value::Number(_) | Value::Bool(_)) => value.to_string().into(),
            (Some("boolean"), Value::String(text)) => {
                text.to_ascii_lowercase().parse::<bool>().map_or_else(|_| value.clone(), Value::Bool)
            }
            (Some("integer" | "number"), Value::String(text)) => {
                serde_json::from_str::<Number>(text).map_or_else(|_| value.clone(), Value::Number)
            }
            _ => value.clone(),
        };
        if seen.insert(value.to_string()) {
            known.push(value);
        }
    }
    (!known.is_empty()).then(|| known.into())
}

pub(super) fn fix_number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn fix_count(value: &Value) -> Option<Value> {
    let number = fix_number(value)?;
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
        Some(float as u64)
    });
    whole.map(Into::into)
}
