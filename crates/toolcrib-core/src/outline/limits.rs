//! What a schema demands beyond a type, in words: `1 to 100`, `at most 12 characters`, `each at least 0`.

use serde_json::Value;

use super::reader::text_prefix;
use crate::json;
use crate::text::sanitize_truncated;

const MAX_PATTERN_LEN: usize = 120;
const MAX_NUMBER_LEN: usize = 40;

/// The limits of a value, and of each item where it is a list; `items` is where their reference led.
pub fn describe_limits(schema: &Value, items: &Value) -> Vec<String> {
    let mut words = describe_own_limits(schema);
    words.extend(describe_own_limits(items).into_iter().map(|limit| format!("each {limit}")));
    words
}

fn describe_own_limits(schema: &Value) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(describe_range(schema));
    let number = |key: &str| schema.get(key).filter(|value| value.is_number()).map(format_number);
    words.extend(number("multipleOf").map(|step| format!("a multiple of {step}")));
    let counted = [
        ("minLength", "maxLength", "character", "characters"),
        ("minItems", "maxItems", "item", "items"),
        ("minProperties", "maxProperties", "field", "fields"),
    ];
    words.extend(counted.iter().filter_map(|(least, most, one, many)| describe_count(schema, least, most, one, many)));
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        words.push("no two alike".into());
    }
    let pattern = schema.get("pattern").and_then(Value::as_str);
    words.extend(
        pattern.map(|text| {
            format!("matching `{}`", sanitize_truncated(text_prefix(text, MAX_PATTERN_LEN), MAX_PATTERN_LEN))
        }),
    );
    if schema.get("deprecated") == Some(&Value::Bool(true)) {
        words.push("deprecated".into());
    }
    words
}

fn describe_range(schema: &Value) -> Option<String> {
    let bound = |key: &str, excluded: &str| {
        let (inclusive, exclusive) = (schema.get(key), schema.get(excluded));
        match (inclusive.filter(|value| value.is_number()), exclusive) {
            // Where both are given the tighter one is not worth finding out: that there is an end is what helps.
            (_, Some(value @ Value::Number(_))) => Some((format_number(value), true)),
            (Some(value), exclusive) => Some((format_number(value), exclusive == Some(&Value::Bool(true)))),
            (None, _) => None,
        }
    };
    Some(match (bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum")) {
        (Some((least, false)), Some((most, false))) if least == most => format!("exactly {least}"),
        (Some((least, false)), Some((most, false))) => format!("{least} to {most}"),
        (least, most) => {
            let least = least.map(|(value, out)| format!("{} {value}", if out { "more than" } else { "at least" }));
            let most = most.map(|(value, out)| format!("{} {value}", if out { "less than" } else { "at most" }));
            let both: Vec<String> = least.into_iter().chain(most).collect();
            return (!both.is_empty()).then(|| both.join(", "));
        }
    })
}

fn describe_count(schema: &Value, least: &str, most: &str, one: &str, many: &str) -> Option<String> {
    let number = |key: &str| schema.get(key).and_then(Value::as_u64);
    let things = |number: u64| if number == 1 { one } else { many };
    match (number(least).filter(|least| *least > 0), number(most)) {
        (None, None) => None,
        (Some(1), None) if one == "character" => Some("not empty".into()),
        (Some(least), None) => Some(format!("at least {least} {}", things(least))),
        (None, Some(most)) => Some(format!("at most {most} {}", things(most))),
        (Some(least), Some(most)) if least == most => Some(format!("exactly {least} {}", things(least))),
        (Some(least), Some(most)) => Some(format!("{least} to {most} {many}")),
    }
}

fn format_number(number: &Value) -> String {
    sanitize_truncated(&json::truncated_json(number, MAX_NUMBER_LEN), MAX_NUMBER_LEN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_told_in_words() {
        let check = |schema: Value, expected: &str| {
            let items = schema.get("items").cloned().unwrap_or_default();
            assert_eq!(describe_limits(&schema, &items).join("; "), expected, "{schema}");
        };
        check(json!({ "minimum": 1, "maximum": 100 }), "1 to 100");
        check(json!({ "minimum": 0 }), "at least 0");
        check(
            json!({ "exclusiveMinimum": 0, "maximum": 1, "multipleOf": 0.05 }),
            "more than 0, at most 1; a multiple of 0.05",
        );
        check(json!({ "minimum": 3, "exclusiveMinimum": true }), "more than 3");
        check(json!({ "minLength": 1 }), "not empty");
        check(json!({ "minLength": 0, "maxLength": 1 }), "at most 1 character");
        check(
            json!({ "minLength": 5, "maxLength": 5, "pattern": "^[0-9]*$" }),
            "exactly 5 characters; matching `^[0-9]*$`",
        );
        let items = json!({ "minLength": 2, "maxLength": 8 });
        check(
            json!({ "minItems": 1, "uniqueItems": true, "items": items }),
            "at least 1 item; no two alike; each 2 to 8 characters",
        );
        check(json!({ "minimum": "much", "maxItems": -1, "pattern": 7, "items": [] }), "");
    }
}
