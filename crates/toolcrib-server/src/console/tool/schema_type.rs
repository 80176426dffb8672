//! Determines the JSON type that a schema allows.

use serde_json::Value;
use toolcrib::schema::non_null_alternatives;

/// Returns the only type besides `null` that a schema allows; `None` if there are several. Looks at `type`, else at the
/// types of the alternatives (`anyOf`, `oneOf`).
pub(super) fn single_type<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a str> {
    let mut names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => non_null_alternatives(root, schema)
            .iter()
            .filter_map(|alternative| alternative.get("type")?.as_str())
            .collect(),
    };
    names.retain(|name| *name != "null");
    names.dedup();
    match names[..] {
        // Alternatives that are objects or arrays differ in their properties, which a common type does not tell.
        [only] if schema.get("type").is_some() || !matches!(only, "object" | "array") => Some(only),
        _ => None,
    }
}
