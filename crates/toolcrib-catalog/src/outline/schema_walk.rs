//! Navigation in untrusted schemas: references, alternatives, lists. Also used for the example arguments of the
//! console. Never fails: an unresolvable part is returned as it is.

use serde_json::Value;
use toolcrib_core::json::follow_reference;

/// Maximum length of a chain of references. A longer chain, such as a cycle, ends at the schema that was reached.
const MAX_REFERENCE_HOPS: usize = 8;
/// Maximum number of alternatives that are read.
const MAX_ALTERNATIVES: usize = 12;

/// Follows local references to the schema they lead to. An unresolvable reference is returned itself.
pub fn resolve_references<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut current = schema;
    for _ in 0..MAX_REFERENCE_HOPS {
        match current.get("$ref").and_then(Value::as_str).and_then(|reference| follow_reference(root, reference)) {
            Some(target) => current = target,
            None => return current,
        }
    }
    current
}

/// Returns the alternatives (`anyOf`, `oneOf`) that are not null.
pub fn non_null_alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let all = array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf")).take(MAX_ALTERNATIVES);
    let is_null = |alternative: &Value| alternative.get("type").and_then(Value::as_str) == Some("null");
    all.map(|alternative| resolve_references(root, alternative)).filter(|alternative| !is_null(alternative)).collect()
}

/// Unwraps an optional value, which many generators write as an alternative of a value and null: returns the only
/// non-null alternative, or the schema itself.
pub fn sole_alternative<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match non_null_alternatives(root, schema)[..] {
        [only] => only,
        _ => schema,
    }
}

/// Returns the array under a key, or an empty slice.
pub fn array_at<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
