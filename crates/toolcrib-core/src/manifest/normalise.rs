//! From what a source says to a tool an agent can be given, or the reason why not.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Bounds, SetAside};
use crate::fingerprint::Fingerprint;
use crate::json::{self, Fields};
use crate::source::SourceId;
use crate::text::{shown, shown_short};
use crate::tool::{Face, Note, Tool};

const LONGEST_NAME: usize = 512;

pub(super) fn tool(
    source: &SourceId,
    raw: &RawValue,
    position: usize,
    bounds: &Bounds,
) -> Result<(Tool, Fingerprint), SetAside> {
    let nameless = |reason: &str| SetAside { name: format!("#{}", position + 1), reason: reason.into() };
    let mut fields = Fields::parse(raw).ok_or_else(|| nameless("it is not a JSON object"))?;
    let name = fields.take("name").and_then(|raw| text(&raw)).ok_or_else(|| nameless("it has no name"))?;
    if shown(&name).trim().is_empty() {
        return Err(nameless("its name is empty"));
    }
    if name.len() > LONGEST_NAME {
        return Err(nameless("its name is longer than 512 bytes"));
    }
    let refuse = |reason: String| SetAside { name: shown_short(&name, LONGEST_NAME), reason };
    if raw.get().len() > bounds.tool_bytes {
        return Err(refuse(format!("it is larger than {} bytes", bounds.tool_bytes)));
    }

    let mut notes = Vec::new();
    let mut original = Fields::default();
    let input_schema = match fields.take("inputSchema") {
        Some(schema) if schema.get() != "null" => schema,
        missing => {
            keep("inputSchema", missing, &mut original);
            notes.push(Note::NoSchema);
            RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap_or_default()
        }
    };
    usable(&input_schema, "its input schema", bounds).map_err(&refuse)?;
    // A tool can be used without its output schema.
    let output_schema = match fields.take("outputSchema") {
        Some(schema) if usable(&schema, "", bounds).is_ok() => Some(schema),
        unusable => {
            if unusable.as_ref().is_some_and(|schema| schema.get() != "null") {
                notes.push(Note::OutputSchemaIgnored);
            }
            keep("outputSchema", unusable, &mut original);
            None
        }
    };
    if json::depth(raw.get()) > bounds.schema_depth + 4 {
        return Err(refuse(format!("it is nested deeper than {} levels", bounds.schema_depth)));
    }
    // Within bounds now, so the recursion of the canonical form is bounded too.
    let mut canonical = String::with_capacity(raw.get().len());
    json::canonical(raw, &mut canonical);

    let title = fields.take("title").and_then(|raw| shown_text("title", raw, &mut original, &mut notes));
    let described =
        fields.take("description").and_then(|raw| shown_text("description", raw, &mut original, &mut notes));
    let description = described.unwrap_or_else(|| {
        notes.push(Note::NoDescription);
        format!("{source} tool: {}", shown_short(&name, LONGEST_NAME))
    });
    let annotations = match fields.take("annotations") {
        Some(raw) if raw.get().starts_with('{') => Some(raw),
        Some(raw) => {
            if raw.get() != "null" {
                notes.push(Note::AnnotationsIgnored);
            }
            original.put("annotations", raw);
            None
        }
        None => None,
    };
    let face = Face { title, description, input_schema: tidy(input_schema), annotations: annotations.map(tidy) };
    let tool = Tool { name, output_schema: output_schema.map(tidy), extra: fields, original, notes, face };
    Ok((tool, Fingerprint::of(canonical)))
}

/// Why a schema cannot be used, if so.
fn usable(schema: &RawValue, what: &str, bounds: &Bounds) -> Result<(), String> {
    let text = schema.get();
    if !text.starts_with('{') {
        return Err(format!("{what} is not a JSON object"));
    }
    if text.len() > bounds.schema_bytes {
        return Err(format!("{what} is larger than {} bytes", bounds.schema_bytes));
    }
    if json::depth(text) > bounds.schema_depth {
        return Err(format!("{what} is nested deeper than {} levels", bounds.schema_depth));
    }
    // Only a reference can be remote, and most schemas have none: look before parsing.
    if text.contains("ef\"") || text.contains("\\u") {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("{what} cannot be read: {error}"))?;
        if let Some(reference) = remote_reference(&value) {
            return Err(format!("{what} refers to `{}`, outside of itself", shown_short(reference, 120)));
        }
    }
    Ok(())
}

fn remote_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(object) => object.iter().find_map(|(key, value)| match value {
            Value::String(target) if matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef") => {
                (!target.starts_with('#')).then_some(target.as_str())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            Value::Array(_) | Value::Object(_) => remote_reference(value),
        }),
        Value::Array(items) => items.iter().find_map(remote_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Text as it may be shown, or nothing when there is none. Where it differs from what was given, that is kept.
fn shown_text(key: &str, raw: Box<RawValue>, original: &mut Fields, notes: &mut Vec<Note>) -> Option<String> {
    let given = text(&raw);
    let clean = given.as_deref().map(shown);
    if clean != given && !notes.contains(&Note::TextCleaned) {
        notes.push(Note::TextCleaned);
    }
    let usable = clean.clone().filter(|clean| !clean.trim().is_empty());
    if given.is_none() || usable != given {
        original.put(key, raw);
    }
    usable
}

fn keep(key: &str, given: Option<Box<RawValue>>, original: &mut Fields) {
    if let Some(raw) = given {
        original.put(key, raw);
    }
}

/// A JSON string's text; `None` for anything else, and for escapes that are no Unicode.
fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Without the white space between tokens.
fn tidy(raw: Box<RawValue>) -> Box<RawValue> {
    RawValue::from_string(json::compact(raw.get())).unwrap_or(raw)
}
