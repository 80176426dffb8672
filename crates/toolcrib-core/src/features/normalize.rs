//! Normalises one prompt, resource or resource template: checks its limits and sanitises its texts, or returns the reason
//! why it cannot be used.
//!
//! Texts that must match exactly on both sides (names of prompts and of their arguments, URIs) cannot be sanitised,
//! because the server would not know the changed form; an item with hidden characters in one of them is skipped.
//!
//! Clients validate a whole list and refuse it for one wrong item, so `shape` drops fields that they would refuse.

mod shape;

use serde_json::value::{RawValue, to_raw_value};

use super::FeatureKind;
use crate::fingerprint::Fingerprint;
use crate::json::{self, RawFields};
use crate::manifest::{SkippedTool, sanitize_schema};
use crate::text::{has_no_hidden_characters, sanitize_truncated};

/// Maximum size of one item in bytes of JSON text as received.
const MAX_ITEM_BYTES: usize = 256 * 1024;
/// Maximum nesting depth of an item. Everything that recurses over one relies on it.
const MAX_ITEM_DEPTH: usize = 32;
/// Maximum length of a name or URI in bytes. The journal lists them.
const MAX_KEY_BYTES: usize = 2048;

/// Normalises an item; returns its key with it. `position` identifies an item without a usable key.
pub(super) fn normalize_item(
    kind: FeatureKind,
    raw: &RawValue,
    position: usize,
) -> Result<(String, Box<RawValue>), SkippedTool> {
    let reject_nameless = |reason: String| {
        let name = format!("{} #{}", kind.as_str(), position + 1);
        SkippedTool { name, reason }
    };
    if raw.get().len() > MAX_ITEM_BYTES {
        return Err(reject_nameless(format!("it is larger than {MAX_ITEM_BYTES} bytes")));
    }
    if json::nesting_depth(raw.get()) > MAX_ITEM_DEPTH {
        return Err(reject_nameless(format!("it is nested deeper than {MAX_ITEM_DEPTH} levels")));
    }
    let mut fields = RawFields::parse(raw).ok_or_else(|| reject_nameless("it is not a JSON object".into()))?;
    let key = fields.get(kind.key()).and_then(parse_string).filter(|key| !key.trim().is_empty());
    let key = key.ok_or_else(|| reject_nameless(format!("it has no `{}`", kind.key())))?;
    if key.len() > MAX_KEY_BYTES {
        return Err(reject_nameless(format!("its `{}` is longer than {MAX_KEY_BYTES} bytes", kind.key())));
    }
    let reject = |reason: String| SkippedTool { name: skipped_name(kind, &key), reason };
    if !is_exact(&key) {
        return Err(reject(format!("its `{}` has hidden or invalid characters", kind.key())));
    }
    shape::drop_invalid_fields(&mut fields, shape::item_fields(kind));
    shape::drop_invalid_annotations(&mut fields);
    match (kind, fields.get("arguments")) {
        (FeatureKind::Prompt, Some(arguments)) => {
            let arguments = normalize_arguments(arguments).map_err(|reason| reject(reason.into()))?;
            fields.insert("arguments", arguments);
        }
        (FeatureKind::Prompt, None) => {}
        // Required by the protocol, and left out by some servers.
        (FeatureKind::Resource | FeatureKind::ResourceTemplate, _) => {
            if fields.get("name").and_then(parse_string).is_none_or(|name| name.trim().is_empty()) {
                fields.insert("name", json::raw_string(&key));
            }
        }
    }
    let unsanitized = to_raw_value(&fields).map_err(|_| reject("it cannot be written".into()))?;
    let sanitized = sanitize_schema(&unsanitized).unwrap_or(unsanitized);
    let item = RawValue::from_string(json::compact(sanitized.get())).unwrap_or(sanitized);
    Ok((key, item))
}

/// Normalises the arguments of a prompt, or returns why the prompt cannot be used.
fn normalize_arguments(raw: &RawValue) -> Result<Box<RawValue>, &'static str> {
    const INVALID: &str = "its `arguments` are not a list of objects with a `name`";
    let mut arguments: Vec<RawFields> = serde_json::from_str(raw.get()).map_err(|_| INVALID)?;
    for argument in &mut arguments {
        let name = argument.get("name").and_then(parse_string).ok_or(INVALID)?;
        if !is_exact(&name) {
            return Err("the name of an argument has hidden or invalid characters");
        }
        shape::drop_invalid_fields(argument, &shape::ARGUMENT_FIELDS);
    }
    to_raw_value(&arguments).map_err(|_| INVALID)
}

/// Fingerprint of a normalised item: independent of the order of its fields.
pub(super) fn fingerprint(item: &RawValue) -> Fingerprint {
    let mut canonical = String::with_capacity(item.get().len());
    json::push_canonical(item, &mut canonical);
    Fingerprint::digest(canonical)
}

/// Name of a skipped item, as lists of skipped tools show it: `prompt review`.
pub(super) fn skipped_name(kind: FeatureKind, key: &str) -> String {
    format!("{} {}", kind.as_str(), sanitize_truncated(key, 200))
}

/// Whether a text can be sent back as it was received. Invalid UTF-8 was replaced when it was read.
fn is_exact(text: &str) -> bool {
    has_no_hidden_characters(text) && !text.contains(char::REPLACEMENT_CHARACTER)
}

/// Parses a JSON string; `None` for any other value.
fn parse_string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}
