//! Normalises one tool definition of a source: checks its limits, sanitises its texts and fills in what is missing, or
//! returns the reason why it cannot be used. The fingerprint is computed from the definition as the source offered it.
//!
//! A definition has two kinds of text. Texts that are only read (titles, descriptions) are sanitised, and their
//! originals are kept in [`Tool::original`]. Texts that must match exactly on both sides (names, `enum`, `default`)
//! cannot be changed, because the server would not know the changed form; a tool with hidden characters in one of them
//! is skipped.
//!
//! ```text
//! description "Reads\u200b a file"     sanitised: "Reads a file", with the note text_cleaned
//! property    "pa\u200bth"             skipped: its input schema has hidden characters in the name `path`
//! ```
//!
//! Reasons are part of the manifest's fingerprint. Rewording one makes every source with such a tool look changed once.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{SkippedTool, ToolLimits};
use crate::fingerprint::Fingerprint;
use crate::json::{self, RawFields};
use crate::source::SourceId;
use crate::text::{has_no_hidden_characters, may_contain_hidden, sanitize, sanitize_truncated};
use crate::tool::{EXECUTION_SPEC_KEY, Tool, ToolListing, ToolNote};

/// Maximum length of a tool's own name in bytes. Names for agents are shortened separately. MCP allows 128 characters;
/// longer names are accepted up to this bound.
const MAX_TOOL_NAME_BYTES: usize = 512;

/// Normalises a tool definition. `position` identifies a tool without a usable name.
///
/// Cheap checks come first: names and sizes before depth, and depth before anything that recurses.
pub(super) fn normalize_tool(
    source: &SourceId,
    raw: &RawValue,
    position: usize,
    limits: &ToolLimits,
) -> Result<(Tool, Fingerprint), SkippedTool> {
    let reject_nameless = |reason: &str| SkippedTool { name: format!("#{}", position + 1), reason: reason.into() };
    let mut fields = RawFields::parse(raw).ok_or_else(|| reject_nameless("it is not a JSON object"))?;
    let name = fields
        .remove("name")
        .filter(|raw| raw.get().starts_with('"'))
        .ok_or_else(|| reject_nameless("it has no name"))?;
    let name = parse_string(&name).ok_or_else(|| reject_nameless("its name is not valid Unicode"))?;
    if sanitize(&name).trim().is_empty() {
        return Err(reject_nameless("its name is empty"));
    }
    if name.len() > MAX_TOOL_NAME_BYTES {
        return Err(reject_nameless("its name is longer than 512 bytes"));
    }
    // From here on the tool has a name that it can be listed under.
    let reject = |reason: String| SkippedTool { name: sanitize_truncated(&name, MAX_TOOL_NAME_BYTES), reason };
    // Invalid UTF-8 was replaced by this character when it was read. A call could not send the original name back.
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(reject("its name is not valid UTF-8".into()));
    }
    if raw.get().len() > limits.max_tool_bytes {
        return Err(reject(format!("it is larger than {} bytes", limits.max_tool_bytes)));
    }

    // Schemas: the input schema decides about the tool, the output schema does not.
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
    check_schema(&input_schema, "its input schema", limits).map_err(&reject)?;
    // The output schema is optional, so an unusable one is dropped and noted.
    let output_schema = match fields.remove("outputSchema") {
        Some(schema) if check_schema(&schema, "", limits).is_ok() => Some(schema),
        unusable => {
            if unusable.as_ref().is_some_and(|schema| schema.get() != "null") {
                notes.push(ToolNote::OutputSchemaIgnored);
            }
            keep_original("outputSchema", unusable, &mut original);
            None
        }
    };
    // The schemas are checked above. This bounds the depth of all other fields too.
    if json::nesting_depth(raw.get()) > limits.max_schema_depth + 4 {
        return Err(reject(format!("it is nested deeper than {} levels", limits.max_schema_depth)));
    }
    // The depth is checked, so all recursion below is bounded.
    reject_hidden_characters("its input schema", Some(&input_schema)).map_err(&reject)?;
    reject_hidden_characters("its output schema", output_schema.as_deref()).map_err(&reject)?;
    let execution_spec = fields.remove(EXECUTION_SPEC_KEY);
    let suspicious_spec = execution_spec.as_deref().filter(|spec| may_contain_hidden(spec.get()));
    if let Some(spec) = suspicious_spec.and_then(RawFields::parse) {
        reject_hidden_characters("its whole input schema", spec.get("input_schema")).map_err(&reject)?;
        reject_hidden_characters("its whole output schema", spec.get("output_schema")).map_err(&reject)?;
    }
    // The fingerprint covers the definition before any sanitising.
    let mut canonical = String::with_capacity(raw.get().len());
    json::push_canonical(raw, &mut canonical);

    // Texts: sanitised for display, with the originals kept for the fingerprint.
    let title = fields.remove("title").and_then(|raw| sanitize_text("title", raw, &mut original, &mut notes));
    let offered_description =
        fields.remove("description").and_then(|raw| sanitize_text("description", raw, &mut original, &mut notes));
    let description = offered_description.unwrap_or_else(|| {
        notes.push(ToolNote::NoDescription);
        format!("{source} tool: {}", sanitize_truncated(&name, MAX_TOOL_NAME_BYTES))
    });
    // Annotations of another type than object are ignored and noted.
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
    let mut sanitize_field = |key: &str, offered: Box<RawValue>| match sanitize_schema(&offered) {
        Some(sanitized) => {
            if !notes.contains(&ToolNote::TextCleaned) {
                notes.push(ToolNote::TextCleaned);
            }
            original.insert(key, offered);
            sanitized
        }
        None => offered,
    };
    let input_schema = sanitize_field("inputSchema", input_schema);
    let output_schema = output_schema.map(|schema| sanitize_field("outputSchema", schema));
    let annotations = annotations.map(|annotations| sanitize_field("annotations", annotations));
    // All remaining fields are unknown to Toolcrib and are passed on unchanged in `extra`.
    let listing =
        ToolListing { title, description, input_schema: compact(input_schema), annotations: annotations.map(compact) };
    let output_schema = output_schema.map(compact);
    let tool = Tool { name, output_schema, execution_spec, extra: fields, original, notes, listing };
    Ok((tool, Fingerprint::digest(canonical)))
}

/// Checks that a schema is an object within limits and has no remote references. `what` names it in the reason.
/// Remote references are never fetched, so a schema with one is incomplete.
fn check_schema(schema: &RawValue, what: &str, limits: &ToolLimits) -> Result<(), String> {
    let text = schema.get();
    if !text.starts_with('{') {
        return Err(format!("{what} is not a JSON object"));
    }
    if text.len() > limits.max_schema_bytes {
        return Err(format!("{what} is larger than {} bytes", limits.max_schema_bytes));
    }
    if json::nesting_depth(text) > limits.max_schema_depth {
        return Err(format!("{what} is nested deeper than {} levels", limits.max_schema_depth));
    }
    // Most schemas have no reference: search for `…ef"` (or an escape that may hide it) before parsing.
    if (text.contains("ef\"") || text.contains("\\u"))
        && let Some(reference) = find_remote_reference(schema)
    {
        return Err(format!("{what} refers to `{}`, outside of itself", sanitize_truncated(&reference, 120)));
    }
    Ok(())
}

/// Returns the first reference that leads outside the schema. Parses each level again, so the cost is at most text
/// length times depth, both of which are bounded before. References are not followed.
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

/// Parses a JSON array without parsing its items.
fn parse_items(array: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(array.get()).unwrap_or_default()
}

/// Rejects a schema with hidden characters in names or in values of `enum`, `const`, `default`, `pattern` and
/// `required`. Agent and server must agree on these exactly, so they cannot be sanitised. Most schemas have no
/// suspicious byte at all, which the first check finds without parsing.
fn reject_hidden_characters(what: &str, schema: Option<&RawValue>) -> Result<(), String> {
    let Some(location) = schema
        .filter(|schema| may_contain_hidden(schema.get()))
        .and_then(|schema| find_hidden_characters(schema, SchemaKeyKind::Keywords))
    else {
        return Ok(());
    };
    Err(format!("{what} has hidden characters in {location}"))
}

/// Describes where a schema has hidden characters that cannot be sanitised. Costs at most text length times depth, like
/// [`find_remote_reference`]. The name in the description is sanitised, so it looks ordinary; the reason says that it
/// is not.
fn find_hidden_characters(raw: &RawValue, keys: SchemaKeyKind) -> Option<String> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Some(fields) = RawFields::parse(raw) else { return Some("a name that is not valid Unicode".into()) };
            fields.iter().find_map(|(key, value)| match key {
                _ if !has_no_hidden_characters(key) => Some(format!("the name `{}`", sanitize_truncated(key, 80))),
                "enum" | "const" | "default" | "pattern" | "required" if keys == SchemaKeyKind::Keywords => {
                    let is_hidden =
                        if key == "pattern" { has_hidden_in_pattern(value) } else { has_hidden_in_value(value) };
                    is_hidden.then(|| format!("a value of `{key}`"))
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

/// Whether any text or key within a value has hidden characters.
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
    // A value that does not parse contains a lone surrogate.
    may_contain_hidden(raw.get()) && serde_json::from_str(raw.get()).map_or(true, |value| has_hidden(&value))
}

/// Like [`has_hidden_in_value`], but control characters are allowed: patterns use them in ranges such as `[^\0-\x1f]`.
fn has_hidden_in_pattern(raw: &RawValue) -> bool {
    let without_controls = parse_string(raw).map(|pattern| pattern.replace(char::is_control, ""));
    without_controls.is_none_or(|pattern| !has_no_hidden_characters(&pattern))
}

/// Sanitises the texts of a schema, or returns `None` if nothing changes. Names and values that must match exactly stay
/// as they are; [`reject_hidden_characters`] has checked them. The depth must be bounded before, since this recurses.
pub(crate) fn sanitize_schema(schema: &RawValue) -> Option<Box<RawValue>> {
    if !may_contain_hidden(schema.get()) {
        return None;
    }
    let mut sanitized = String::with_capacity(schema.get().len());
    let mut changed = false;
    write_sanitized(schema, SchemaKeyKind::Keywords, &mut sanitized, &mut changed);
    if changed { RawValue::from_string(sanitized).ok() } else { None }
}

/// Meaning of the keys of an object in a schema.
/// Below `properties`, `default` is the name of a property and not a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaKeyKind {
    /// Keywords of JSON Schema.
    Keywords,
    /// Names chosen by the author, as under `properties`.
    Names,
}

impl SchemaKeyKind {
    /// Returns the kind of keys in the object under `key`.
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

/// Appends the sanitised schema to `into`. Costs at most text length times depth, like [`find_remote_reference`].
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
        (_, _, Some(text)) => {
            let sanitized = sanitize(&text);
            *changed |= Some(&sanitized) != parse_string(raw).as_ref();
            json::push_json_string(&sanitized, into);
        }
        _ => into.push_str(raw.get()),
    }
}

/// Returns a sanitised text; `None` if it is blank or not a string. An offered value that differs is kept in
/// `original`. A blank description counts as missing and is replaced by the caller.
fn sanitize_text(key: &str, raw: Box<RawValue>, original: &mut RawFields, notes: &mut Vec<ToolNote>) -> Option<String> {
    let offered = parse_string(&raw);
    let sanitized = offered.as_deref().map(sanitize);
    if sanitized != offered && !notes.contains(&ToolNote::TextCleaned) {
        notes.push(ToolNote::TextCleaned);
    }
    let usable = sanitized.filter(|text| !text.trim().is_empty());
    if offered.is_none() || usable != offered {
        original.insert(key, raw);
    }
    usable
}

/// Keeps an offered field that is replaced or dropped, so that the definition can be restored for its fingerprint.
fn keep_original(key: &str, offered: Option<Box<RawValue>>, original: &mut RawFields) {
    if let Some(raw) = offered {
        original.insert(key, raw);
    }
}

/// Parses a JSON string; `None` for anything else, and for escapes that are not valid Unicode.
fn parse_string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Like [`parse_string`], with lone surrogates replaced.
fn parse_string_lossy(raw: &RawValue) -> Option<String> {
    parse_string(raw).or_else(|| serde_json::from_str(&json::replace_lone_surrogates(raw.get())?).ok())
}

/// Removes white space between JSON tokens.
fn compact(raw: Box<RawValue>) -> Box<RawValue> {
    RawValue::from_string(json::compact(raw.get())).unwrap_or(raw)
}
