//! Removing what a source was given in confidence from the texts that leave Toolcrib: errors, logs, history, pages. One pass
//! finds every known value, plain or encoded; which values those are is decided in `values`.

mod decode;
mod patterns;
mod values;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::Error;
use toolcrib_core::json;
use toolcrib_core::source::SourceKind;

use crate::secret::refers_to_file;

use decode::DecodedText;
use patterns::build_patterns;

const MASK: &str = "***";
/// How often a text is decoded: JSON inside a JSON string, or a URL in one.
const MAX_DECODINGS: usize = 2;
/// A beginning of a value that a message was cut after is hidden from this length on.
const MIN_TRUNCATED_LEN: usize = 4;
/// Bytes by which such a beginning is recognised. A longer one is hidden as a whole.
const MAX_COMPARED_LEN: usize = 512;
/// Places in a text that look like such a cut and are examined.
const MAX_TRUNCATIONS: usize = 16;

/// Finds secret values in texts and replaces them by `***`.
pub struct Redactor {
    /// `None` where there is nothing to hide.
    automaton: Option<AhoCorasick>,
    /// In lower case, for what was cut off.
    patterns: Vec<Vec<u8>>,
}

impl Redactor {
    /// For the values that a source of this kind is given, looked up now.
    pub fn for_source(kind: &SourceKind) -> Redactor {
        Redactor::new(&values::secret_values(kind))
    }

    pub(crate) fn new(values: &BTreeSet<String>) -> Redactor {
        let patterns = build_patterns(values);
        let mut builder = AhoCorasick::builder();
        // Overlapping matches are all needed: of two values that overlap in a text, neither may be left in part.
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true);
        // Building fails beyond 2^31 states, far above the bounds on patterns.
        let automaton = (!patterns.is_empty()).then(|| builder.build(&patterns).ok()).flatten();
        let patterns = patterns.iter().map(|pattern| pattern.to_ascii_lowercase().into_bytes()).collect();
        Redactor { automaton, patterns }
    }

    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        mask_ranges(text, self.find_ranges(text, MAX_DECODINGS))
    }

    pub(crate) fn redact_error(&self, mut error: Error) -> Error {
        if let Cow::Owned(message) = self.redact(&error.message) {
            error.message = message;
        }
        if let Some(details) = &mut error.details {
            self.redact_value(details);
        }
        // The cause goes to the log, and may name an address or repeat an answer as well.
        let cause = error.cause_chain().map(|cause| self.redact(&cause).into_owned());
        match cause {
            Some(cause) => error.with_cause(RedactedCause(cause)),
            None => error,
        }
    }

    /// Every string in it, the names of fields included. A number that is secret becomes a string.
    pub(crate) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                let renamed = fields.keys().any(|name| matches!(self.redact(name), Cow::Owned(_)));
                if renamed {
                    let old = std::mem::take(fields);
                    fields.extend(old.into_iter().map(|(name, field)| (self.redact(&name).into_owned(), field)));
                }
                fields.values_mut().for_each(|field| self.redact_value(field));
            }
            Value::Number(number) => {
                if let Cow::Owned(redacted) = self.redact(&number.to_string()) {
                    *value = Value::String(redacted);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub(crate) fn redact_json(&self, json: &RawValue) -> RedactedJson {
        self.redact_document(json, Redactor::redact_value)
    }

    /// A tool as its server describes it: what it says for people and models is redacted, what calls depend on stays.
    /// A tool that cannot be redacted so becomes a mere string, which no list accepts as a tool.
    pub(crate) fn redact_tool(&self, tool: Box<RawValue>) -> Box<RawValue> {
        match self.redact_document(&tool, Redactor::redact_descriptions) {
            RedactedJson::Unchanged => tool,
            RedactedJson::Changed(redacted) => redacted,
            RedactedJson::Unreadable => json::raw_string(MASK),
        }
    }

    /// Whether a tool repeats a value where it cannot be redacted, because calls depend on it: in a name, an enumeration or
    /// a default. Short values are not looked for, since a word of a tool may be equal to one of them.
    pub(crate) fn is_leaked_by(&self, tool: &RawValue) -> bool {
        const MIN_LEAK_LEN: usize = 12;
        self.find_ranges(tool.get(), MAX_DECODINGS + 1).iter().any(|range| range.len() >= MIN_LEAK_LEN)
    }

    fn redact_document(&self, json: &RawValue, redact: impl Fn(&Redactor, &mut Value)) -> RedactedJson {
        // To parse the document is one decoding more for each of its strings.
        let ranges = self.find_ranges(json.get(), MAX_DECODINGS + 1);
        if ranges.is_empty() {
            return RedactedJson::Unchanged;
        }
        let redacted = match serde_json::from_str::<Value>(json.get()) {
            Ok(mut value) => {
                redact(self, &mut value);
                serde_json::value::to_raw_value(&value)
            }
            // Nested too deep, or with half a character in a string. A part that is cut out of an escape or a number
            // leaves no JSON.
            Err(_) => RawValue::from_string(mask_ranges(json.get(), ranges).into_owned()),
        };
        redacted.map_or(RedactedJson::Unreadable, RedactedJson::Changed)
    }

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

    /// The parts of a text to hide, in order and apart from each other.
    fn find_ranges(&self, text: &str, max_decodings: usize) -> Vec<Range<usize>> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut ranges: Vec<Range<usize>> = automaton.find_overlapping_iter(text).map(|found| found.range()).collect();
        self.add_truncated(text.as_bytes(), |range| range, &mut ranges);
        let mut decoded = DecodedText::new(text);
        for _ in 0..max_decodings {
            if !decoded.decode() {
                break;
            }
            let found = automaton.find_overlapping_iter(&decoded.bytes);
            ranges.extend(found.map(|found| decoded.original_range(found.range())));
            self.add_truncated(&decoded.bytes, |range| decoded.original_range(range), &mut ranges);
        }
        merge_ranges(ranges)
    }

    /// Beginnings of values that stand right before an ellipsis, where a message was cut.
    fn add_truncated(
        &self,
        text: &[u8],
        origin: impl Fn(Range<usize>) -> Range<usize>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        const ELLIPSIS: &[u8] = "…".as_bytes();
        let cuts = text.windows(ELLIPSIS.len()).enumerate().filter(|(_, window)| *window == ELLIPSIS);
        for (end, _) in cuts.take(MAX_TRUNCATIONS) {
            let longest = self.patterns.iter().filter_map(|pattern| truncated_prefix_len(&text[..end], pattern)).max();
            ranges.extend(longest.map(|length| origin(end - length..end)));
        }
    }
}

/// What became of a JSON document.
#[derive(Debug)]
pub(crate) enum RedactedJson {
    /// It has no secrets.
    Unchanged,
    Changed(Box<RawValue>),
    /// It has secrets that cannot be replaced, and must not be passed on.
    Unreadable,
}

/// A cause of which only the redacted text is left.
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

/// The length of the longest beginning of `pattern` that `text` ends with. Of a beginning longer than `MAX_CUT_LEN`, only so
/// many bytes are compared, which bounds the time.
fn truncated_prefix_len(text: &[u8], pattern: &[u8]) -> Option<usize> {
    let longest = pattern.len().min(text.len());
    (MIN_TRUNCATED_LEN..=longest).rev().find(|&length| {
        let compared = length.min(MAX_COMPARED_LEN);
        let start = text.len() - length;
        let is_boundary = pattern.get(length).is_none_or(|byte| byte & 0xC0 != 0x80);
        text[start..start + compared].eq_ignore_ascii_case(&pattern[..compared]) && is_boundary
    })
}

/// The text with `***` in the place of these parts.
fn mask_ranges(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut at = 0;
    for range in ranges {
        redacted.push_str(&text[at..range.start]);
        redacted.push_str(MASK);
        at = range.end;
    }
    redacted.push_str(&text[at..]);
    Cow::Owned(redacted)
}

fn merge_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

/// The redactor of one source, shared by its connector and all code that reports its errors. Values are added whenever the
/// connector resolves its references; those of connections made earlier stay, for their servers may still repeat them.
#[derive(Debug, Default)]
pub(crate) struct SourceRedactor(Mutex<KnownValues>);

#[derive(Debug, Default)]
struct KnownValues {
    values: BTreeSet<String>,
    /// Of `values`, once it is needed.
    redactor: Option<Arc<Redactor>>,
    is_resolved: bool,
}

/// Values of one source. Beyond it those of the past are forgotten, which takes credentials that change all the time.
const MAX_SECRET_VALUES: usize = 10_000;

impl SourceRedactor {
    /// Looks up the values that the source is given now. Only files change while a process runs.
    pub(crate) fn update(&self, kind: &SourceKind) {
        let is_current = self.lock_known().is_resolved && !refers_to_file(kind);
        if !is_current {
            self.add(values::secret_values(kind));
            self.lock_known().is_resolved = true;
        }
    }

    /// A credential that was obtained for the source, such as an access token.
    pub(crate) fn add_credential(&self, value: &str) {
        let is_known = self.lock_known().values.contains(value);
        if !is_known {
            self.add(values::credential_values(value));
        }
    }

    fn add(&self, values: BTreeSet<String>) {
        let mut known = self.lock_known();
        if values.is_subset(&known.values) {
            return;
        }
        if known.values.len() + values.len() > MAX_SECRET_VALUES {
            *known = KnownValues::default();
        }
        known.values.extend(values);
        known.redactor = None;
    }

    pub(crate) fn get(&self, kind: &SourceKind) -> Arc<Redactor> {
        let is_looked_up = self.lock_known().is_resolved;
        if !is_looked_up {
            self.update(kind);
        }
        let mut known = self.lock_known();
        let KnownValues { values, redactor, .. } = &mut *known;
        redactor.get_or_insert_with(|| Arc::new(Redactor::new(values))).clone()
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, KnownValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
