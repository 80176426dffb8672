//! From text to an untyped value: JSON or YAML, bounded, with a reason in the reader's words when it is neither.

mod strip_examples;

use serde_json::Value;

use crate::config::node::yaml_to_json;
use crate::error::{Code, Error, Result};
use crate::json;

/// How many values a document may have: what holds more is no description of an API.
const MAX_DOCUMENT_VALUES: usize = 6_000_000;
/// How many of them YAML aliases may copy.
const MAX_ALIAS_COPIES: usize = 500_000;

/// An OpenAPI document, without the examples in it where it is JSON; an error says what it is instead, or where it breaks.
pub fn parse(text: &str) -> Result<Value> {
    parse_with(text, strip_examples::parse)
}

/// Any other document, with all that it holds.
pub fn parse_with_examples(text: &str) -> Result<Value> {
    parse_with(text, |text| serde_json::from_str(text))
}

fn parse_with(text: &str, json_value: impl FnOnce(&str) -> serde_json::Result<Value>) -> Result<Value> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |message: String| Error::new(Code::ConfigInvalid, message);
    let begins = text.trim_start();
    if begins.is_empty() {
        return Err(wrong("the document is empty".into()));
    }
    if begins.starts_with('<') {
        return Err(wrong("this is a page or XML, not a document in JSON or YAML; is the address right?".into()));
    }
    let is_json = begins.starts_with(['{', '[']);
    let separators: &[u8] = if is_json { b",{[" } else { b",{[\n" };
    let values = memchr::memchr3_iter(separators[0], separators[1], separators[2], text.as_bytes()).count()
        + if is_json { 0 } else { memchr::memchr_iter(b'\n', text.as_bytes()).count() };
    if values > MAX_DOCUMENT_VALUES {
        return Err(wrong(format!("the document has more than {MAX_DOCUMENT_VALUES} values")));
    }
    let value = if is_json {
        let mended = |error: serde_json::Error| parse_leniently(text, &error).ok_or(error);
        json_value(text).or_else(mended).map_err(|error| {
            let line = error.line();
            let column = error.column();
            let reason = match error.classify() {
                serde_json::error::Category::Eof => "it ends in the middle, as if it were cut off".to_owned(),
                serde_json::error::Category::Syntax
                | serde_json::error::Category::Data
                | serde_json::error::Category::Io => {
                    let said = error.to_string();
                    said.split(" at line ").next().unwrap_or_default().to_owned()
                }
            };
            wrong(format!("the document is not valid JSON, line {line}, column {column}: {reason}"))
        })?
    } else {
        yaml_to_json(text, MAX_ALIAS_COPIES)
            .map_err(|fault| wrong(format!("the document is not valid YAML, line {}: {}", fault.line, fault.message)))?
    };
    // Any file can be named here, so that nothing of its content is told.
    let is = match value {
        Value::Object(_) => return Ok(value),
        Value::Null => "nothing",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "a single value",
        Value::Array(_) => "a list",
    };
    Err(wrong(format!("this is no document of names and values, but {is}; is it the right file or address?")))
}

/// What people write for JSON: halves of characters, trailing commas, line breaks inside of texts. YAML takes most of it.
fn parse_leniently(text: &str, error: &serde_json::Error) -> Option<Value> {
    const MAX_LENIENT_BYTES: usize = 16 * 1024 * 1024;
    if error.is_eof() || text.len() > MAX_LENIENT_BYTES {
        return None;
    }
    let mended = json::replace_lone_surrogates(text).and_then(|text| serde_json::from_str(&text).ok());
    mended.or_else(|| yaml_to_json(text, MAX_ALIAS_COPIES).ok()).filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_document_is_told() {
        for (text, reason) in [
            ("", "the document is empty"),
            ("  \n", "the document is empty"),
            ("<!doctype html>", "this is a page or XML, not a document in JSON or YAML; is the address right?"),
            (
                "{\"openapi\": \"3.1",
                "the document is not valid JSON, line 1, column 16: it ends in the middle, as if it were cut off",
            ),
            ("{\"a\": [1}", "the document is not valid JSON, line 1, column 9: expected `,` or `]`"),
            ("hello", "this is no document of names and values, but a single value; is it the right file or address?"),
            ("[1]", "this is no document of names and values, but a list; is it the right file or address?"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, reason, "{text}");
        }
        assert!(parse("a: [1\nb: 2").unwrap_err().message.starts_with("the document is not valid YAML, line "));
    }

    #[test]
    fn what_is_almost_json_is_read() {
        for text in [r#"{"a": "x\ud83d", "b": 1}"#, "{\"a\": \"x\",\n \"b\": 1,\n}", "{\"a\": \"x\ty\", \"b\": 1}"] {
            assert_eq!(parse(text).unwrap()["b"], 1, "{text}");
        }
    }

    #[test]
    fn a_bomb_ends_early() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let below = format!("*a{}, ", level - 1).repeat(9);
            bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        assert!(parse(&bomb).unwrap_err().message.contains("aliases copy too much"));
        let nested: String = (0..100).map(|n| format!("{}a: &n{n}\n", " ".repeat(n))).collect();
        let wide: String = (0..20_000).map(|n| format!("{}k{n}: 1\n", " ".repeat(100))).collect();
        assert!(parse(&(nested + &wide)).unwrap_err().message.contains("anchors name too much"));
        let text = format!("a: &a '{}'\nb: [{}]", "x".repeat(1_000_000), "*a, ".repeat(100_000));
        assert!(parse(&text).unwrap_err().message.contains("aliases copy too much"), "long texts count as well");
        let keys: String = (0..20_000).map(|n| format!("k{n}: 1\n")).collect();
        assert_eq!(
            parse(&(keys + &"<<: {}\n".repeat(20_000))).unwrap().as_object().map(serde_json::Map::len),
            Some(20_000)
        );
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("a: {}", "[".repeat(100_000))).is_err());
    }
}
