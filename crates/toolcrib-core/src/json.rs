//! JSON as text: fields in their order, canonical form and depth, without turning numbers into floats.

mod parse_error;
mod surrogates;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::fingerprint::Fingerprint;

pub use parse_error::describe_error;
pub use surrogates::replace_lone_surrogates;

/// An object's fields as text, in their order. Of a name given twice, the last counts.
#[derive(Debug, Clone, Default)]
pub struct RawFields(Vec<(String, Box<RawValue>)>);

impl RawFields {
    pub fn parse(raw: &RawValue) -> Option<RawFields> {
        serde_json::from_str(raw.get()).ok()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(index).1)
    }

    pub fn insert(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Adds all of another's. Takes time in proportion to both, for there may be very many.
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

    /// Of the canonical form.
    pub fn fingerprint(&self) -> Fingerprint {
        let sorted: BTreeMap<&str, &RawValue> = self.iter().collect();
        let mut text = String::new();
        push_object(sorted.into_iter(), &mut text);
        Fingerprint::digest(text)
    }

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
                // By position, for whoever sends an object may have sent very many fields.
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

/// Text as a JSON string.
pub fn raw_string(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).unwrap_or_default()
}

/// Longest local reference that is followed, in bytes. Looking one up takes time in proportion to its length, and a short
/// schema may lead to the same long one thousands of times.
const MAX_REFERENCE_LEN: usize = 1_000;

/// The value that a local reference such as `#/$defs/place` leads to.
pub(crate) fn follow_reference<'a>(root: &'a serde_json::Value, reference: &str) -> Option<&'a serde_json::Value> {
    let pointer = reference.strip_prefix('#')?;
    if reference.len() > MAX_REFERENCE_LEN { None } else { root.pointer(pointer) }
}

/// The beginning of a value's text, about `most` bytes of it. No more is written, however large the value is.
pub fn truncated_json(value: &impl Serialize, most: usize) -> String {
    struct LimitedWriter {
        text: Vec<u8>,
        limit: usize,
    }
    impl std::io::Write for LimitedWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = self.limit - self.text.len();
            if room == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            let taken = room.min(bytes.len());
            self.text.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut short = LimitedWriter { text: Vec::new(), limit: most };
    // It fails where it is full, which is what is wanted.
    let _full = serde_json::to_writer(&mut short, value);
    // The cut may fall inside of a character.
    match String::from_utf8(short.text) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned(),
    }
}

/// Appends the canonical form: keys sorted by their bytes, no white space, strings in one spelling, numbers as written.
/// Expects text no deeper than a schema may be (64), for it recurses, and reads every level's text once more.
pub(crate) fn push_canonical(raw: &RawValue, into: &mut String) {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            push_object(object.iter().map(|(key, value)| (key.as_str(), *value)), into);
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                push_canonical(item, into);
            }
            into.push(']');
        }
        // A lone surrogate is no string for us; its text still tells it apart from others.
        Some(b'"') => match serde_json::from_str::<String>(text) {
            Ok(string) => push_json_string(&string, into),
            Err(_) => into.push_str(text),
        },
        _ => into.push_str(text),
    }
}

fn push_object<'a>(sorted: impl Iterator<Item = (&'a str, &'a RawValue)>, into: &mut String) {
    into.push('{');
    for (index, (key, value)) in sorted.enumerate() {
        if index > 0 {
            into.push(',');
        }
        push_json_string(key, into);
        into.push(':');
        push_canonical(value, into);
    }
    into.push('}');
}

pub(crate) fn push_json_string(text: &str, into: &mut String) {
    let plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if !plain {
        return into.push_str(&serde_json::Value::from(text).to_string());
    }
    into.push('"');
    into.push_str(text);
    into.push('"');
}

/// The deepest nesting of objects and arrays, found without recursion.
pub(crate) fn nesting_depth(text: &str) -> usize {
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

    fn to_canonical(text: &str) -> String {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let mut canonical_text = String::new();
        push_canonical(raw, &mut canonical_text);
        canonical_text
    }

    #[test]
    fn order_and_white_space_do_not_matter_but_numbers_stay_as_written() {
        assert_eq!(
            to_canonical(r#"{ "b" : [1, 2.50, 123456789012345678901234567890], "a": "\u00e9" }"#),
            r#"{"a":"é","b":[1,2.50,123456789012345678901234567890]}"#
        );
        assert_eq!(to_canonical(r#"{"a":1,"b":2}"#), to_canonical(r#"{"b":2,"a":1}"#));
    }

    #[test]
    fn fields_keep_their_order_and_the_last_of_two_counts() {
        let fields: RawFields = serde_json::from_str(r#"{"b":1,"a":{"x": 2},"b":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"b":3,"a":{"x": 2}}"#);
        let many: String = (0..200_000).map(|number| format!(r#""{number}":0,"#)).collect();
        let fields: RawFields = serde_json::from_str(&format!("{{{many}\"end\":1}}")).unwrap();
        assert_eq!(fields.iter().count(), 200_001);
    }

    #[test]
    fn a_local_reference_is_followed_unless_it_is_long() {
        let long = "n".repeat(MAX_REFERENCE_LEN);
        let root = serde_json::json!({ "a/b": { "c~": [7] }, &long: 7 });
        assert_eq!(follow_reference(&root, "#/a~1b/c~0/0"), Some(&serde_json::json!(7)));
        assert_eq!(follow_reference(&root, "#"), Some(&root));
        for reference in ["", "/a~1b", "#/nowhere", "https://x.y/z", &format!("#/{long}")] {
            assert_eq!(follow_reference(&root, reference), None, "{reference}");
        }
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
