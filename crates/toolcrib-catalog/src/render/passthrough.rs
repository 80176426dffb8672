//! Formats that accept JSON Schema except for restrictions at the top level: Anthropic's and OpenAI's functions. Most
//! schemas pass through as their stored text; only those that the provider would reject are edited. The test for that
//! is a scan of the top level, which is much cheaper than parsing every schema of a list.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolcrib_core::json::{self, RawFields};
use toolcrib_schema::declared_types;

use super::limits;
use super::projection::{
    Loss, ProjectionContext, ProjectionResult, Unsupported, child_pointer, required_names, to_bounded_string,
};
use super::root;

/// Restrictions of one provider.
pub(super) struct RootRules {
    /// Keywords that are rejected at the top level.
    pub(super) forbidden_at_root: &'static [&'static str],
    /// Whether the provider accepts the name of a top-level argument.
    pub(super) is_argument_name: fn(&str) -> bool,
    /// Whether arrays need `items` and the top level needs `properties`.
    pub(super) requires_contents: bool,
}

/// See `docs/formats.md` for the evidence.
pub(super) const ANTHROPIC_RULES: RootRules = RootRules {
    forbidden_at_root: &limits::ANTHROPIC_FORBIDDEN_AT_ROOT,
    is_argument_name: limits::is_anthropic_argument_name,
    requires_contents: false,
};

/// See `docs/formats.md` for the evidence.
pub(super) const OPENAI_RULES: RootRules = RootRules {
    forbidden_at_root: &limits::OPENAI_FORBIDDEN_AT_ROOT,
    is_argument_name: |_| true,
    requires_contents: true,
};

/// Returns the schema as text, and the losses.
pub(super) fn project_schema(raw: &RawValue, rules: &RootRules) -> (ProjectionResult<String>, Vec<Loss>) {
    if is_supported(raw, rules) {
        return (Ok(raw.get().to_owned()), Vec::new());
    }
    let schema: Value = json::parse_exact(raw.get()).unwrap_or_default();
    let mut context = ProjectionContext::new(&schema, usize::MAX);
    let edited = edit_schema(&schema, rules, &mut context).and_then(|schema| to_bounded_string(&schema));
    (edited, context.into_losses())
}

/// Whether the provider accepts the schema as it is. Scans the text and parses it only if it contains arrays.
fn is_supported(raw: &RawValue, rules: &RootRules) -> bool {
    // Works on the raw text of the top level; only arrays need the parsed schema.
    let Some(fields) = RawFields::parse(raw) else { return false };
    let is_object = fields.get("type").is_some_and(|name| name.get() == "\"object\"");
    let is_forbidden = |key: &str| key == "$ref" || rules.forbidden_at_root.contains(&key);
    let arguments = fields.get("properties").map(RawFields::parse);
    let has_legal_names = |arguments: &RawFields| arguments.iter().all(|(name, _)| (rules.is_argument_name)(name));
    // A text search for "array" avoids parsing schemas without arrays; a false hit only costs time.
    let lacks_contents = rules.requires_contents
        && (arguments.is_none()
            || raw.get().contains("\"array\"") && lacks_items(&serde_json::from_str(raw.get()).unwrap_or_default()));
    is_object
        && !lacks_contents
        && !fields.iter().any(|(key, _)| is_forbidden(key))
        && arguments.is_none_or(|arguments| arguments.as_ref().is_some_and(has_legal_names))
}

/// Edits a schema that the provider would reject.
fn edit_schema(schema: &Value, rules: &RootRules, context: &mut ProjectionContext<'_>) -> ProjectionResult<Value> {
    let mut keywords = root::to_object_schema(schema, context)?;
    // `to_object_schema` merged alternatives already; this drops the rest, such as `not`.
    for keyword in rules.forbidden_at_root {
        if let Some(value) = keywords.shift_remove(*keyword) {
            context.record_dropped_keyword("", keyword, &value);
        }
    }
    drop_illegal_arguments(&mut keywords, rules.is_argument_name, context)?;
    let mut schema = Value::Object(keywords);
    if rules.requires_contents {
        add_missing_items(&mut schema);
    }
    Ok(schema)
}

/// Removes arguments whose names the provider rejects. Fails if one of them is required.
pub(super) fn drop_illegal_arguments(
    keywords: &mut Map<String, Value>,
    is_legal: fn(&str) -> bool,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    let Some(arguments) = keywords.get("properties").and_then(Value::as_object) else { return Ok(()) };
    // Names cannot be changed, because calls come back with them.
    let required = required_names(keywords);
    for name in arguments.keys().filter(|name| !is_legal(name)) {
        let path = child_pointer("/properties", name);
        if required.contains(name.as_str()) {
            return Err(Unsupported::new(&path, "this name is not supported, and the argument is required"));
        }
        context.record_loss(&path, "this name is not supported; optional, dropped");
    }
    if let Some(arguments) = keywords.get_mut("properties").and_then(Value::as_object_mut) {
        arguments.retain(|name, _| is_legal(name));
    }
    Ok(())
}

/// Whether `type` allows arrays, also beside others: `["array", "null"]` needs `items` too.
fn allows_array(schema: &Map<String, Value>) -> bool {
    declared_types(schema.get("type")).any(|name| name == "array")
}

/// Whether an array anywhere in the schema has no `items`. Follows no references, so each node is visited once; so does
/// [`add_missing_items`].
fn lacks_items(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => {
            (allows_array(keywords) && !keywords.contains_key("items")) || keywords.values().any(lacks_items)
        }
        Value::Array(parts) => parts.iter().any(lacks_items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Adds empty `items` to arrays without any.
fn add_missing_items(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            if allows_array(keywords) {
                keywords.entry("items").or_insert_with(|| json!({}));
            }
            keywords.values_mut().for_each(add_missing_items);
        }
        Value::Array(parts) => parts.iter_mut().for_each(add_missing_items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
