//! Finding one's way in a schema that comes from outside: references, alternatives, lists.

use serde_json::Value;

use crate::json::follow_reference;

const MAX_REFERENCE_HOPS: usize = 8;
const MAX_ALTERNATIVES: usize = 12;

/// Where local references lead; the schema itself where they lead nowhere.
pub fn resolve_references<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..MAX_REFERENCE_HOPS {
        match at.get("$ref").and_then(Value::as_str).and_then(|reference| follow_reference(root, reference)) {
            Some(target) => at = target,
            None => return at,
        }
    }
    at
}

/// The alternatives that are not null, where there are any.
pub fn non_null_alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let all = array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf")).take(MAX_ALTERNATIVES);
    let is_null = |one: &Value| one.get("type").and_then(Value::as_str) == Some("null");
    all.map(|one| resolve_references(root, one)).filter(|one| !is_null(one)).collect()
}

/// What may be left out is often written as one of two, a value or null: the value then, else the schema itself.
pub fn sole_alternative<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match non_null_alternatives(root, schema)[..] {
        [only] => only,
        _ => schema,
    }
}

/// What a schema says under a key that holds a list.
pub fn array_at<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
