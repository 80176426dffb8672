//! Deserializes JSON into an untyped value without examples. They are most of a large document, and no tool needs them.
//! The values are skipped while parsing, so they never take memory.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use toolcrib_core::json::mark_integers;

use super::super::key_kind::KeyKind;

/// Parses JSON and drops all values of `example` and `examples` keywords.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    match mark_integers(text) {
        Cow::Borrowed(text) => parse_marked(text),
        // The positions in an error must be those of the original text.
        Cow::Owned(marked) => parse_marked(&marked).or_else(|_| parse_marked(text)),
    }
}

fn parse_marked(text: &str) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = ExampleStripper(KeyKind::Keywords).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Deserializes a value whose keys are of the given kind.
#[derive(Clone, Copy)]
struct ExampleStripper(KeyKind);

// A seed passes the kind of keys down to nested values.
impl<'de> DeserializeSeed<'de> for ExampleStripper {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ExampleStripper {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Infinite numbers cannot be JSON.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let items_seed = ExampleStripper(self.0.in_array());
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(items_seed)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            // Skips the value without building it.
            if self.0 == KeyKind::Keywords && matches!(key.as_str(), "example" | "examples") {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(ExampleStripper(self.0.under_key(&key)))?;
            fields.insert(key, value);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn examples_are_dropped_and_properties_named_so_stay() {
        let text = json!({
            "example": 1, "a": [1.5, -2, true, null, "x", { "examples": [1] }],
            "properties": { "example": { "type": "string", "example": "x" }, "properties": { "examples": {}, "type": "object" } },
            "default": { "example": { "example": 1 } }, "enum": [{ "example": 1 }],
            "security": [{ "example": [] }],
            "components": { "examples": { "x": {} }, "schemas": { "example": { "type": "null" } } },
            "paths": { "/example": { "get": { "responses": { "200": { "content": { "a/b": { "example": {} } } } } } } },
        });
        let expected = json!({
            "a": [1.5, -2, true, null, "x", {}],
            "properties": { "example": { "type": "string" }, "properties": { "type": "object" } },
            "default": { "example": { "example": 1 } }, "enum": [{ "example": 1 }],
            "security": [{ "example": [] }],
            "components": { "schemas": { "example": { "type": "null" } } },
            "paths": { "/example": { "get": { "responses": { "200": { "content": { "a/b": {} } } } } } },
        });
        assert_eq!(parse(&text.to_string()).unwrap(), expected);
        for invalid in ["{", "{} x", "[1,]", "1e", "\"\\ud800\""] {
            assert_eq!(parse(invalid).is_err(), serde_json::from_str::<Value>(invalid).is_err(), "{invalid}");
        }
    }
}
