//! Restrictions of a schema beyond its type, in words: `1 to 100`, `at most 12 characters`, `each at least 0`.
//! Malformed keywords (`"minimum": "much"`) are left out.

use serde_json::Value;
use toolcrib_core::json;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{Limit, LimitKeywords, MAXIMUM, MINIMUM};

use super::reader::text_prefix;

/// Maximum number of characters of a pattern that are shown.
const MAX_PATTERN_LEN: usize = 120;
/// Maximum number of characters of a number that are shown: JSON numbers can have any length.
const MAX_NUMBER_LEN: usize = 40;

/// Describes the limits of a value and, for lists, of each item. `items` is the resolved item schema. The order is
/// fixed, so that the same schema reads the same everywhere.
pub fn describe_limits(schema: &Value, items: &Value) -> Vec<String> {
    let mut limits = describe_own_limits(schema);
    limits.extend(describe_own_limits(items).into_iter().map(|limit| format!("each {limit}")));
    limits
}

/// Limits of one schema without its items.
fn describe_own_limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    limits.extend(describe_range(schema));
    let number = |key: &str| schema.get(key).filter(|value| json::as_float(value).is_some()).map(format_number);
    limits.extend(number("multipleOf").map(|step| format!("a multiple of {step}")));
    let count_keywords = [
        ("minLength", "maxLength", "character", "characters"),
        ("minItems", "maxItems", "item", "items"),
        ("minProperties", "maxProperties", "field", "fields"),
    ];
    limits.extend(
        count_keywords.iter().filter_map(|(min_key, max_key, singular, plural)| {
            describe_count(schema, min_key, max_key, singular, plural)
        }),
    );
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        limits.push("unique items".into());
    }
    let pattern = schema.get("pattern").and_then(Value::as_str);
    limits.extend(
        pattern.map(|text| {
            format!("matching `{}`", sanitize_truncated(text_prefix(text, MAX_PATTERN_LEN), MAX_PATTERN_LEN))
        }),
    );
    if schema.get("deprecated") == Some(&Value::Bool(true)) {
        limits.push("deprecated".into());
    }
    limits
}

/// `1 to 100`, `at least 0`, `more than 0, at most 1`; `None` without bounds.
fn describe_range(schema: &Value) -> Option<String> {
    // With both bounds given, the exclusive one is shown; which one is tighter does not matter to a reader.
    let bound = |keywords: &LimitKeywords| {
        let (inclusive, exclusive) = Limit::read(keywords, |keyword| schema.get(keyword));
        exclusive.or(inclusive).map(|limit| (format_number(limit.value), limit.is_exclusive))
    };
    Some(match (bound(&MINIMUM), bound(&MAXIMUM)) {
        (Some((least, false)), Some((most, false))) if least == most => format!("exactly {least}"),
        (Some((least, false)), Some((most, false))) => format!("{least} to {most}"),
        (least, most) => {
            let least = least.map(|(value, is_exclusive)| {
                format!("{} {value}", if is_exclusive { "more than" } else { "at least" })
            });
            let most = most
                .map(|(value, is_exclusive)| format!("{} {value}", if is_exclusive { "less than" } else { "at most" }));
            let both: Vec<String> = least.into_iter().chain(most).collect();
            return (!both.is_empty()).then(|| both.join(", "));
        }
    })
}

/// Describes a pair of keywords that count something, such as `minLength` and `maxLength`.
fn describe_count(schema: &Value, min_key: &str, max_key: &str, singular: &str, plural: &str) -> Option<String> {
    let number = |key: &str| schema.get(key).and_then(Value::as_u64);
    let noun = |number: u64| if number == 1 { singular } else { plural };
    match (number(min_key).filter(|least| *least > 0), number(max_key)) {
        (None, None) => None,
        (Some(1), None) if singular == "character" => Some("not empty".into()),
        (Some(least), None) => Some(format!("at least {least} {}", noun(least))),
        (None, Some(most)) => Some(format!("at most {most} {}", noun(most))),
        (Some(least), Some(most)) if least == most => Some(format!("exactly {least} {}", noun(least))),
        (Some(least), Some(most)) => Some(format!("{least} to {most} {plural}")),
    }
}

/// A number as written in the schema, truncated.
fn format_number(number: &Value) -> String {
    match json::long_integer(number) {
        Some(digits) => sanitize_truncated(text_prefix(digits, MAX_NUMBER_LEN), MAX_NUMBER_LEN),
        None => sanitize_truncated(&json::truncated_json(number, MAX_NUMBER_LEN), MAX_NUMBER_LEN),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_described_in_words() {
        let check = |schema: Value, expected: &str| {
            let items = schema.get("items").cloned().unwrap_or_default();
            assert_eq!(describe_limits(&schema, &items).join("; "), expected, "{schema}");
        };
        check(json!({ "minimum": 1, "maximum": 100 }), "1 to 100");
        check(json!({ "minimum": 0 }), "at least 0");
        let long = json::parse_integer("123456789012345678901234567890");
        check(json!({ "minimum": 1, "maximum": long }), "1 to 123456789012345678901234567890");
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
            "at least 1 item; unique items; each 2 to 8 characters",
        );
        check(json!({ "minimum": "much", "maxItems": -1, "pattern": 7, "items": [] }), "");
    }
}
