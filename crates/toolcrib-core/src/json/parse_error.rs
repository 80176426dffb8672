//! What is wrong with JSON of a known shape, without the names that the shape has in our own code.

/// As serde says it, in words of JSON: an object, a list, a whole number.
pub fn describe_error(error: &serde_json::Error) -> String {
    let told = error.to_string();
    let (said, place) = match told.rfind(" at line ") {
        Some(at) => told.split_at(at),
        None => (told.as_str(), ""),
    };
    if let Some((before, _)) = said.split_once(" of untagged enum ") {
        return format!("{before} that is known{place}");
    }
    let Some((found, expected)) = said.rsplit_once(", expected ") else { return told };
    let found = match found.strip_prefix("invalid type: ") {
        Some("map") => "invalid type: an object",
        Some("sequence") => "invalid type: a list",
        Some(_) | None => found,
    };
    format!("{found}, expected {}{place}", json_type_phrase(expected))
}

fn json_type_phrase(expected: &str) -> &str {
    let words: Vec<&str> = expected.split(' ').collect();
    match words[..] {
        ["struct" | "map", ..] | ["a", "map", ..] | ["internally" | "adjacently", "tagged", ..] => "an object",
        ["newtype" | "unit", "struct", ..] | ["enum", ..] | ["variant", ..] => "a value that is known here",
        ["tuple", ..] | ["a", "tuple", ..] | ["a", "sequence"] | ["sequence"] => "a list",
        ["u8" | "u16" | "u32" | "u64" | "usize" | "u128"] => "a whole number from 0 on",
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
    fn no_message_names_a_type_of_ours() {
        for (text, expected) in [
            (r#"{"count":1,"inner":{"a":5}}"#, "invalid type: integer `5`, expected an object"),
            (r#"{"count":1,"inner":[]}"#, "invalid type: a list, expected an object"),
            (r#"{"count":-1}"#, "invalid value: integer `-1`, expected a whole number from 0 on"),
            (r#"{"count":{}}"#, "invalid type: an object, expected a whole number from 0 on"),
            (r#"{"count":1,"inner":{"a":{"name":7}}}"#, "invalid type: integer `7`, expected a string"),
            (r#"{"count":1}"#, "missing field `inner`"),
            (r#"{"kind":"there"}"#, "unknown variant `there`, expected `here`"),
            (r#"{"pair":5}"#, "invalid type: integer `5`, expected a list"),
            (r#"{"either":5}"#, "data did not match any variant that is known"),
            ("{", "EOF while parsing an object"),
        ] {
            let error = serde_json::from_str::<SampleRecord>(text).unwrap_err();
            let place = format!(" at line {} column {}", error.line(), error.column());
            assert_eq!(describe_error(&error), format!("{expected}{place}"), "{text}");
        }
    }
}
