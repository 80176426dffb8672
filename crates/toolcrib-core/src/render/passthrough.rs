//! Formats that take JSON Schema as it is, but for its top: Anthropic's and OpenAI's functions. Most schemas pass as the
//! text they are stored as; only one that would be refused is edited.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits;
use super::projection::{
    Loss, ProjectionContext, ProjectionResult, Unsupported, child_pointer, required_names, to_bounded_string,
};
use super::root;
use crate::json::RawFields;

/// What one provider minds.
pub(super) struct RootRules {
    pub(super) forbidden_at_root: &'static [&'static str],
    pub(super) is_argument_name: fn(&str) -> bool,
    /// Whether every array must say what it holds, and the top that it holds nothing.
    pub(super) requires_contents: bool,
}

pub(super) const ANTHROPIC_RULES: RootRules = RootRules {
    forbidden_at_root: &limits::ANTHROPIC_FORBIDDEN_AT_ROOT,
    is_argument_name: limits::is_anthropic_argument_name,
    requires_contents: false,
};

pub(super) const OPENAI_RULES: RootRules = RootRules {
    forbidden_at_root: &limits::OPENAI_FORBIDDEN_AT_ROOT,
    is_argument_name: |_| true,
    requires_contents: true,
};

/// The schema as text, and what was lost.
pub(super) fn project_schema(raw: &RawValue, minds: &RootRules) -> (ProjectionResult<String>, Vec<Loss>) {
    if is_supported(raw, minds) {
        return (Ok(raw.get().to_owned()), Vec::new());
    }
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut edits = ProjectionContext::new(&schema, usize::MAX);
    let edited = edit_schema(&schema, minds, &mut edits).and_then(|schema| to_bounded_string(&schema));
    (edited, edits.into_losses())
}

/// Whether the text will do. It is looked through, not parsed.
fn is_supported(raw: &RawValue, minds: &RootRules) -> bool {
    let Some(fields) = RawFields::parse(raw) else { return false };
    let is_object = fields.get("type").is_some_and(|name| name.get() == "\"object\"");
    let forbidden = |key: &str| key == "$ref" || minds.forbidden_at_root.contains(&key);
    let arguments = fields.get("properties").map(RawFields::parse);
    let legal = |arguments: &RawFields| arguments.iter().all(|(name, _)| (minds.is_argument_name)(name));
    let bare = minds.requires_contents
        && (arguments.is_none()
            || raw.get().contains("\"array\"") && lacks_items(&serde_json::from_str(raw.get()).unwrap_or_default()));
    is_object
        && !bare
        && !fields.iter().any(|(key, _)| forbidden(key))
        && arguments.is_none_or(|arguments| arguments.as_ref().is_some_and(legal))
}

fn edit_schema(schema: &Value, minds: &RootRules, edits: &mut ProjectionContext<'_>) -> ProjectionResult<Value> {
    let mut keywords = root::to_object_schema(schema, edits)?;
    for keyword in minds.forbidden_at_root {
        if let Some(value) = keywords.shift_remove(*keyword) {
            edits.record_dropped_keyword("", keyword, &value);
        }
    }
    drop_illegal_arguments(&mut keywords, minds.is_argument_name, edits)?;
    let mut schema = Value::Object(keywords);
    if minds.requires_contents {
        add_missing_items(&mut schema);
    }
    Ok(schema)
}

/// Leaves out arguments whose names a provider refuses. One that is required takes the tool with it.
pub(super) fn drop_illegal_arguments(
    keywords: &mut Map<String, Value>,
    takes: fn(&str) -> bool,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    let Some(arguments) = keywords.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let required = required_names(keywords);
    for name in arguments.keys().filter(|name| !takes(name)) {
        let path = child_pointer("/properties", name);
        if required.contains(name.as_str()) {
            return Err(Unsupported::new(&path, "this name is not supported, and the argument is required"));
        }
        edits.record_loss(&path, "this name is not supported; optional, dropped");
    }
    if let Some(arguments) = keywords.get_mut("properties").and_then(Value::as_object_mut) {
        arguments.retain(|name, _| takes(name));
    }
    Ok(())
}

fn allows_array(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "array",
        Some(Value::Array(names)) => names.iter().any(|name| name == "array"),
        _ => false,
    }
}

/// Follows no reference, so every node is looked at once; likewise [`add_items`].
fn lacks_items(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => {
            (allows_array(keywords) && !keywords.contains_key("items")) || keywords.values().any(lacks_items)
        }
        Value::Array(parts) => parts.iter().any(lacks_items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

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
