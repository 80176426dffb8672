//! Conversion of text into typed arguments, for the command line and for workflow steps. Lenient: a text that does not
//! fit its type stays text, and the validation explains why it is wrong.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use toolcrib_core::json::{long_integer, parse_exact};

use crate::alternatives::sole_alternative;
use crate::keywords::array_at;
use crate::reference::{reference_text, resolve_reference};
use crate::types::{JSON_TYPES, declared_types, type_name};

/// Parses `text` as the type of the property `key`. Text stays a string if the schema does not restrict the type. Used
/// for `toolcrib call TOOL key=value` and for text arguments of workflow steps.
pub fn parse_typed(schema: &Value, key: &str, text: &str) -> Value {
    ArgumentTypes::new(schema, find_property(schema, key)).parse(text)
}

/// Parses each text as the type of the items of the property `key`, which is a list.
pub fn parse_typed_items(schema: &Value, key: &str, texts: &[String]) -> Value {
    let list = find_property(schema, key).map(|property| sole_alternative(schema, property));
    let types = ArgumentTypes::new(schema, list.and_then(|list| list.get("items")));
    texts.iter().map(|text| types.parse(text)).collect()
}

/// Returns the types that the property `key` may have; empty if the schema does not restrict them.
pub fn property_types(schema: &Value, key: &str) -> Vec<String> {
    find_property(schema, key).map(|property| allowed_types(schema, property)).unwrap_or_default()
}

/// Returns the schema of a property at the top level.
fn find_property<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get("properties").and_then(|properties| properties.get(key))
}

/// Types of a value and of the items of a list. Computed once, however many items a text has.
struct ArgumentTypes {
    types: Vec<String>,
    items: Option<Box<ArgumentTypes>>,
}

impl ArgumentTypes {
    /// Recurses through nested `items` and follows no reference to them, so the depth is that of the schema's text.
    fn new(root: &Value, property: Option<&Value>) -> ArgumentTypes {
        let items = property.and_then(|property| property.get("items"));
        ArgumentTypes {
            types: property.map(|property| allowed_types(root, property)).unwrap_or_default(),
            items: items.map(|items| Box::new(ArgumentTypes::new(root, Some(items)))),
        }
    }

    /// Parses JSON where the types allow it, a comma-separated list where only an array is allowed, and else returns
    /// the text.
    fn parse(&self, text: &str) -> Value {
        let allows = |name: &str| self.types.iter().any(|allowed| allowed == name);
        let parsed: Option<Value> = parse_exact(text).ok();
        match parsed {
            // JSON is only taken as such if the schema allows its type: `7` for a string stays text.
            Some(Value::Number(number)) if allows("integer") && (number.is_i64() || number.is_u64()) => number.into(),
            Some(Value::Number(number)) if allows("number") => number.into(),
            Some(integer) if long_integer(&integer).is_some() && (allows("integer") || allows("number")) => integer,
            Some(Value::Bool(value)) if allows("boolean") => value.into(),
            Some(Value::Null) if allows("null") => Value::Null,
            Some(Value::Array(items)) if allows("array") => items.into(),
            Some(Value::Object(fields)) if allows("object") => fields.into(),
            // `a,b` for a list of strings, as people type it.
            _ if allows("array") && !allows("string") => {
                let parse = |item: &str| self.items.as_ref().map_or_else(|| item.into(), |items| items.parse(item));
                text.split(',').map(parse).collect()
            }
            _ => text.into(),
        }
    }
}

/// Returns the types a property may have, through local references and alternatives. Each node of the schema is read
/// once and only known types are kept, so the work is linear in the schema, however its references are arranged.
fn allowed_types(root: &Value, property: &Value) -> Vec<String> {
    let mut types: BTreeSet<&str> = BTreeSet::new();
    let mut seen: HashSet<*const Value> = HashSet::new();
    let mut pending = vec![property];
    while let Some(schema) = pending.pop() {
        // Cycles and shared definitions.
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        // A reference replaces the schema; keywords beside it are ignored here.
        if let Some(reference) = reference_text(schema) {
            pending.extend(resolve_reference(root, reference));
            continue;
        }
        types.extend(declared_types(schema.get("type")));
        // Listed values imply types.
        let constants = array_at(schema, "enum").iter().chain(schema.get("const"));
        for constant in constants {
            types.insert(type_name(constant));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            pending.extend(array_at(schema, key));
        }
    }
    JSON_TYPES.into_iter().filter(|name| types.contains(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_typed_by_the_schema() {
        const LONG: &str = "123456789012345678901234567890";
        let schema = json!({
            "properties": {
                "n": {"type": "integer"}, "f": {"type": ["number", "null"]}, "s": {"type": "string"},
                "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "r": {"$ref": "#/$defs/n"},
                "l": {"type": "array", "items": {"type": "integer"}}, "e": {"enum": ["a", 1]}, "o": {"type": "object"},
                "ll": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                "nl": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
                "lr": {"type": "array", "items": {"$ref": "#/definitions/n"}},
            },
            "definitions": {"n": {"type": "integer"}},
            "$defs": {"n": {"type": "number"}},
        });
        for (key, text, value) in [
            ("n", "7", json!(7)),
            ("n", "7.5", json!("7.5")),
            ("n", LONG, parse_exact(LONG).unwrap()),
            ("f", LONG, parse_exact(LONG).unwrap()),
            ("s", LONG, json!(LONG)),
            ("l", LONG, json!([parse_exact::<Value>(LONG).unwrap()])),
            ("n", "1e30", json!("1e30")),
            ("f", "7.5", json!(7.5)),
            ("f", "null", json!(null)),
            ("s", "7", json!("7")),
            ("b", "true", json!(true)),
            ("r", "1", json!(1)),
            ("l", "[1,2]", json!([1, 2])),
            ("l", "1,2", json!([1, 2])),
            ("e", "1", json!(1)),
            ("e", "a", json!("a")),
            ("o", "{\"x\":1}", json!({"x": 1})),
            ("ll", "1,2", json!([[1], [2]])),
            ("lr", "1,2", json!([1, 2])),
            ("unknown", "7", json!("7")),
        ] {
            assert_eq!(parse_typed(&schema, key, text), value, "{key}={text}");
        }
        let items = |key| parse_typed_items(&schema, key, &["1".to_owned(), "a".to_owned()]);
        assert_eq!((items("l"), items("nl"), items("s")), (json!([1, "a"]), json!([1, "a"]), json!(["1", "a"])));
    }
}
