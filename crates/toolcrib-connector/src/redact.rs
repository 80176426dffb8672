//! Masks the secrets of a source in text that leaves Toolcrib: errors, logs, history, results. One pass finds every
//! known value, plain or encoded. Which values count as secret is decided in `values`.
//!
//! ```text
//! values (redact/values)      what is secret: resolved references, literals in secret places, and parts of both
//! patterns (redact/patterns)  spellings that decoding does not undo: Base64, hexadecimal, shell quoting
//! text (redact/decode)        the searched text, with percent-encoding and backslash escapes removed up to twice
//! ```
//!
//! `Authorization: Bearer s3cret-token` in a message becomes `Authorization: Bearer ***`; so does `s3cret%2Dtoken`, or
//! the token within the Base64 of a longer text. Matches are mapped back to the original text, and their ranges are
//! masked there; nothing else of the text changes.

mod values;

mod decode;
mod patterns;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Error, json};

use crate::secret::ReferenceValues;
use decode::DecodedText;
use patterns::build_patterns;
pub use values::{credential_values, secret_values};

/// Replaces each secret.
const MASK: &str = "***";
/// Levels of escaping that are removed: JSON inside a JSON string, or a URL in one. Each level is another pass over
/// texts that contain escapes; most contain none.
const MAX_DECODINGS: usize = 2;
/// Minimum length of a secret's beginning that is masked before an ellipsis, where a message was truncated.
const MIN_TRUNCATED_LEN: usize = 4;
/// Bytes of such a beginning that are compared; a longer one is masked as a whole.
const MAX_COMPARED_LEN: usize = 512;
/// Maximum number of ellipses in a text that are examined. Each is compared with every pattern.
const MAX_TRUNCATIONS: usize = 16;

/// Finds secret values in texts and replaces them by `***`.
pub struct Redactor {
    /// `None` if there are no secrets.
    automaton: Option<AhoCorasick>,
    /// Patterns in lower case, to find truncated values.
    patterns: Vec<Vec<u8>>,
}

impl Redactor {
    /// Redactor for the secrets of a source, with the values of its references.
    pub fn for_source(kind: &SourceKind, references: &ReferenceValues) -> Redactor {
        Redactor::new(&secret_values(kind, references))
    }

    /// Redactor for the given values.
    pub fn new(values: &BTreeSet<String>) -> Redactor {
        let patterns = build_patterns(values);
        let mut builder = AhoCorasick::builder();
        // All overlapping matches are needed: if two secrets overlap in a text, no part of either may remain.
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true);
        // Fails only beyond 2^31 states, far above the limits on patterns.
        let automaton = (!patterns.is_empty()).then(|| builder.build(&patterns).ok()).flatten();
        let patterns = patterns.iter().map(|pattern| pattern.to_ascii_lowercase().into_bytes()).collect();
        Redactor { automaton, patterns }
    }

    /// Masks all secrets in a text.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        mask_ranges(text, self.find_ranges(text, MAX_DECODINGS))
    }

    /// Masks message, details and cause of an error.
    pub fn redact_error(&self, mut error: Error) -> Error {
        if let Cow::Owned(message) = self.redact(&error.message) {
            error.message = message;
        }
        if let Some(details) = &mut error.details {
            self.redact_value(details);
        }
        // The cause is logged; it may contain a URL or quote a response.
        let cause = error.cause_chain().map(|cause| self.redact(&cause).into_owned());
        match cause {
            Some(cause) => error.with_cause(RedactedCause(cause)),
            None => error,
        }
    }

    /// Masks all strings in a JSON value, field names included. A number that is secret becomes a string.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(_) | Value::Number(_) => {
                let redacted = match self.redact(&json::plain_text(value)) {
                    Cow::Owned(redacted) => Some(redacted),
                    Cow::Borrowed(_) => None,
                };
                if let Some(redacted) = redacted {
                    *value = Value::String(redacted);
                }
            }
            // The recursion is bounded: serde_json refuses documents of more than 127 levels.
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                // Field names are rewritten only if one contains a secret, which keeps the order of all others.
                let renamed = fields.keys().any(|name| matches!(self.redact(name), Cow::Owned(_)));
                if renamed {
                    let old = std::mem::take(fields);
                    fields.extend(old.into_iter().map(|(name, field)| (self.redact(&name).into_owned(), field)));
                }
                fields.values_mut().for_each(|field| self.redact_value(field));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Masks secrets in a JSON document, if there are any.
    pub fn redact_json(&self, json: &RawValue) -> RedactedJson {
        self.redact_document(json, Redactor::redact_value)
    }

    /// Masks secrets in a tool definition: in text for people and models, not in what calls depend on. A tool that
    /// cannot be parsed becomes a string, which no tool list accepts.
    pub fn redact_tool(&self, tool: Box<RawValue>) -> Box<RawValue> {
        match self.redact_document(&tool, Redactor::redact_descriptions) {
            RedactedJson::Unchanged => tool,
            RedactedJson::Changed(redacted) => redacted,
            RedactedJson::Unmaskable => json::raw_string(MASK),
        }
    }

    /// Whether a tool definition contains a secret where it cannot be masked because calls depend on it: in a name, an
    /// enumeration or a default. Short secrets are ignored, since an ordinary word may equal one of them.
    pub fn is_leaked_by(&self, tool: &RawValue) -> bool {
        // Shorter matches are likely ordinary words.
        const MIN_LEAK_LEN: usize = 12;
        self.find_ranges(tool.get(), MAX_DECODINGS + 1).iter().any(|range| range.len() >= MIN_LEAK_LEN)
    }

    /// Searches the text first, and parses the document only if it contains a secret.
    fn redact_document(&self, document: &RawValue, redact: impl Fn(&Redactor, &mut Value)) -> RedactedJson {
        // Parsing removes one level of escaping from each string, so search one level deeper.
        let ranges = self.find_ranges(document.get(), MAX_DECODINGS + 1);
        if ranges.is_empty() {
            return RedactedJson::Unchanged;
        }
        // Masked value by value, so that the result is JSON again.
        let redacted = match json::parse_exact::<Value>(document.get()) {
            Ok(mut value) => {
                redact(self, &mut value);
                json::to_exact_raw(&value)
            }
            // Nested too deeply, or with an unpaired surrogate: mask the text itself. Masking part of an escape or a
            // number does not leave valid JSON.
            Err(_) => RawValue::from_string(mask_ranges(document.get(), ranges).into_owned()),
        };
        redacted.map_or(RedactedJson::Unmaskable, RedactedJson::Changed)
    }

    /// Masks descriptions, titles, examples and `_meta`, recursively.
    fn redact_descriptions(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(_) if matches!(name.as_str(), "description" | "title" | "$comment") => {
                            self.redact_value(field)
                        }
                        _ if matches!(name.as_str(), "_meta" | "examples" | "example") => self.redact_value(field),
                        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
                        Value::Array(_) | Value::Object(_) => self.redact_descriptions(field),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_descriptions(item)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Ranges of a text to mask, sorted and disjoint.
    fn find_ranges(&self, text: &str, max_decodings: usize) -> Vec<Range<usize>> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut ranges: Vec<Range<usize>> = automaton.find_overlapping_iter(text).map(|found| found.range()).collect();
        self.add_truncated(text.as_bytes(), |range| range, &mut ranges);
        // The same search in the decoded text. An escaped secret differs from its pattern only by the escapes.
        let mut decoded = DecodedText::new(text);
        for _ in 0..max_decodings {
            if !decoded.decode() {
                break;
            }
            let matches = automaton.find_overlapping_iter(&decoded.bytes);
            ranges.extend(matches.map(|found| decoded.original_range(found.range())));
            self.add_truncated(&decoded.bytes, |range| decoded.original_range(range), &mut ranges);
        }
        merge_ranges(ranges)
    }

    /// Finds beginnings of secrets right before an ellipsis, where a message was truncated.
    fn add_truncated(
        &self,
        text: &[u8],
        origin: impl Fn(Range<usize>) -> Range<usize>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        const ELLIPSIS: &[u8] = "…".as_bytes();
        // Some messages are shortened before they reach the redactor, and the beginning of a secret is worth hiding
        // too.
        let cuts = text.windows(ELLIPSIS.len()).enumerate().filter(|(_, window)| *window == ELLIPSIS);
        for (end, _) in cuts.take(MAX_TRUNCATIONS) {
            let longest_len =
                self.patterns.iter().filter_map(|pattern| truncated_prefix_len(&text[..end], pattern)).max();
            ranges.extend(longest_len.map(|length| origin(end - length..end)));
        }
    }
}

/// Outcome of redacting a JSON document.
#[derive(Debug)]
pub enum RedactedJson {
    /// The document contains no secrets.
    Unchanged,
    /// Document with secrets masked.
    Changed(Box<RawValue>),
    /// The document contains secrets that cannot be masked, and must not be passed on.
    Unmaskable,
}

/// Cause of an error reduced to its redacted text.
#[derive(Debug)]
struct RedactedCause(String);

impl fmt::Display for RedactedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RedactedCause {}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} patterns)", self.patterns.len())
    }
}

/// Length of the longest beginning of `pattern` that `text` ends with. At most `MAX_COMPARED_LEN` bytes are compared,
/// which bounds the time.
fn truncated_prefix_len(text: &[u8], pattern: &[u8]) -> Option<usize> {
    let longest_len = pattern.len().min(text.len());
    (MIN_TRUNCATED_LEN..=longest_len).rev().find(|&length| {
        let compared = length.min(MAX_COMPARED_LEN);
        let start = text.len() - length;
        let is_boundary = pattern.get(length).is_none_or(|byte| byte & 0xC0 != 0x80);
        text[start..start + compared].eq_ignore_ascii_case(&pattern[..compared]) && is_boundary
    })
}

/// Replaces the ranges of a text by `***`.
fn mask_ranges(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut position = 0;
    for range in ranges {
        // Ranges begin and end at character boundaries: patterns are whole characters.
        redacted.push_str(&text[position..range.start]);
        redacted.push_str(MASK);
        position = range.end;
    }
    redacted.push_str(&text[position..]);
    Cow::Owned(redacted)
}

/// Sorts ranges and merges those that overlap or touch.
fn merge_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
