//! Finding one's way in a schema that comes from outside: references, alternatives, types.

use serde_json::Value;

const MOST_ALTERNATIVES: usize = 8;

/// Where local references lead; the schema itself where they lead nowhere.
pub(super) fn followed<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    const HOPS: usize = 8;
    let mut at = schema;
    for _ in 0..HOPS {
        let reference = at.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match reference.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => at = target,
            None => return at,
        }
    }
    at
}

/// The alternatives that are not null, where there are any.
pub(super) fn alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let all = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let all = all.take(MOST_ALTERNATIVES).map(|one| followed(root, one));
    all.filter(|one| one.get("type").and_then(Value::as_str) != Some("null")).collect()
}

/// What may be left out is often written as one of two, a value or null: the value then, else the schema itself.
pub(super) fn sole<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match alternatives(root, schema)[..] {
        [only] => only,
        _ => schema,
    }
}

/// The one type that is not null; none where there are several.
pub(super) fn type_of<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a str> {
    let mut names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => alternatives(root, schema).iter().filter_map(|one| one.get("type")?.as_str()).collect(),
    };
    names.retain(|name| *name != "null");
    names.dedup();
    match names[..] {
        // Alternatives may be objects, whose fields are not those of the whole.
        [only] if schema.get("type").is_some() || !matches!(only, "object" | "array") => Some(only),
        _ => None,
    }
}

/// What a schema says under a key that holds a list.
pub(super) fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
