//! Formats that take JSON Schema as it is, but for its top: Anthropic's and OpenAI's functions. Most schemas pass as the
//! text they are stored as; only one that would be refused is edited.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits;
use super::projection::{Edits, Fit, Loss, Unfit, below, required, written};
use super::root;
use crate::json::Fields;

/// What one provider minds.
pub(super) struct Minds {
    pub(super) not_at_root: &'static [&'static str],
    pub(super) takes_argument: fn(&str) -> bool,
    /// Whether every array must say what it holds, and the top that it holds nothing.
    pub(super) says_what_is_in_it: bool,
}

pub(super) const ANTHROPIC: Minds = Minds {
    not_at_root: &limits::ANTHROPIC_NOT_AT_ROOT,
    takes_argument: limits::anthropic_takes_argument,
    says_what_is_in_it: false,
};

pub(super) const OPENAI: Minds =
    Minds { not_at_root: &limits::OPENAI_NOT_AT_ROOT, takes_argument: |_| true, says_what_is_in_it: true };

/// The schema as text, and what was lost.
pub(super) fn schema(raw: &RawValue, minds: &Minds) -> (Fit<String>, Vec<Loss>) {
    if passes(raw, minds) {
        return (Ok(raw.get().to_owned()), Vec::new());
    }
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut edits = Edits::of(&schema, usize::MAX);
    let edited = edited(&schema, minds, &mut edits).and_then(|schema| written(&schema));
    (edited, edits.into_losses())
}

/// Whether the text will do. It is looked through, not parsed.
fn passes(raw: &RawValue, minds: &Minds) -> bool {
    let Some(fields) = Fields::parse(raw) else { return false };
    let is_object = fields.get("type").is_some_and(|name| name.get() == "\"object\"");
    let forbidden = |key: &str| key == "$ref" || minds.not_at_root.contains(&key);
    let arguments = fields.get("properties").map(Fields::parse);
    let legal = |arguments: &Fields| arguments.iter().all(|(name, _)| (minds.takes_argument)(name));
    let bare = minds.says_what_is_in_it
        && (arguments.is_none()
            || raw.get().contains("\"array\"") && lacks_items(&serde_json::from_str(raw.get()).unwrap_or_default()));
    is_object
        && !bare
        && !fields.iter().any(|(key, _)| forbidden(key))
        && arguments.is_none_or(|arguments| arguments.as_ref().is_some_and(legal))
}

fn edited(schema: &Value, minds: &Minds, edits: &mut Edits<'_>) -> Fit<Value> {
    let mut keywords = root::object(schema, edits)?;
    for keyword in minds.not_at_root {
        if let Some(value) = keywords.shift_remove(*keyword) {
            edits.drop_keyword("", keyword, &value);
        }
    }
    only_legal_arguments(&mut keywords, minds.takes_argument, edits)?;
    let mut schema = Value::Object(keywords);
    if minds.says_what_is_in_it {
        add_items(&mut schema);
    }
    Ok(schema)
}

/// Leaves out arguments whose names a provider refuses. One that is required takes the tool with it.
pub(super) fn only_legal_arguments(
    keywords: &mut Map<String, Value>,
    takes: fn(&str) -> bool,
    edits: &mut Edits<'_>,
) -> Fit<()> {
    let Some(arguments) = keywords.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let required = required(keywords);
    for name in arguments.keys().filter(|name| !takes(name)) {
        let path = below("/properties", name);
        if required.contains(name.as_str()) {
            return Err(Unfit::new(&path, "this name is not supported, and the argument is required"));
        }
        edits.lose(&path, "this name is not supported; optional, dropped");
    }
    if let Some(arguments) = keywords.get_mut("properties").and_then(Value::as_object_mut) {
        arguments.retain(|name, _| takes(name));
    }
    Ok(())
}

fn is_array(schema: &Map<String, Value>) -> bool {
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
            (is_array(keywords) && !keywords.contains_key("items")) || keywords.values().any(lacks_items)
        }
        Value::Array(parts) => parts.iter().any(lacks_items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn add_items(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            if is_array(keywords) {
                keywords.entry("items").or_insert_with(|| json!({}));
            }
            keywords.values_mut().for_each(add_items);
        }
        Value::Array(parts) => parts.iter_mut().for_each(add_items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
