//! Integers of more than 64 bits in [`Value`], which has no place for them: parsed as usual they become floats and lose
//! their digits.
//!
//! [`parse_exact`] reads such an integer as a string that begins with a noncharacter of Unicode, and
//! [`to_exact_string`] writes its digits back:
//!
//! ```text
//! {"id":123456789012345678901}    <->    {"id":"\u{10ffff}123456789012345678901"}
//! ```
//!
//! Unicode reserves noncharacters for internal use, so no text of a source needs such a string: in one that is the mark
//! and a long integer, `parse_exact` replaces the mark by U+FFFD. All other strings stay as they are, since they are not
//! written as numbers. Text without long integers, which is almost all, is only scanned. Decimals and exponents stay
//! floats.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Begins a string that stands for an integer.
const MARK: char = '\u{10ffff}';
/// First byte of the mark in UTF-8. Only characters of the last plane begin with it.
const MARK_BYTE: u8 = 0xf4;
/// The mark as JSON escapes.
const ESCAPED_MARK: &[u8] = b"\\udbff\\udfff";
/// Fewest digits of an integer that may not fit into 64 bits.
const MIN_DIGITS: usize = 19;

/// Parses JSON like `serde_json::from_str`, with all digits of integers. Values that are written must be written with
/// [`to_exact_string`] or [`to_exact_raw`].
pub fn parse_exact<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    match mark_integers(text) {
        Cow::Borrowed(text) => serde_json::from_str(text),
        // The positions in an error must be those of the original text.
        Cow::Owned(marked) => serde_json::from_str(&marked).or_else(|_| serde_json::from_str(text)),
    }
}

/// Replaces integers of more than 64 bits in JSON text by marked strings, for a parser of the caller's own.
pub fn mark_integers(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    if !may_need_marks(bytes) {
        return Cow::Borrowed(text);
    }
    let mut marked = String::with_capacity(text.len() + 64);
    let mut copied = 0;
    let mut replace = |start: usize, end: usize, replacement: &[&str]| {
        marked.push_str(&text[copied..start]);
        marked.extend(replacement.iter().copied());
        copied = end;
    };
    let mut position = 0;
    let mut in_string = false;
    while position < bytes.len() {
        let rest = &bytes[position..];
        let length = match rest[0] {
            b'"' => {
                in_string = !in_string;
                let mark_len = if in_string { forged_mark_len(&text[position..]) } else { 0 };
                if mark_len > 0 {
                    replace(position + 1, position + 1 + mark_len, &["\u{fffd}"]);
                }
                1 + mark_len
            }
            b'\\' if in_string => 2,
            b'-' | b'0'..=b'9' if !in_string => {
                let length = rest.iter().position(|byte| !is_number_byte(*byte)).unwrap_or(rest.len());
                let literal = &text[position..position + length];
                // Before a colon it would be a name, which must not be made valid.
                let is_name = rest[length..].trim_ascii_start().starts_with(b":");
                if is_long_integer(literal) && !is_name {
                    replace(position, position + length, &["\"", MARK.encode_utf8(&mut [0; 4]), literal, "\""]);
                }
                length
            }
            _ => 1,
        };
        position += length;
    }
    marked.push_str(&text[copied..]);
    Cow::Owned(marked)
}

/// Part of a larger structure that is read by [`parse_exact`], such as the arguments in a request. Can be read from JSON
/// text only, and not within flattened or untagged types.
#[derive(Debug, Clone, Default)]
pub struct Exact<T>(pub T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Exact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        parse_exact(raw.get()).map(Exact).map_err(|error| {
            // The position within the part would be mistaken for one within the whole text.
            let message = error.to_string();
            D::Error::custom(message.split(" at line ").next().unwrap_or_default())
        })
    }
}

/// Serialises a value whose integers were read by [`parse_exact`].
pub fn to_exact_string(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(unmark_integers)
}

/// Like [`to_exact_string`], with a line for each value.
pub fn to_exact_string_pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(unmark_integers)
}

/// Like [`to_exact_string`], as raw JSON.
pub fn to_exact_raw(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    to_exact_string(value).and_then(RawValue::from_string)
}

/// Text of a value in a URL, a header or a sentence: strings without quotes, anything else as JSON.
pub fn plain_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(long_integer(value).unwrap_or(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Cow::Owned(unmark_integers(value.to_string()))
        }
    }
}

/// The digits of an integer that [`parse_exact`] has read as a string.
pub fn long_integer(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix(MARK).filter(|digits| is_long_integer(digits))
}

/// A number as a float, the nearest one for an integer of more than 64 bits. `None` for anything but a number.
pub fn as_float(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| long_integer(value).map(nearest_float))
}

/// The value for an integer in decimal digits, with all of them. `None` for any other text.
pub fn parse_integer(digits: &str) -> Option<Value> {
    let is_integer = |value: &Value| value.is_i64() || value.is_u64() || long_integer(value).is_some();
    parse_exact::<Value>(digits).ok().filter(is_integer)
}

/// A copy with the nearest float for each integer of more than 64 bits, for comparisons and JSON Schema. `None` if there
/// is no such integer.
pub fn approximate(value: &Value) -> Option<Value> {
    contains_long_integer(value).then(|| copy_with_floats(value))
}

fn contains_long_integer(value: &Value) -> bool {
    match value {
        Value::String(_) => long_integer(value).is_some(),
        Value::Array(items) => items.iter().any(contains_long_integer),
        Value::Object(fields) => fields.values().any(contains_long_integer),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn copy_with_floats(value: &Value) -> Value {
    match value {
        Value::String(_) => long_integer(value).map_or_else(|| value.clone(), |digits| nearest_float(digits).into()),
        Value::Array(items) => items.iter().map(copy_with_floats).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), copy_with_floats(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Within the range of floats, as JSON has no infinity.
fn nearest_float(digits: &str) -> f64 {
    digits.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX)
}

/// Writes marked strings as integers.
pub(super) fn unmark_integers(text: String) -> String {
    if memchr::memchr(MARK_BYTE, text.as_bytes()).is_none() {
        return text;
    }
    let mut unmarked = String::with_capacity(text.len());
    let mut copied = 0;
    for (quote, opening) in text.match_indices("\"\u{10ffff}") {
        let start = quote + opening.len();
        let length = text[start..].find('"').unwrap_or(0);
        let digits = &text[start..start + length];
        let after = text[start + length..].get(1..).unwrap_or_default();
        // A quote after a backslash is part of a string, and a string before a colon is a name.
        let is_value = !text[..quote].ends_with('\\') && !after.starts_with(':');
        if is_value && is_long_integer(digits) {
            unmarked.push_str(&text[copied..quote]);
            unmarked.push_str(digits);
            copied = start + length + 1;
        }
    }
    unmarked.push_str(&text[copied..]);
    unmarked
}

/// Whether a text may have a long integer or a mark. Looks at one byte in nineteen for digits.
fn may_need_marks(bytes: &[u8]) -> bool {
    let has_long_run = || {
        let mut position = MIN_DIGITS - 1;
        while let Some(byte) = bytes.get(position) {
            if byte.is_ascii_digit() {
                // The run of digits around this position.
                let before = bytes[..position].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
                let after = bytes[position..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                if before + after >= MIN_DIGITS {
                    return true;
                }
            }
            position += MIN_DIGITS;
        }
        false
    };
    let has_escaped_mark = || memchr::memmem::find_iter(bytes, b"\\u").any(|at| starts_with_escaped_mark(&bytes[at..]));
    has_long_run() || memchr::memchr(MARK_BYTE, bytes).is_some() || has_escaped_mark()
}

/// Length of the mark in a string that would be mistaken for a marked integer; 0 for other strings. `text` begins with
/// the opening quote.
fn forged_mark_len(text: &str) -> usize {
    let content = &text[1..];
    let mark_len = if content.starts_with(MARK) {
        MARK.len_utf8()
    } else if starts_with_escaped_mark(content.as_bytes()) {
        ESCAPED_MARK.len()
    } else {
        return 0;
    };
    // Decoded, because digits may be escaped too.
    let string = serde_json::Deserializer::from_str(text).into_iter::<Value>().next().and_then(Result::ok);
    if string.is_some_and(|string| long_integer(&string).is_some()) { mark_len } else { 0 }
}

fn starts_with_escaped_mark(bytes: &[u8]) -> bool {
    bytes.get(..ESCAPED_MARK.len()).is_some_and(|escapes| escapes.eq_ignore_ascii_case(ESCAPED_MARK))
}

/// Whether a byte can be part of a number.
fn is_number_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Whether a text is an integer in JSON that does not fit into 64 bits.
fn is_long_integer(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    digits.len() >= MIN_DIGITS
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && literal.parse::<i64>().is_err()
        && literal.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LONG: &str = "123456789012345678901234567890";

    #[test]
    fn every_integer_keeps_its_digits() {
        let huge = "9".repeat(400);
        for text in [
            LONG,
            "-123456789012345678901234567890",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775808",
            "-9223372036854775809",
            &huge,
            &format!(r#"{{"a":[{LONG},1,"{LONG}"],"b":{{"c":-{LONG}}}}}"#),
            &format!(r#"["\\",{LONG},"\"",{LONG}]"#),
            r#"{"a":1.5,"b":"x","c":null}"#,
        ] {
            let value: Value = parse_exact(text).unwrap();
            assert_eq!(to_exact_string(&value).unwrap(), text);
        }
        assert_eq!(parse_exact::<Value>(&format!(" [ {LONG} ]")).unwrap()[0], format!("\u{10ffff}{LONG}"));
    }

    #[test]
    fn a_part_of_a_structure_is_read_exactly() {
        #[derive(Deserialize)]
        struct Sample {
            arguments: Option<Exact<Value>>,
            meta: Box<RawValue>,
        }
        let text = format!(r#"{{"arguments":{{"id":{LONG}}},"meta":{{"id": {LONG}}}}}"#);
        let Sample { arguments, meta } = serde_json::from_str(&text).unwrap();
        assert_eq!(to_exact_string(&arguments.unwrap().0).unwrap(), format!(r#"{{"id":{LONG}}}"#));
        assert_eq!(meta.get(), format!(r#"{{"id": {LONG}}}"#));
        let sample: Sample = serde_json::from_str(r#"{"arguments":null,"meta":1}"#).unwrap();
        assert!(sample.arguments.is_none());
        let error = serde_json::from_str::<Exact<u8>>(" \"x\"").unwrap_err();
        assert_eq!(error.to_string(), "invalid type: string \"x\", expected u8");
    }

    #[test]
    fn numbers_that_are_no_integers_stay_floats() {
        for text in ["1234567890123456789012.5", "123456789012345678901e2", "1.2345678901234567890123"] {
            assert_eq!(parse_exact::<Value>(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in [
            &format!("{{{LONG}:1}}"),
            &format!(r#"{{"a":1,{LONG} : 1}}"#),
            &format!("0{LONG}"),
            &format!("+{LONG}"),
            &format!("[{LONG}"),
            &format!("true{LONG}"),
            &format!("--{LONG}"),
        ] {
            assert!(parse_exact::<Value>(text).is_err(), "{text}");
        }
        // The position is that of the text, not of the marked one.
        let error = parse_exact::<Value>(&format!("[{LONG},]")).unwrap_err();
        assert_eq!(error.column(), LONG.len() + 3);
    }

    #[test]
    fn a_forged_mark_is_replaced() {
        for text in [format!("[\"\u{10ffff}{LONG}\"]"), format!(r#"["\udbff\uDFFF{LONG}"]"#)] {
            assert_eq!(parse_exact::<Value>(&text).unwrap(), json!([format!("\u{fffd}{LONG}")]), "{text}");
        }
        let escaped_digit = format!(r#"["\udbff\udfff\u0031{LONG}", {LONG}]"#);
        let expected = json!([format!("\u{fffd}1{LONG}"), format!("\u{10ffff}{LONG}")]);
        assert_eq!(parse_exact::<Value>(&escaped_digit).unwrap(), expected);
    }

    #[test]
    fn other_strings_keep_the_character_of_the_mark() {
        for text in [
            "\u{10ffff}".to_owned(),
            "a\u{10ffff}b".to_owned(),
            "\u{10ffff}1".to_owned(),
            "\u{10ffff}\\n".to_owned(),
            format!("\u{10ffff}{LONG}x"),
            format!("a\u{10ffff}{LONG}"),
            format!("\u{10ffff}\u{10ffff}{LONG}"),
            format!("\\\"\u{10ffff}{LONG}\\\""),
            format!("\\\\\u{10ffff}{LONG}"),
        ] {
            let document = format!(r#"{{"a":["{text}",{LONG}],"{text}":1}}"#);
            let value: Value = parse_exact(&document).unwrap();
            let plain: Value = serde_json::from_str(&document).unwrap();
            assert_eq!(value["a"][0], plain["a"][0], "{document}");
            assert_eq!(to_exact_string(&value).unwrap(), document);
            let escaped = document.replace('\u{10ffff}', r"\uDBFF\udfff");
            assert_eq!(parse_exact::<Value>(&escaped).unwrap(), value, "{escaped}");
        }
    }

    #[test]
    fn marks_in_other_places_are_not_written_as_numbers() {
        for value in [
            json!({format!("\u{10ffff}{LONG}"): 1}),
            json!(format!("a\"\u{10ffff}{LONG}")),
            json!(format!("\"\u{10ffff}{LONG}\"")),
            json!(format!("\u{10ffff}{LONG}x")),
            json!("\u{10ffff}12"),
            json!("\u{10ffff}"),
        ] {
            assert_eq!(to_exact_string(&value).unwrap(), value.to_string());
        }
    }

    #[test]
    fn a_long_integer_is_also_text_and_a_float() {
        let value: Value = parse_exact(&format!(r#"{{"a":[{LONG}],"b":"x"}}"#)).unwrap();
        assert_eq!(plain_text(&value["a"][0]), LONG);
        assert_eq!(plain_text(&value["a"]), format!("[{LONG}]"));
        assert_eq!(plain_text(&value["b"]), "x");
        assert_eq!(approximate(&value), Some(json!({"a": [1.2345678901234568e29], "b": "x"})));
        assert_eq!(approximate(&json!({"a": [1, "x"]})), None);
        assert_eq!(as_float(&value["a"][0]), Some(1.2345678901234568e29));
        assert_eq!((as_float(&json!(2)), as_float(&json!("2"))), (Some(2.0), None));
        assert_eq!(approximate(&parse_integer(&"9".repeat(400)).unwrap()), Some(json!(f64::MAX)));
        assert_eq!(parse_integer("12"), Some(json!(12)));
        assert_eq!(parse_integer("12.5"), None);
        let pretty = to_exact_string_pretty(&value).unwrap();
        assert_eq!(pretty.split_whitespace().collect::<String>(), to_exact_string(&value).unwrap());
    }
}
