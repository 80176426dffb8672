//! Size of a schema as Structured Outputs count it. Measured on the result, because parts may have been dropped and
//! definitions are counted once.

use serde_json::Value;

use crate::render::limits::strict as limits;
use crate::render::projection::{ProjectionResult, Unsupported};

/// Checks the limits on properties and characters.
pub(super) fn check_limits(schema: &Value) -> ProjectionResult<()> {
    let mut properties = 0;
    let mut characters = 0;
    measure(schema, &mut properties, &mut characters);
    if properties > limits::MAX_PROPERTIES {
        let reason = format!("it has {properties} fields; {} are supported", limits::MAX_PROPERTIES);
        return Err(Unsupported::new("", reason));
    }
    if characters > limits::MAX_CHARACTERS {
        let max = limits::MAX_CHARACTERS;
        let reason = format!("its names and values have {characters} characters; {max} are supported");
        return Err(Unsupported::new("", reason));
    }
    Ok(())
}

/// Counts properties, and characters of names, `enum` values and constants.
fn measure(schema: &Value, properties: &mut usize, characters: &mut usize) {
    let length = |text: &str| text.chars().count();
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                match (keyword.as_str(), value) {
                    ("properties" | "$defs", Value::Object(fields)) => {
                        *properties += if keyword == "properties" { fields.len() } else { 0 };
                        *characters += fields.keys().map(|name| length(name)).sum::<usize>();
                        fields.values().for_each(|field| measure(field, properties, characters));
                    }
                    ("enum", Value::Array(values)) => {
                        *characters += values.iter().filter_map(Value::as_str).map(length).sum::<usize>();
                    }
                    ("const", Value::String(text)) => *characters += length(text),
                    _ => measure(value, properties, characters),
                }
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| measure(part, properties, characters)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
