//! What type a value has, by a schema that comes from outside.

use serde_json::Value;
use toolcrib::core::outline::schema_walk::non_null_alternatives;

/// The one type that is not null; none where there are several.
pub(super) fn single_type<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a str> {
    let mut names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => non_null_alternatives(root, schema).iter().filter_map(|one| one.get("type")?.as_str()).collect(),
    };
    names.retain(|name| *name != "null");
    names.dedup();
    match names[..] {
        // Alternatives may be objects, whose fields are not those of the whole.
        [only] if schema.get("type").is_some() || !matches!(only, "object" | "array") => Some(only),
        _ => None,
    }
}
