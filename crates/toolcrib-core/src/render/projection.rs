//! A tool as one provider takes it, what was lost on the way, and whether it can be had at all.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::json;
use crate::text::sanitize_truncated;

/// What came of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectedTool {
    /// The JSON text; none when the tool is set aside for this format.
    pub text: Option<String>,
    /// In the order of their paths.
    pub losses: Vec<Loss>,
    pub unsupported_reason: Option<String>,
}

/// An edit that loses something. The path leads into the tool's input schema; `name` and `description` are the tool's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Loss {
    pub path: String,
    pub edit: String,
}

/// A part of a schema that a provider cannot take in any form. Where it is optional it is left out, else the tool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) path: String,
    pub(super) reason: String,
}

pub(super) type ProjectionResult<T> = Result<T, Unsupported>;

/// One schema on its way into another dialect.
#[derive(Debug)]
pub(super) struct ProjectionContext<'a> {
    root: &'a Value,
    losses: BTreeSet<Loss>,
    /// Something was lost beyond those.
    has_more_losses: bool,
    max_parts: usize,
    parts_written: usize,
    depth: usize,
    merge_count: usize,
    copied_bytes: usize,
}

/// Schemas come from outside, and references make them as large as one likes.
const MAX_PROJECTION_DEPTH: usize = 100;
const MAX_MERGES: usize = 500;
/// Bytes that are copied on the way: the largest schema there may be (256 KiB), thirty-two times.
const MAX_COPIED_BYTES: usize = 8 * 1024 * 1024;
/// What telling a loss is worth in copied bytes: a keyword of three may be lost over and over.
const LOSS_COST: usize = 64;
/// So many losses of one tool are told, each with a path of about so many bytes: a provider's form is kept with them.
const MAX_LOSSES: usize = 1_000;
const MAX_LOSS_PATH_LEN: usize = 1_000;
/// Longest schema that is written for a provider, in bytes: four times the largest there may be.
const MAX_WRITTEN_BYTES: usize = 1024 * 1024;
/// What of a value is read, to show sixty characters of it.
const MAX_VALUE_BYTES_READ: usize = 480;

impl<'a> ProjectionContext<'a> {
    pub(super) fn new(root: &'a Value, most_parts: usize) -> ProjectionContext<'a> {
        ProjectionContext {
            root,
            losses: BTreeSet::new(),
            has_more_losses: false,
            max_parts: most_parts,
            parts_written: 0,
            depth: 0,
            merge_count: 0,
            copied_bytes: 0,
        }
    }

    /// One more part is written, inside of another.
    pub(super) fn enter_part(&mut self, path: &str) -> ProjectionResult<()> {
        self.parts_written += 1;
        if self.is_too_large() {
            return Err(too_large_error(path));
        }
        if self.depth == MAX_PROJECTION_DEPTH {
            return Err(Unsupported::new(path, "it is nested too deep"));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave_part(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.parts_written > self.max_parts || self.copied_bytes > MAX_COPIED_BYTES
    }

    /// So many bytes are about to be copied.
    pub(super) fn count_copy(&mut self, bytes: usize, path: &str) -> ProjectionResult<()> {
        self.copied_bytes += bytes;
        if self.copied_bytes > MAX_COPIED_BYTES { Err(too_large_error(path)) } else { Ok(()) }
    }

    pub(super) fn count_merge(&mut self, path: &str) -> ProjectionResult<()> {
        self.merge_count += 1;
        match self.merge_count > MAX_MERGES {
            true => Err(Unsupported::new(path, "it is composed of too many parts")),
            false => Ok(()),
        }
    }

    pub(super) fn record_loss(&mut self, path: &str, edit: impl Into<String>) {
        self.copied_bytes += LOSS_COST;
        if self.losses.len() < MAX_LOSSES {
            self.losses.insert(Loss { path: path.to_owned(), edit: edit.into() });
        } else {
            self.has_more_losses = true;
        }
    }

    /// A keyword that the provider does not know, or not with this value.
    pub(super) fn record_dropped_keyword(&mut self, path: &str, keyword: &str, value: &Value) {
        // That a field is left out by default needs no saying.
        if keyword == "default" && value.is_null() {
            return;
        }
        let shown = sanitize_truncated(&json::truncated_json(value, MAX_VALUE_BYTES_READ), 60);
        self.record_loss(&child_pointer(path, keyword), format!("{shown} is not supported, dropped"));
    }

    /// What a local reference leads to.
    pub(super) fn resolve(&self, reference: &str) -> Option<&'a Value> {
        json::follow_reference(self.root, reference)
    }

    pub(super) fn into_losses(self) -> Vec<Loss> {
        let more = Loss { path: "…".to_owned(), edit: "more is lost than is told here".to_owned() };
        self.losses.into_iter().chain(self.has_more_losses.then_some(more)).collect()
    }

    /// A field that can be done without.
    pub(super) fn record_dropped_field(&mut self, path: &str, unfit: &Unsupported) {
        self.record_loss(path, format!("{}; optional, dropped", unfit.describe_relative_to(path)));
    }

    /// A value that has several forms, each with its path: those that fit, once each. One has to.
    pub(super) fn join_alternatives(
        &mut self,
        forms: Vec<(&str, ProjectionResult<Value>)>,
        path: &str,
    ) -> ProjectionResult<Map<String, Value>> {
        let (mut written, mut known, mut last) = (Vec::new(), HashSet::new(), None);
        for (at, form) in forms {
            match form {
                Ok(form) if known.contains(&form) => {}
                Ok(form) => {
                    known.insert(form.clone());
                    written.push(form);
                }
                Err(unfit) => {
                    self.record_loss(at, format!("{}; this form is dropped", unfit.describe_relative_to(at)));
                    last = Some(unfit);
                }
            }
        }
        match (written.len(), last) {
            (0, Some(unfit)) => Err(unfit),
            (0, None) => Err(Unsupported::new(path, "it has no form")),
            (1, _) => Ok(written.swap_remove(0).as_object().cloned().unwrap_or_default()),
            _ => Ok(Map::from_iter([("anyOf".to_owned(), Value::Array(written))])),
        }
    }
}

fn too_large_error(path: &str) -> Unsupported {
    Unsupported::new(path, "with its references written out, the schema is too large")
}

/// About how many bytes of text the values of an object are.
pub(super) fn estimate_size(keywords: &Map<String, Value>) -> usize {
    fn estimate_value_size(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 2,
            Value::String(text) => 2 + text.len(),
            Value::Array(items) => 2 + items.iter().map(|item| 1 + estimate_value_size(item)).sum::<usize>(),
            Value::Object(keywords) => estimate_size(keywords),
        }
    }
    2 + keywords.iter().map(|(key, value)| 4 + key.len() + estimate_value_size(value)).sum::<usize>()
}

/// The names that a schema requires, as a set: there may be as many as there are fields.
pub(super) fn required_names(keywords: &Map<String, Value>) -> HashSet<&str> {
    keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A step down in a JSON pointer. A path that is long enough to be told ends in `…` and grows no further: a path is
/// written for every part, and names in it may be as long as a schema.
pub(super) fn child_pointer(path: &str, key: &str) -> String {
    if path.len() + key.len() <= MAX_LOSS_PATH_LEN {
        return format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    }
    if path.ends_with("/…") { path.to_owned() } else { format!("{path}/…") }
}

/// A schema as text, unless references and parts made it too long.
pub(super) fn to_bounded_string(schema: &Value) -> ProjectionResult<String> {
    let text = schema.to_string();
    if text.len() > MAX_WRITTEN_BYTES { Err(too_large_error("")) } else { Ok(text) }
}

impl Unsupported {
    pub(super) fn new(path: &str, reason: impl Into<String>) -> Unsupported {
        Unsupported { path: path.to_owned(), reason: reason.into() }
    }

    fn describe_relative_to(&self, path: &str) -> String {
        if self.path == path { self.reason.clone() } else { self.to_string() }
    }
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.reason),
            path => write!(f, "{}: {}", sanitize_truncated(path, 200), self.reason),
        }
    }
}
