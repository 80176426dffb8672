//! JSON as text: canonical form, depth, and equality without turning numbers into floats or losing key order.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Appends the canonical form: keys sorted by their bytes, no white space, strings in one spelling, numbers as written.
/// Expects text no deeper than a schema may be (64), for it recurses.
pub(crate) fn canonical(raw: &RawValue, into: &mut String) {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            into.push('{');
            for (index, (key, value)) in object.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                push_string(key, into);
                into.push(':');
                canonical(value, into);
            }
            into.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                canonical(item, into);
            }
            into.push(']');
        }
        // A lone surrogate is no string for us; its text still tells it apart from others.
        Some(b'"') => match serde_json::from_str::<String>(text) {
            Ok(string) => push_string(&string, into),
            Err(_) => into.push_str(text),
        },
        _ => into.push_str(text),
    }
}

pub(crate) fn push_string(text: &str, into: &mut String) {
    into.push_str(&serde_json::Value::from(text).to_string());
}

/// The deepest nesting of objects and arrays, found without recursion.
pub(crate) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The same text without the white space between tokens; key order stays.
pub(crate) fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in text.chars() {
        if in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
        } else if character.is_ascii_whitespace() {
            continue;
        } else if character == '"' {
            in_string = true;
        }
        compact.push(character);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_of(text: &str) -> String {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let mut canonical_text = String::new();
        canonical(raw, &mut canonical_text);
        canonical_text
    }

    #[test]
    fn order_and_white_space_do_not_matter_but_numbers_stay_as_written() {
        assert_eq!(
            canonical_of(r#"{ "b" : [1, 2.50, 123456789012345678901234567890], "a": "\u00e9" }"#),
            r#"{"a":"é","b":[1,2.50,123456789012345678901234567890]}"#
        );
        assert_eq!(canonical_of(r#"{"a":1,"b":2}"#), canonical_of(r#"{"b":2,"a":1}"#));
    }

    #[test]
    fn depth_counts_nesting_outside_strings() {
        assert_eq!(depth("1"), 0);
        assert_eq!(depth(r#"{"a":[{"b":"[[[\"{{"}]}"#), 3);
        assert_eq!(depth(&("[".repeat(100_000) + &"]".repeat(100_000))), 100_000);
    }

    #[test]
    fn compact_keeps_strings_and_order() {
        assert_eq!(compact("{ \"b\" : \" x \\\" y \",\n \"a\": 1 }"), r#"{"b":" x \" y ","a":1}"#);
    }
}
