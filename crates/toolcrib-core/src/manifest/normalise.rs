//! From what a source says to a tool an agent can be given, or the reason why not.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Bounds, SetAside};
use crate::fingerprint::Fingerprint;
use crate::json::{self, Fields};
use crate::source::SourceId;
use crate::text::{hides_nothing, may_hide, shown, shown_short};
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
    let name =
        fields.take("name").filter(|raw| raw.get().starts_with('"')).ok_or_else(|| nameless("it has no name"))?;
    let name = text(&name).ok_or_else(|| nameless("its name is not valid Unicode"))?;
    if shown(&name).trim().is_empty() {
        return Err(nameless("its name is empty"));
    }
    if name.len() > LONGEST_NAME {
        return Err(nameless("its name is longer than 512 bytes"));
    }
    let refuse = |reason: String| SetAside { name: shown_short(&name, LONGEST_NAME), reason };
    // Bytes that are no UTF-8 have become this one when they were read, and could not be sent back.
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(refuse("its name is not valid UTF-8".into()));
    }
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
    // Within bounds now, so every recursion from here on is bounded too.
    refuse_hidden("its input schema", Some(&input_schema)).map_err(&refuse)?;
    refuse_hidden("its output schema", output_schema.as_deref()).map_err(&refuse)?;
    let backing = fields.take(BACKING);
    if let Some(whole) = backing.as_deref().filter(|backing| may_hide(backing.get())).and_then(Fields::parse) {
        refuse_hidden("its whole input schema", whole.get("input_schema")).map_err(&refuse)?;
        refuse_hidden("its whole output schema", whole.get("output_schema")).map_err(&refuse)?;
    }
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
    let mut cleaned = |key: &str, given: Box<RawValue>| match shown_schema(&given) {
        Some(clean) => {
            if !notes.contains(&Note::TextCleaned) {
                notes.push(Note::TextCleaned);
            }
            original.put(key, given);
            clean
        }
        None => given,
    };
    let input_schema = cleaned("inputSchema", input_schema);
    let output_schema = output_schema.map(|schema| cleaned("outputSchema", schema));
    let annotations = annotations.map(|annotations| cleaned("annotations", annotations));
    let face = Face { title, description, input_schema: tidy(input_schema), annotations: annotations.map(tidy) };
    let output_schema = output_schema.map(tidy);
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

/// Refuses a schema with hidden characters where they cannot be removed, for an agent and its server must agree on
/// these to the letter: names, and the values of `enum`, `const`, `default`, `pattern` and `required`.
fn refuse_hidden(what: &str, schema: Option<&RawValue>) -> Result<(), String> {
    let Some(place) = schema.filter(|schema| may_hide(schema.get())).and_then(|schema| hidden(schema, Keys::Keywords))
    else {
        return Ok(());
    };
    Err(format!("{what} has hidden characters in {place}"))
}

/// Where hidden characters stand that must be met to the letter. At most the text times its depth, like
/// [`remote_reference`].
fn hidden(raw: &RawValue, keys: Keys) -> Option<String> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Some(fields) = Fields::parse(raw) else { return Some("a name that is not valid Unicode".into()) };
            fields.iter().find_map(|(key, value)| match key {
                _ if !hides_nothing(key) => Some(format!("the name `{}`", shown_short(key, 80))),
                "enum" | "const" | "default" | "pattern" | "required" if keys == Keys::Keywords => {
                    let hides = if key == "pattern" { hides_in_pattern(value) } else { hides_in_value(value) };
                    hides.then(|| format!("a value of `{key}`"))
                }
                _ => hidden(value, keys.below(key)),
            })
        }
        Some(b'[') => items(raw).into_iter().find_map(|item| hidden(item, Keys::Keywords)),
        _ => None,
    }
}

fn hides_in_value(raw: &RawValue) -> bool {
    fn hides(value: &Value) -> bool {
        match value {
            Value::String(text) => !hides_nothing(text),
            Value::Array(items) => items.iter().any(hides),
            Value::Object(fields) => fields.iter().any(|(key, value)| !hides_nothing(key) || hides(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    // What cannot be read has half a character in it.
    may_hide(raw.get()) && serde_json::from_str(raw.get()).map_or(true, |value| hides(&value))
}

/// Control characters are the ends of ranges there, as in `[^\0-\x1f]`.
fn hides_in_pattern(raw: &RawValue) -> bool {
    let without_controls = text(raw).map(|pattern| pattern.replace(char::is_control, ""));
    without_controls.is_none_or(|pattern| !hides_nothing(&pattern))
}

/// The schema with its texts as they may be shown, if that makes a difference. What must be met to the letter (the
/// values of `enum` and their like, the names of properties) stays; [`refuse_hidden`] has looked at it.
pub(crate) fn shown_schema(schema: &RawValue) -> Option<Box<RawValue>> {
    if !may_hide(schema.get()) {
        return None;
    }
    let mut clean = String::with_capacity(schema.get().len());
    let mut changed = false;
    push_shown(schema, Keys::Keywords, &mut clean, &mut changed);
    if changed { RawValue::from_string(clean).ok() } else { None }
}

/// What the keys of an object are: a schema's keywords, or names somebody chose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Keywords,
    Names,
}

impl Keys {
    /// What the keys below `key` are.
    fn below(self, key: &str) -> Keys {
        match (self, key) {
            (
                Keys::Keywords,
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependentRequired",
            ) => Keys::Names,
            (Keys::Keywords | Keys::Names, _) => Keys::Keywords,
        }
    }
}

/// At most the text times its depth, like [`remote_reference`].
fn push_shown(raw: &RawValue, keys: Keys, into: &mut String, changed: &mut bool) {
    let fields = Fields::parse(raw);
    match (raw.get().as_bytes().first(), fields, text_or_mended(raw)) {
        (_, Some(fields), _) => {
            into.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                into.push_str(if index > 0 { "," } else { "" });
                json::push_string(key, into);
                into.push(':');
                match key {
                    "enum" | "const" | "default" | "pattern" | "required" if keys == Keys::Keywords => {
                        into.push_str(value.get())
                    }
                    _ => push_shown(value, keys.below(key), into, changed),
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
            *changed |= Some(&clean) != text(raw).as_ref();
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

/// The same, with a replacement for each half of a character.
fn text_or_mended(raw: &RawValue) -> Option<String> {
    text(raw).or_else(|| serde_json::from_str(&json::mended(raw.get())?).ok())
}

/// Without the white space between tokens.
fn tidy(raw: Box<RawValue>) -> Box<RawValue> {
    RawValue::from_string(json::compact(raw.get())).unwrap_or(raw)
}
