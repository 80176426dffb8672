//! From what a source says to a tool an agent can be given, or the reason why not.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{SetAsideTool, ToolLimits};
use crate::fingerprint::Fingerprint;
use crate::json::{self, RawFields};
use crate::source::SourceId;
use crate::text::{has_no_hidden_characters, may_contain_hidden, sanitize, sanitize_truncated};
use crate::tool::{EXECUTION_SPEC_KEY, Tool, ToolListing, ToolNote};

const MAX_TOOL_NAME_BYTES: usize = 512;

pub(super) fn normalise_tool(
    source: &SourceId,
    raw: &RawValue,
    position: usize,
    bounds: &ToolLimits,
) -> Result<(Tool, Fingerprint), SetAsideTool> {
    let nameless = |reason: &str| SetAsideTool { name: format!("#{}", position + 1), reason: reason.into() };
    let mut fields = RawFields::parse(raw).ok_or_else(|| nameless("it is not a JSON object"))?;
    let name =
        fields.remove("name").filter(|raw| raw.get().starts_with('"')).ok_or_else(|| nameless("it has no name"))?;
    let name = parse_string(&name).ok_or_else(|| nameless("its name is not valid Unicode"))?;
    if sanitize(&name).trim().is_empty() {
        return Err(nameless("its name is empty"));
    }
    if name.len() > MAX_TOOL_NAME_BYTES {
        return Err(nameless("its name is longer than 512 bytes"));
    }
    let refuse = |reason: String| SetAsideTool { name: sanitize_truncated(&name, MAX_TOOL_NAME_BYTES), reason };
    // Bytes that are no UTF-8 have become this one when they were read, and could not be sent back.
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(refuse("its name is not valid UTF-8".into()));
    }
    if raw.get().len() > bounds.max_tool_bytes {
        return Err(refuse(format!("it is larger than {} bytes", bounds.max_tool_bytes)));
    }

    let mut notes = Vec::new();
    let mut original = RawFields::default();
    let input_schema = match fields.remove("inputSchema") {
        Some(schema) if schema.get() != "null" => schema,
        missing => {
            keep_original("inputSchema", missing, &mut original);
            notes.push(ToolNote::NoSchema);
            RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap_or_default()
        }
    };
    check_schema(&input_schema, "its input schema", bounds).map_err(&refuse)?;
    // A tool can be used without its output schema.
    let output_schema = match fields.remove("outputSchema") {
        Some(schema) if check_schema(&schema, "", bounds).is_ok() => Some(schema),
        unusable => {
            if unusable.as_ref().is_some_and(|schema| schema.get() != "null") {
                notes.push(ToolNote::OutputSchemaIgnored);
            }
            keep_original("outputSchema", unusable, &mut original);
            None
        }
    };
    if json::nesting_depth(raw.get()) > bounds.max_schema_depth + 4 {
        return Err(refuse(format!("it is nested deeper than {} levels", bounds.max_schema_depth)));
    }
    // Within bounds now, so every recursion from here on is bounded too.
    reject_hidden_characters("its input schema", Some(&input_schema)).map_err(&refuse)?;
    reject_hidden_characters("its output schema", output_schema.as_deref()).map_err(&refuse)?;
    let backing = fields.remove(EXECUTION_SPEC_KEY);
    if let Some(whole) =
        backing.as_deref().filter(|backing| may_contain_hidden(backing.get())).and_then(RawFields::parse)
    {
        reject_hidden_characters("its whole input schema", whole.get("input_schema")).map_err(&refuse)?;
        reject_hidden_characters("its whole output schema", whole.get("output_schema")).map_err(&refuse)?;
    }
    let mut canonical = String::with_capacity(raw.get().len());
    json::push_canonical(raw, &mut canonical);

    let title = fields.remove("title").and_then(|raw| sanitize_text("title", raw, &mut original, &mut notes));
    let described =
        fields.remove("description").and_then(|raw| sanitize_text("description", raw, &mut original, &mut notes));
    let description = described.unwrap_or_else(|| {
        notes.push(ToolNote::NoDescription);
        format!("{source} tool: {}", sanitize_truncated(&name, MAX_TOOL_NAME_BYTES))
    });
    let annotations = match fields.remove("annotations") {
        Some(raw) if raw.get().starts_with('{') => Some(raw),
        Some(raw) => {
            if raw.get() != "null" {
                notes.push(ToolNote::AnnotationsIgnored);
            }
            original.insert("annotations", raw);
            None
        }
        None => None,
    };
    let mut cleaned = |key: &str, given: Box<RawValue>| match sanitize_schema(&given) {
        Some(clean) => {
            if !notes.contains(&ToolNote::TextCleaned) {
                notes.push(ToolNote::TextCleaned);
            }
            original.insert(key, given);
            clean
        }
        None => given,
    };
    let input_schema = cleaned("inputSchema", input_schema);
    let output_schema = output_schema.map(|schema| cleaned("outputSchema", schema));
    let annotations = annotations.map(|annotations| cleaned("annotations", annotations));
    let face =
        ToolListing { title, description, input_schema: compact(input_schema), annotations: annotations.map(compact) };
    let output_schema = output_schema.map(compact);
    let tool = Tool { name, output_schema, execution_spec: backing, extra: fields, original, notes, listing: face };
    Ok((tool, Fingerprint::digest(canonical)))
}

/// Why a schema cannot be used, if so.
fn check_schema(schema: &RawValue, what: &str, bounds: &ToolLimits) -> Result<(), String> {
    let text = schema.get();
    if !text.starts_with('{') {
        return Err(format!("{what} is not a JSON object"));
    }
    if text.len() > bounds.max_schema_bytes {
        return Err(format!("{what} is larger than {} bytes", bounds.max_schema_bytes));
    }
    if json::nesting_depth(text) > bounds.max_schema_depth {
        return Err(format!("{what} is nested deeper than {} levels", bounds.max_schema_depth));
    }
    // Only a reference can be remote, and most schemas have none: look before parsing.
    if (text.contains("ef\"") || text.contains("\\u"))
        && let Some(reference) = find_remote_reference(schema)
    {
        return Err(format!("{what} refers to `{}`, outside of itself", sanitize_truncated(&reference, 120)));
    }
    Ok(())
}

/// Follows no reference, and reads every level's text once more: at most the text times its depth, which is bounded before.
fn find_remote_reference(schema: &RawValue) -> Option<String> {
    let is_reference = |key: &str| matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef");
    match schema.get().as_bytes().first() {
        Some(b'{') => RawFields::parse(schema)?.iter().find_map(|(key, value)| match parse_string(value) {
            Some(target) if is_reference(key) => (!target.starts_with('#')).then_some(target),
            Some(_) => None,
            None => find_remote_reference(value),
        }),
        Some(b'[') => parse_items(schema).into_iter().find_map(find_remote_reference),
        _ => None,
    }
}

fn parse_items(array: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(array.get()).unwrap_or_default()
}

/// Refuses a schema with hidden characters where they cannot be removed, for an agent and its server must agree on
/// these to the letter: names, and the values of `enum`, `const`, `default`, `pattern` and `required`.
fn reject_hidden_characters(what: &str, schema: Option<&RawValue>) -> Result<(), String> {
    let Some(place) = schema
        .filter(|schema| may_contain_hidden(schema.get()))
        .and_then(|schema| find_hidden_characters(schema, SchemaKeyKind::Keywords))
    else {
        return Ok(());
    };
    Err(format!("{what} has hidden characters in {place}"))
}

/// Where hidden characters stand that must be met to the letter. At most the text times its depth, like
/// [`remote_reference`].
fn find_hidden_characters(raw: &RawValue, keys: SchemaKeyKind) -> Option<String> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Some(fields) = RawFields::parse(raw) else { return Some("a name that is not valid Unicode".into()) };
            fields.iter().find_map(|(key, value)| match key {
                _ if !has_no_hidden_characters(key) => Some(format!("the name `{}`", sanitize_truncated(key, 80))),
                "enum" | "const" | "default" | "pattern" | "required" if keys == SchemaKeyKind::Keywords => {
                    let hides =
                        if key == "pattern" { has_hidden_in_pattern(value) } else { has_hidden_in_value(value) };
                    hides.then(|| format!("a value of `{key}`"))
                }
                _ => find_hidden_characters(value, keys.below(key)),
            })
        }
        Some(b'[') => {
            parse_items(raw).into_iter().find_map(|item| find_hidden_characters(item, SchemaKeyKind::Keywords))
        }
        _ => None,
    }
}

fn has_hidden_in_value(raw: &RawValue) -> bool {
    fn has_hidden(value: &Value) -> bool {
        match value {
            Value::String(text) => !has_no_hidden_characters(text),
            Value::Array(items) => items.iter().any(has_hidden),
            Value::Object(fields) => {
                fields.iter().any(|(key, value)| !has_no_hidden_characters(key) || has_hidden(value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    // What cannot be read has half a character in it.
    may_contain_hidden(raw.get()) && serde_json::from_str(raw.get()).map_or(true, |value| has_hidden(&value))
}

/// Control characters are the ends of ranges there, as in `[^\0-\x1f]`.
fn has_hidden_in_pattern(raw: &RawValue) -> bool {
    let without_controls = parse_string(raw).map(|pattern| pattern.replace(char::is_control, ""));
    without_controls.is_none_or(|pattern| !has_no_hidden_characters(&pattern))
}

/// The schema with its texts as they may be shown, if that makes a difference. What must be met to the letter (the
/// values of `enum` and their like, the names of properties) stays; [`refuse_hidden`] has looked at it.
pub(crate) fn sanitize_schema(schema: &RawValue) -> Option<Box<RawValue>> {
    if !may_contain_hidden(schema.get()) {
        return None;
    }
    let mut clean = String::with_capacity(schema.get().len());
    let mut changed = false;
    write_sanitized(schema, SchemaKeyKind::Keywords, &mut clean, &mut changed);
    if changed { RawValue::from_string(clean).ok() } else { None }
}

/// What the keys of an object are: a schema's keywords, or names somebody chose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaKeyKind {
    Keywords,
    Names,
}

impl SchemaKeyKind {
    /// What the keys below `key` are.
    fn below(self, key: &str) -> SchemaKeyKind {
        match (self, key) {
            (
                SchemaKeyKind::Keywords,
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependentRequired",
            ) => SchemaKeyKind::Names,
            (SchemaKeyKind::Keywords | SchemaKeyKind::Names, _) => SchemaKeyKind::Keywords,
        }
    }
}

/// At most the text times its depth, like [`remote_reference`].
fn write_sanitized(raw: &RawValue, keys: SchemaKeyKind, into: &mut String, changed: &mut bool) {
    let fields = RawFields::parse(raw);
    match (raw.get().as_bytes().first(), fields, parse_string_lossy(raw)) {
        (_, Some(fields), _) => {
            into.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                into.push_str(if index > 0 { "," } else { "" });
                json::push_json_string(key, into);
                into.push(':');
                match key {
                    "enum" | "const" | "default" | "pattern" | "required" if keys == SchemaKeyKind::Keywords => {
                        into.push_str(value.get())
                    }
                    _ => write_sanitized(value, keys.below(key), into, changed),
                }
            }
            into.push('}');
        }
        (Some(b'['), _, _) => {
            into.push('[');
            for (index, item) in parse_items(raw).into_iter().enumerate() {
                into.push_str(if index > 0 { "," } else { "" });
                write_sanitized(item, SchemaKeyKind::Keywords, into, changed);
            }
            into.push(']');
        }
        (_, _, Some(given)) => {
            let clean = sanitize(&given);
            *changed |= Some(&clean) != parse_string(raw).as_ref();
            json::push_json_string(&clean, into);
        }
        _ => into.push_str(raw.get()),
    }
}

/// Text as it may be shown, or nothing when there is none. Where it differs from what was given, that is kept.
fn sanitize_text(key: &str, raw: Box<RawValue>, original: &mut RawFields, notes: &mut Vec<ToolNote>) -> Option<String> {
    let given = parse_string(&raw);
    let clean = given.as_deref().map(sanitize);
    if clean != given && !notes.contains(&ToolNote::TextCleaned) {
        notes.push(ToolNote::TextCleaned);
    }
    let usable = clean.clone().filter(|clean| !clean.trim().is_empty());
    if given.is_none() || usable != given {
        original.insert(key, raw);
    }
    usable
}

fn keep_original(key: &str, given: Option<Box<RawValue>>, original: &mut RawFields) {
    if let Some(raw) = given {
        original.insert(key, raw);
    }
}

/// A JSON string's text; `None` for anything else, and for escapes that are no Unicode.
fn parse_string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// The same, with a replacement for each half of a character.
fn parse_string_lossy(raw: &RawValue) -> Option<String> {
    parse_string(raw).or_else(|| serde_json::from_str(&json::replace_lone_surrogates(raw.get())?).ok())
}

/// Without the white space between tokens.
fn compact(raw: Box<RawValue>) -> Box<RawValue> {
    RawValue::from_string(json::compact(raw.get())).unwrap_or(raw)
}
