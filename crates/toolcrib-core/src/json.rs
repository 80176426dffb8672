//! JSON as text: fields in order, canonical form, nesting depth. Numbers keep their digits, as they are never parsed to
//! floats.
//!
//! Values from a source are kept as the text that it sent ([`RawValue`]): parsing to `serde_json::Value` would turn a
//! number of 30 digits into a float, and fails for nesting deeper than 127 levels. Where a `Value` is needed,
//! [`parse_exact`] keeps the digits of integers. The canonical form is what fingerprints are computed from:
//!
//! ```text
//! {"b": 1.0, "a": "\u0041"}    becomes    {"a":"A","b":1.0}
//! ```
//!
//! Everything here may get hostile input. Functions are linear in the text, or say what bounds them.

mod exact;
mod parse_error;
mod pointer;
mod surrogates;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::fingerprint::Fingerprint;

pub use exact::{
    Exact, approximate, as_float, long_integer, mark_integers, parse_exact, parse_integer, plain_text, to_exact_raw,
    to_exact_string, to_exact_string_pretty,
};
pub use parse_error::describe_error;
pub use pointer::{escape_pointer_token, unescape_pointer_token};
pub use surrogates::replace_lone_surrogates;

/// Fields of a JSON object as raw text, in order. Of duplicate names, the last value counts.
/// Names are decoded, values are not. A duplicate name keeps the position of its first occurrence.
#[derive(Debug, Clone, Default)]
pub struct RawFields(Vec<(String, Box<RawValue>)>);

impl RawFields {
    /// Parses an object; `None` for any other value.
    /// Also `None` for an object with a name that is not valid Unicode.
    pub fn parse(raw: &RawValue) -> Option<RawFields> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a field's value. Linear search: objects here usually have few fields.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Removes a field and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(index).1)
    }

    /// Sets a field: replaces its value or appends it.
    pub fn insert(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Sets all fields of another object. Takes linear time, because untrusted objects can have very many fields.
    pub fn extend(&mut self, others: &RawFields) {
        let mut positions: HashMap<String, usize> =
            self.0.iter().enumerate().map(|(position, (key, _))| (key.clone(), position)).collect();
        for (key, value) in &others.0 {
            match positions.get(key) {
                Some(&position) => self.0[position].1 = value.clone(),
                None => {
                    positions.insert(key.clone(), self.0.len());
                    self.0.push((key.clone(), value.clone()));
                }
            }
        }
    }

    /// Fingerprint of the canonical form: independent of the order of fields and of white space.
    pub fn fingerprint(&self) -> Fingerprint {
        let sorted: BTreeMap<&str, &RawValue> = self.iter().collect();
        let mut text = String::new();
        push_object(sorted.into_iter(), &mut text);
        Fingerprint::digest(text)
    }

    /// Iterates over the fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), &**value))
    }
}

impl Serialize for RawFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for RawFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawFieldsVisitor;
        impl<'de> Visitor<'de> for RawFieldsVisitor {
            type Value = RawFields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawFields, M::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                // Finds duplicates in constant time, as an untrusted object may have very many fields.
                let mut positions: HashMap<String, usize> = HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    match positions.get(&key) {
                        Some(&position) => fields[position].1 = value,
                        None => {
                            positions.insert(key.clone(), fields.len());
                            fields.push((key, value));
                        }
                    }
                }
                Ok(RawFields(fields))
            }
        }
        deserializer.deserialize_map(RawFieldsVisitor)
    }
}

/// Encodes a text as a JSON string.
pub fn raw_string(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).unwrap_or_default()
}

/// Serialises a value and returns about the first `limit` bytes. Stops there, so that large values cost no more.
/// The result is cut and so usually no valid JSON: it is for messages and for measuring whether a value is short.
pub fn truncated_json(value: &impl Serialize, limit: usize) -> String {
    /// Fails once `limit` bytes are written.
    struct LimitedWriter {
        text: Vec<u8>,
        limit: usize,
    }
    impl std::io::Write for LimitedWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let remaining = self.limit - self.text.len();
            if remaining == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            let written = remaining.min(bytes.len());
            self.text.extend_from_slice(&bytes[..written]);
            Ok(written)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = LimitedWriter { text: Vec::new(), limit };
    // An error means that the limit is reached; the text up to there is the result.
    let _ = serde_json::to_writer(&mut writer, value);
    // The limit may fall inside a character.
    let text = String::from_utf8(writer.text).unwrap_or_else(|error| {
        String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned()
    });
    exact::unmark_integers(text)
}

/// Appends the canonical form: keys sorted by bytes, no white space, strings in one spelling, numbers as written.
/// Of duplicate keys the last value counts, as in [`RawFields`]. Numbers are not normalised: `1` and `1.0` differ.
/// Recursive, and parses each level again: callers limit the depth first (64 for schemas).
pub fn push_canonical(raw: &RawValue, out: &mut String) {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            push_object(object.iter().map(|(key, value)| (key.as_str(), *value)), out);
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_canonical(item, out);
            }
            out.push(']');
        }
        // A string with a lone surrogate cannot be decoded; its text still distinguishes it from others.
        Some(b'"') => match serde_json::from_str::<String>(text) {
            Ok(string) => push_json_string(&string, out),
            Err(_) => out.push_str(text),
        },
        _ => out.push_str(text),
    }
}

/// Appends an object whose keys are sorted.
fn push_object<'a>(sorted: impl Iterator<Item = (&'a str, &'a RawValue)>, out: &mut String) {
    out.push('{');
    for (index, (key, value)) in sorted.enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_json_string(key, out);
        out.push(':');
        push_canonical(value, out);
    }
    out.push('}');
}

/// Appends a text as a JSON string. The common case needs no escapes and is copied.
pub fn push_json_string(text: &str, out: &mut String) {
    // Control characters, quotes and backslashes need escapes; all else is valid in JSON as it is.
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if !is_plain {
        return out.push_str(&serde_json::Value::from(text).to_string());
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Maximum nesting of objects and arrays, determined without recursion or parsing.
/// Used before anything that recurses. Brackets inside of strings do not count; for text that is no JSON the result is
/// meaningless, but harmless.
pub fn nesting_depth(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0_usize;
    let mut strings = StringTracker::default();
    for byte in text.bytes() {
        match byte {
            _ if strings.is_in_string(byte.into()) => {}
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

/// Removes white space between tokens; the order of keys stays.
/// The text must be valid JSON. Stored and listed schemas are compact.
pub fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let mut strings = StringTracker::default();
    compact
        .extend(text.chars().filter(|character| strings.is_in_string(*character) || !character.is_ascii_whitespace()));
    compact
}

/// Tells which characters of a JSON text belong to a string.
#[derive(Default)]
struct StringTracker {
    in_string: bool,
    escaped: bool,
}

impl StringTracker {
    /// Reads the next character. Returns whether it belongs to a string, quotes included.
    fn is_in_string(&mut self, character: char) -> bool {
        if !self.in_string {
            self.in_string = character == '"';
            return self.in_string;
        }
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => self.in_string = false,
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_canonical(text: &str) -> String {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let mut canonical_text = String::new();
        push_canonical(raw, &mut canonical_text);
        canonical_text
    }

    #[test]
    fn canonical_form_ignores_order_and_white_space_but_keeps_numbers() {
        assert_eq!(
            to_canonical(r#"{ "b" : [1, 2.50, 123456789012345678901234567890], "a": "\u00e9" }"#),
            r#"{"a":"é","b":[1,2.50,123456789012345678901234567890]}"#
        );
        assert_eq!(to_canonical(r#"{"a":1,"b":2}"#), to_canonical(r#"{"b":2,"a":1}"#));
    }

    #[test]
    fn fields_keep_their_order_and_the_last_duplicate_wins() {
        let fields: RawFields = serde_json::from_str(r#"{"b":1,"a":{"x": 2},"b":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"b":3,"a":{"x": 2}}"#);
        let many: String = (0..200_000).map(|number| format!(r#""{number}":0,"#)).collect();
        let fields: RawFields = serde_json::from_str(&format!("{{{many}\"end\":1}}")).unwrap();
        assert_eq!(fields.iter().count(), 200_001);
    }

    #[test]
    fn truncated_json_has_the_digits_of_integers() {
        let value: serde_json::Value = parse_exact("[123456789012345678901,1]").unwrap();
        assert_eq!(truncated_json(&value, 100), "[123456789012345678901,1]");
        assert_eq!(truncated_json(&value, 1), "[");
    }

    #[test]
    fn depth_counts_nesting_outside_strings() {
        assert_eq!(nesting_depth("1"), 0);
        assert_eq!(nesting_depth(r#"{"a":[{"b":"[[[\"{{"}]}"#), 3);
        assert_eq!(nesting_depth(&("[".repeat(100_000) + &"]".repeat(100_000))), 100_000);
    }

    #[test]
    fn compact_keeps_strings_and_order() {
        assert_eq!(compact("{ \"b\" : \" x \\\" y \",\n \"a\": 1 }"), r#"{"b":" x \" y ","a":1}"#);
    }
}
