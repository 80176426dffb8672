//! From what a source says to a tool an agent can be given, or the reason why not.

use serde_json::value::RawValue;

use super::{Bounds, SetAside};
use crate::fingerprint::Fingerprint;
use crate::json::{self, Fields};
use crate::source::SourceId;
use crate::text::{is_plain, shown, shown_short};
use crate::tool::{BACKING, Face, Note, Tool};

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
    let input_schema = match shown_schema(&input_schema) {
        Some(clean) => {
            if !notes.contains(&Note::TextCleaned) {
                notes.push(Note::TextCleaned);
            }
            original.put("inputSchema", input_schema);
            clean
        }
        None => input_schema,
    };
    let face = Face { title, description, input_schema: tidy(input_schema), annotations: annotations.map(tidy) };
    let (output_schema, backing) = (output_schema.map(tidy), fields.take(BACKING));
    let tool = Tool { name, output_schema, backing, extra: fields, original, notes, face };
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
    if (text.contains("ef\"") || text.contains("\\u"))
        && let Some(reference) = remote_reference(schema)
    {
        return Err(format!("{what} refers to `{}`, outside of itself", shown_short(&reference, 120)));
    }
    Ok(())
}

/// Follows no reference, and reads every level's text once more: at most the text times its depth, which is bounded before.
fn remote_reference(schema: &RawValue) -> Option<String> {
    let is_reference = |key: &str| matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef");
    match schema.get().as_bytes().first() {
        Some(b'{') => Fields::parse(schema)?.iter().find_map(|(key, value)| match text(value) {
            Some(target) if is_reference(key) => (!target.starts_with('#')).then_some(target),
            Some(_) => None,
            None => remote_reference(value),
        }),
        Some(b'[') => items(schema).into_iter().find_map(remote_reference),
        _ => None,
    }
}

fn items(array: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(array.get()).unwrap_or_default()
}

/// The schema with its texts as they may be shown, if that makes a difference. What must be met to the letter (the
/// values of `enum` and their like, the names of properties) stays.
pub(crate) fn shown_schema(schema: &RawValue) -> Option<Box<RawValue>> {
    // A character can hide behind an escape, too.
    if !schema.get().contains("\\u") && is_plain(schema.get()) {
        return None;
    }
    let (mut clean, mut changed) = (String::with_capacity(schema.get().len()), false);
    push_shown(schema, Keys::Keywords, &mut clean, &mut changed);
    if changed { RawValue::from_string(clean).ok() } else { None }
}

/// What the keys of an object are: a schema's keywords, or names somebody chose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Keywords,
    Names,
}

/// At most the text times its depth, like [`remote_reference`].
fn push_shown(raw: &RawValue, keys: Keys, into: &mut String, changed: &mut bool) {
    let fields = Fields::parse(raw);
    match (raw.get().as_bytes().first(), fields, text(raw)) {
        (_, Some(fields), _) => {
            into.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                into.push_str(if index > 0 { "," } else { "" });
                json::push_string(key, into);
                into.push(':');
                let below = match key {
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => Keys::Names,
                    _ => Keys::Keywords,
                };
                match key {
                    "enum" | "const" | "default" | "pattern" if keys == Keys::Keywords => into.push_str(value.get()),
                    _ => push_shown(value, if keys == Keys::Keywords { below } else { Keys::Keywords }, into, changed),
                }
            }
            into.push('}');
        }
        (Some(b'['), _, _) => {
            into.push('[');
            for (index, item) in items(raw).into_iter().enumerate() {
                into.push_str(if index > 0 { "," } else { "" });
                push_shown(item, Keys::Keywords, into, changed);
            }
            into.push(']');
        }
        (_, _, Some(given)) => {
            let clean = shown(&given);
            *changed |= clean != given;
            json::push_string(&clean, into);
        }
        _ => into.push_str(raw.get()),
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
