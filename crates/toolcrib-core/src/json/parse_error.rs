//! Messages of JSON parse errors in terms of JSON, without names of Rust types.
//!
//! ```text
//! invalid type: map, expected u32 at line 1 column 10
//! invalid type: an object, expected a non-negative whole number at line 1 column 10
//! ```
//!
//! REST clients and agents read these messages. The rewriting works on the text, since serde's errors have no
//! structure; what is not recognised stays as it is.

/// Formats a `serde_json` error with the words object, list and whole number instead of Rust types.
/// Line and column stay at the end.
pub fn describe_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let (reason, position) = match message.rfind(" at line ") {
        Some(start) => message.split_at(start),
        None => (message.as_str(), ""),
    };
    // `data did not match any variant of untagged enum Name`: the name of a Rust type helps no client.
    if let Some((before, _)) = reason.split_once(" of untagged enum ") {
        return format!("{before} that is known{position}");
    }
    // Syntax errors such as `EOF while parsing` have no expected type and stay as they are.
    let Some((actual, expected)) = reason.rsplit_once(", expected ") else { return message };
    let actual = match actual.strip_prefix("invalid type: ") {
        Some("map") => "invalid type: an object",
        Some("sequence") => "invalid type: a list",
        Some(_) | None => actual,
    };
    format!("{actual}, expected {}{position}", json_type_phrase(expected))
}

/// Replaces serde's description of an expected Rust type by a JSON type.
fn json_type_phrase(expected: &str) -> &str {
    let words: Vec<&str> = expected.split(' ').collect();
    match words[..] {
        ["struct" | "map", ..] | ["a", "map", ..] | ["internally" | "adjacently", "tagged", ..] => "an object",
        ["newtype" | "unit", "struct", ..] | ["enum", ..] | ["variant", ..] => "a known value",
        ["tuple", ..] | ["a", "tuple", ..] | ["a", "sequence"] | ["sequence"] => "a list",
        ["u8" | "u16" | "u32" | "u64" | "usize" | "u128"] => "a non-negative whole number",
        ["i8" | "i16" | "i32" | "i64" | "isize" | "i128"] => "a whole number",
        ["f32" | "f64"] => "a number",
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct SampleRecord {
        count: u32,
        inner: BTreeMap<String, SampleNestedRecord>,
        kind: Option<SampleKind>,
        pair: Option<(u8, u8)>,
        either: Option<SampleUnion>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct SampleNestedRecord {
        name: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum SampleKind {
        Here,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only read")]
    enum SampleUnion {
        Text(String),
        Many(Vec<String>),
    }

    #[test]
    fn messages_contain_no_rust_types() {
        for (text, expected) in [
            (r#"{"count":1,"inner":{"a":5}}"#, "invalid type: integer `5`, expected an object"),
            (r#"{"count":1,"inner":[]}"#, "invalid type: a list, expected an object"),
            (r#"{"count":-1}"#, "invalid value: integer `-1`, expected a non-negative whole number"),
            (r#"{"count":{}}"#, "invalid type: an object, expected a non-negative whole number"),
            (r#"{"count":1,"inner":{"a":{"name":7}}}"#, "invalid type: integer `7`, expected a string"),
            (r#"{"count":1}"#, "missing field `inner`"),
            (r#"{"kind":"there"}"#, "unknown variant `there`, expected `here`"),
            (r#"{"pair":5}"#, "invalid type: integer `5`, expected a list"),
            (r#"{"either":5}"#, "data did not match any variant that is known"),
            ("{", "EOF while parsing an object"),
        ] {
            let error = serde_json::from_str::<SampleRecord>(text).unwrap_err();
            let position = format!(" at line {} column {}", error.line(), error.column());
            assert_eq!(describe_error(&error), format!("{expected}{position}"), "{text}");
        }
    }
}
