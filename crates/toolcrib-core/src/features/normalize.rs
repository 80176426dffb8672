//! Normalises one prompt, resource or resource template: checks its limits and sanitises its texts, or returns the reason
//! why it cannot be used.
//!
//! Texts that must match exactly on both sides (names of prompts and of their arguments, URIs) cannot be sanitised,
//! because the server would not know the changed form; an item with hidden characters in one of them is skipped.

use serde_json::value::RawValue;

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
    let fields = RawFields::parse(raw).ok_or_else(|| reject_nameless("it is not a JSON object".into()))?;
    let key = fields.get(kind.key()).and_then(parse_string).filter(|key| !key.trim().is_empty());
    let key = key.ok_or_else(|| reject_nameless(format!("it has no `{}`", kind.key())))?;
    if key.len() > MAX_KEY_BYTES {
        return Err(reject_nameless(format!("its `{}` is longer than {MAX_KEY_BYTES} bytes", kind.key())));
    }
    let reject = |reason: String| SkippedTool { name: skipped_name(kind, &key), reason };
    if !is_exact(&key) {
        return Err(reject(format!("its `{}` has hidden or invalid characters", kind.key())));
    }
    let arguments: Vec<RawFields> =
        fields.get("arguments").and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let mut argument_names = arguments.iter().filter_map(|argument| argument.get("name").and_then(parse_string));
    if kind == FeatureKind::Prompt && !argument_names.all(|name| is_exact(&name)) {
        return Err(reject("the name of an argument has hidden or invalid characters".into()));
    }
    let sanitized = sanitize_schema(raw).unwrap_or_else(|| raw.to_owned());
    let item = RawValue::from_string(json::compact(sanitized.get())).unwrap_or(sanitized);
    Ok((key, item))
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
