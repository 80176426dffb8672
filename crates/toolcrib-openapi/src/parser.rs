//! Parses the text of a document as JSON or YAML into an untyped value, within bounds and with errors for people.
//!
//! JSON is tried first where the text begins with a bracket: it is parsed several times faster than YAML, which accepts
//! most of the same text. Errors name the line.

mod strip_examples;

use serde_json::Value;
use toolcrib_config::yaml_to_json;
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::json;

/// Maximum number of values in a document. Counted before parsing, by separators.
const MAX_DOCUMENT_VALUES: usize = 6_000_000;
/// Maximum number of values that YAML aliases may copy, against documents that expand exponentially. Exceeding it is an
/// error.
const MAX_ALIAS_COPIES: usize = 500_000;

/// Parses an OpenAPI document. Drops the examples of JSON documents, which are often most of their size.
pub fn parse(text: &str) -> Result<Value> {
    parse_with(text, strip_examples::parse)
}

/// Parses any other document completely. Arazzo documents are such: their payloads may have a property `example`.
pub fn parse_with_examples(text: &str) -> Result<Value> {
    parse_with(text, json::parse_exact)
}

/// Parses a document, with `json_value` for JSON. Anything that does not begin with a bracket is YAML.
fn parse_with(text: &str, json_value: impl FnOnce(&str) -> serde_json::Result<Value>) -> Result<Value> {
    // Files from Windows editors begin with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let invalid = |message: String| Error::new(Code::ConfigInvalid, message);
    let start = text.trim_start();
    if start.is_empty() {
        return Err(invalid("the document is empty".into()));
    }
    if start.starts_with('<') {
        return Err(invalid("this is HTML or XML, not JSON or YAML; check the URL".into()));
    }
    let is_json = start.starts_with(['{', '[']);
    // Separators bound the number of values, for a fraction of the cost of parsing.
    let separators: &[u8] = if is_json { b",{[" } else { b",{[\n" };
    let values = memchr::memchr3_iter(separators[0], separators[1], separators[2], text.as_bytes()).count()
        + if is_json { 0 } else { memchr::memchr_iter(b'\n', text.as_bytes()).count() };
    if values > MAX_DOCUMENT_VALUES {
        return Err(invalid(format!("the document has more than {MAX_DOCUMENT_VALUES} values")));
    }
    let value = if is_json {
        let repair = |error: serde_json::Error| parse_leniently(text, &error).ok_or(error);
        json_value(text).or_else(repair).map_err(|error| {
            let line = error.line();
            let column = error.column();
            let reason = match error.classify() {
                serde_json::error::Category::Eof => "it ends too early and may be truncated".to_owned(),
                serde_json::error::Category::Syntax
                | serde_json::error::Category::Data
                | serde_json::error::Category::Io => {
                    // The message of `serde_json` repeats line and column at its end.
                    let message = error.to_string();
                    message.split(" at line ").next().unwrap_or_default().to_owned()
                }
            };
            invalid(format!("the document is not valid JSON, line {line}, column {column}: {reason}"))
        })?
    } else {
        yaml_to_json(text, MAX_ALIAS_COPIES).map_err(|fault| {
            invalid(format!("the document is not valid YAML, line {}: {}", fault.line, fault.message))
        })?
    };
    // The path may name any file, so errors never quote its content.
    let kind = match value {
        Value::Object(_) => return Ok(value),
        Value::Null => "nothing",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "a single value",
        Value::Array(_) => "a list",
    };
    Err(invalid(format!("the document must be a JSON or YAML object, not {kind}; check the file or URL")))
}

/// Parses text that is almost JSON: unpaired surrogates, trailing commas, line breaks in strings. YAML accepts most of
/// it.
fn parse_leniently(text: &str, error: &serde_json::Error) -> Option<Value> {
    // Parsing as YAML takes several times as long, so large documents get no second chance.
    const MAX_LENIENT_BYTES: usize = 16 * 1024 * 1024;
    if error.is_eof() || text.len() > MAX_LENIENT_BYTES {
        return None;
    }
    let repair = json::replace_lone_surrogates(text).and_then(|text| json::parse_exact(&text).ok());
    repair.or_else(|| yaml_to_json(text, MAX_ALIAS_COPIES).ok()).filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("", "the document is empty"),
            ("  \n", "the document is empty"),
            ("<!doctype html>", "this is HTML or XML, not JSON or YAML; check the URL"),
            (
                "{\"openapi\": \"3.1",
                "the document is not valid JSON, line 1, column 16: it ends too early and may be truncated",
            ),
            ("{\"a\": [1}", "the document is not valid JSON, line 1, column 9: expected `,` or `]`"),
            ("hello", "the document must be a JSON or YAML object, not a single value; check the file or URL"),
            ("[1]", "the document must be a JSON or YAML object, not a list; check the file or URL"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, reason, "{text}");
        }
        assert!(parse("a: [1\nb: 2").unwrap_err().message.starts_with("the document is not valid YAML, line "));
    }

    #[test]
    fn integers_keep_their_digits() {
        let integer = "123456789012345678901234567890";
        for text in [
            format!(r#"{{"default": {integer}, "example": {integer}}}"#),
            format!("default: {integer}"),
            format!("{{\"default\": {integer},\n}}"),
            format!(r#"{{"default": {integer}, "a": "\ud83d"}}"#),
        ] {
            let default = &parse(&text).unwrap()["default"];
            assert_eq!(json::to_exact_string(default).unwrap(), integer, "{text}");
            assert_eq!(&parse_with_examples(&text).unwrap()["default"], default, "{text}");
        }
    }

    #[test]
    fn almost_valid_json_is_parsed() {
        for text in [r#"{"a": "x\ud83d", "b": 1}"#, "{\"a\": \"x\",\n \"b\": 1,\n}", "{\"a\": \"x\ty\", \"b\": 1}"] {
            assert_eq!(parse(text).unwrap()["b"], 1, "{text}");
        }
    }

    #[test]
    fn yaml_bombs_are_rejected() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let below = format!("*a{}, ", level - 1).repeat(9);
            bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        assert!(parse(&bomb).unwrap_err().message.contains("aliases copy too much"));
        let nested: String = (0..100).map(|n| format!("{}a: &n{n}\n", " ".repeat(n))).collect();
        let wide: String = (0..20_000).map(|n| format!("{}k{n}: 1\n", " ".repeat(100))).collect();
        assert!(parse(&(nested + &wide)).unwrap_err().message.contains("anchors copy too much"));
        let text = format!("a: &a '{}'\nb: [{}]", "x".repeat(1_000_000), "*a, ".repeat(100_000));
        assert!(parse(&text).unwrap_err().message.contains("aliases copy too much"), "the length of texts counts too");
        let keys: String = (0..20_000).map(|n| format!("k{n}: 1\n")).collect();
        assert_eq!(
            parse(&(keys + &"<<: {}\n".repeat(20_000))).unwrap().as_object().map(serde_json::Map::len),
            Some(20_000)
        );
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("a: {}", "[".repeat(100_000))).is_err());
    }
}
