//! Writes integers of more than 64 bits with all their digits in messages. Validation compares them as floats, and so do
//! the messages of its errors: `1.8446744073709552e+19`.

use std::collections::HashMap;

use serde_json::Value;
use toolcrib_core::json::{as_float, long_integer};

use super::ArgumentError;

/// Replaces each float in a message that stands for one integer of these values by the digits of the integer.
pub(super) fn restore_digits(mut errors: Vec<ArgumentError>, values: [&Value; 2]) -> Vec<ArgumentError> {
    // Floats of this size are written with an exponent.
    if !errors.iter().any(|error| error.message.contains("e+")) {
        return errors;
    }
    let mut integers = HashMap::new();
    for value in values {
        collect_integers(value, &mut integers);
    }
    for error in &mut errors {
        error.message = restore_message(&error.message, &integers);
    }
    errors
}

/// Collects long integers by the text of the nearest float; `None` if there are several with the same one.
fn collect_integers<'v>(value: &'v Value, integers: &mut HashMap<String, Option<&'v str>>) {
    match value {
        Value::String(_) => {
            if let (Some(digits), Some(float)) = (long_integer(value), as_float(value)) {
                let known = integers.entry(Value::from(float).to_string()).or_insert(Some(digits));
                *known = known.filter(|known| *known == digits);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_integers(item, integers)),
        Value::Object(fields) => fields.values().for_each(|field| collect_integers(field, integers)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn restore_message(message: &str, integers: &HashMap<String, Option<&str>>) -> String {
    let mut restored = String::with_capacity(message.len());
    let mut rest = message;
    while !rest.is_empty() {
        let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | 'e' | '+' | '-');
        let start = rest.find(is_number).unwrap_or(rest.len());
        let end = rest[start..].find(|letter| !is_number(letter)).map_or(rest.len(), |length| start + length);
        let number = &rest[start..end];
        restored.push_str(&rest[..start]);
        restored.push_str(integers.get(number).copied().flatten().unwrap_or(number));
        rest = &rest[end..];
    }
    restored
}
