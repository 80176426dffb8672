//! Common parts of the projections: the result with its losses, the limits on work, and helpers for paths and sizes.
//!
//! A part that cannot be expressed is an [`Unsupported`] error that moves up to the next optional field or alternative,
//! which is then dropped with a [`Loss`]; if there is none, the tool is left out of the format.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_core::json;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{array_keyword, resolve_reference};

/// A tool projected to a provider format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectedTool {
    /// JSON text; `None` if the format cannot express the tool.
    pub text: Option<String>,
    /// Sorted by path.
    pub losses: Vec<Loss>,
    /// Why there is no text.
    pub unsupported_reason: Option<String>,
}

impl ProjectedTool {
    /// Returns the projection of a tool that the format cannot express.
    pub(super) fn unsupported(losses: Vec<Loss>, reason: impl ToString) -> ProjectedTool {
        ProjectedTool { text: None, losses, unsupported_reason: Some(reason.to_string()) }
    }
}

/// A lossy edit. `path` is a JSON pointer into the input schema, or `name` or `description` of the tool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Loss {
    pub path: String,
    pub edit: String,
}

/// A part of a schema that a provider does not support. Optional parts are dropped; otherwise the tool is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) path: String,
    pub(super) reason: String,
}

/// Result of projecting a part of a schema.
pub(super) type ProjectionResult<T> = Result<T, Unsupported>;

/// State of one projection: the losses, and counters that bound the work.
#[derive(Debug)]
pub(super) struct ProjectionContext<'a> {
    /// Schema that local references point into.
    root: &'a Value,
    losses: BTreeSet<Loss>,
    /// Whether losses beyond [`MAX_LOSSES`] were omitted.
    has_more_losses: bool,
    /// Limit of the format.
    max_parts: usize,
    /// Compared with `max_parts`.
    parts_written: usize,
    depth: usize,
    /// Compared with [`MAX_MERGES`].
    merge_count: usize,
    /// Compared with [`MAX_COPIED_BYTES`].
    copied_bytes: usize,
}

/// Maximum nesting of parts. Schemas are untrusted, and references can nest a small schema without end.
const MAX_PROJECTION_DEPTH: usize = 100;
/// Maximum number of `allOf` parts and references that are merged. Exceeding it makes the part unsupported.
const MAX_MERGES: usize = 500;
/// Maximum number of bytes copied: 32 times the largest schema that a manifest accepts (256 KiB).
const MAX_COPIED_BYTES: usize = 8 * 1024 * 1024;
/// Cost of recording a loss, in copied bytes: a short keyword can be lost very often.
const LOSS_COST: usize = 64;
/// Maximum number of losses per tool. Losses are cached with the projection, so they are bounded.
const MAX_LOSSES: usize = 1_000;
/// Approximate maximum length of a path in bytes.
const MAX_LOSS_PATH_LEN: usize = 1_000;
/// Maximum length of a projected schema in bytes: four times the largest schema that a manifest accepts.
const MAX_WRITTEN_BYTES: usize = 1024 * 1024;
/// Number of bytes of a value that are serialised to show 60 characters of it.
const MAX_VALUE_BYTES_READ: usize = 480;

impl<'a> ProjectionContext<'a> {
    /// Starts a projection of `root` to at most `max_parts` parts.
    pub(super) fn new(root: &'a Value, max_parts: usize) -> ProjectionContext<'a> {
        ProjectionContext {
            root,
            losses: BTreeSet::new(),
            has_more_losses: false,
            max_parts,
            parts_written: 0,
            depth: 0,
            merge_count: 0,
            copied_bytes: 0,
        }
    }

    /// Counts one more nested part; fails at the limits. Must be paired with [`Self::leave_part`].
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

    /// Whether a limit on the size was exceeded.
    pub(super) fn is_too_large(&self) -> bool {
        self.parts_written > self.max_parts || self.copied_bytes > MAX_COPIED_BYTES
    }

    /// Counts bytes that are about to be copied; fails at the limit.
    pub(super) fn count_copy(&mut self, bytes: usize, path: &str) -> ProjectionResult<()> {
        self.copied_bytes += bytes;
        if self.copied_bytes > MAX_COPIED_BYTES { Err(too_large_error(path)) } else { Ok(()) }
    }

    /// Counts a merge; fails at the limit.
    pub(super) fn count_merge(&mut self, path: &str) -> ProjectionResult<()> {
        self.merge_count += 1;
        if self.merge_count > MAX_MERGES {
            Err(Unsupported::new(path, "it is composed of too many parts"))
        } else {
            Ok(())
        }
    }

    /// Records a lossy edit.
    pub(super) fn record_loss(&mut self, path: &str, edit: impl Into<String>) {
        self.copied_bytes += LOSS_COST;
        if self.losses.len() < MAX_LOSSES {
            self.losses.insert(Loss { path: path.to_owned(), edit: edit.into() });
        } else {
            self.has_more_losses = true;
        }
    }

    /// Records a keyword that is not supported, or not with this value.
    pub(super) fn record_dropped_keyword(&mut self, path: &str, keyword: &str, value: &Value) {
        // `default: null` only says that the field is optional.
        if keyword == "default" && value.is_null() {
            return;
        }
        let value = sanitize_truncated(&json::truncated_json(value, MAX_VALUE_BYTES_READ), 60);
        self.record_loss(&child_pointer(path, keyword), format!("{value} is not supported, dropped"));
    }

    /// Returns the target of a local reference.
    pub(super) fn resolve(&self, reference: &str) -> Option<&'a Value> {
        resolve_reference(self.root, reference)
    }

    /// Returns the losses in order, with a note if some were omitted.
    pub(super) fn into_losses(self) -> Vec<Loss> {
        let more = Loss { path: "…".to_owned(), edit: "further losses are omitted".to_owned() };
        self.losses.into_iter().chain(self.has_more_losses.then_some(more)).collect()
    }

    /// Returns a projected field, or `None` for an optional one that is not supported. Fails for a required one.
    pub(super) fn keep_supported(
        &mut self,
        field: &ObjectField<'_>,
        projected: ProjectionResult<Value>,
    ) -> ProjectionResult<Option<Value>> {
        match projected {
            Ok(schema) => Ok(Some(schema)),
            Err(unsupported) if field.is_required => Err(unsupported),
            Err(unsupported) => {
                let reason = unsupported.describe_relative_to(&field.path);
                self.record_loss(&field.path, format!("{reason}; optional, dropped"));
                Ok(None)
            }
        }
    }

    /// Combines projected alternatives to `anyOf`, without duplicates and unsupported ones. Fails if none is left.
    pub(super) fn join_alternatives(
        &mut self,
        alternatives: Vec<(&str, ProjectionResult<Value>)>,
        path: &str,
    ) -> ProjectionResult<Map<String, Value>> {
        let mut kept = Vec::new();
        let mut seen = HashSet::new();
        let mut last_error = None;
        for (path, alternative) in alternatives {
            match alternative {
                Ok(alternative) if seen.contains(&alternative) => {}
                Ok(alternative) => {
                    seen.insert(alternative.clone());
                    kept.push(alternative);
                }
                Err(unsupported) => {
                    self.record_loss(
                        path,
                        format!("{}; this alternative is dropped", unsupported.describe_relative_to(path)),
                    );
                    last_error = Some(unsupported);
                }
            }
        }
        match (kept.len(), last_error) {
            (0, Some(unsupported)) => Err(unsupported),
            (0, None) => Err(Unsupported::new(path, "it has no supported alternative")),
            // A single alternative needs no choice around it.
            (1, _) => Ok(kept.swap_remove(0).as_object().cloned().unwrap_or_default()),
            _ => Ok(Map::from_iter([("anyOf".to_owned(), Value::Array(kept))])),
        }
    }
}

fn too_large_error(path: &str) -> Unsupported {
    Unsupported::new(path, "the schema is too large after inlining its references")
}

/// Estimates the length of an object as JSON text.
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

/// A declared field of an object.
pub(super) struct ObjectField<'a> {
    pub(super) name: &'a String,
    pub(super) schema: &'a Value,
    pub(super) path: String,
    pub(super) is_required: bool,
}

/// Returns the declared fields of an object. Leaves out those with the schema `false`, which must not be given.
pub(super) fn object_fields<'a>(keywords: &'a Map<String, Value>, path: &str) -> impl Iterator<Item = ObjectField<'a>> {
    let required = required_names(keywords);
    let path = format!("{path}/properties");
    let fields = keywords.get("properties").and_then(Value::as_object).into_iter().flatten();
    fields.filter(|(_, schema)| **schema != Value::Bool(false)).map(move |(name, schema)| ObjectField {
        name,
        schema,
        path: child_pointer(&path, name),
        is_required: required.contains(name.as_str()),
    })
}

/// Returns the required names as a set, because there may be as many as fields.
pub(super) fn required_names(keywords: &Map<String, Value>) -> HashSet<&str> {
    array_keyword(keywords, "required").iter().filter_map(Value::as_str).collect()
}

/// Appends a key to a JSON pointer. A pointer that reaches [`MAX_LOSS_PATH_LEN`] ends in `…` and stops growing: one is
/// built for every part, and names may be as long as the schema.
pub(super) fn child_pointer(path: &str, key: &str) -> String {
    if path.len() + key.len() <= MAX_LOSS_PATH_LEN {
        return format!("{path}/{}", json::escape_pointer_token(key));
    }
    if path.ends_with("/…") { path.to_owned() } else { format!("{path}/…") }
}

/// Serialises a schema; fails if references and merges made it too long.
pub(super) fn to_bounded_string(schema: &Value) -> ProjectionResult<String> {
    let text = json::to_exact_string(schema).unwrap_or_default();
    if text.len() > MAX_WRITTEN_BYTES { Err(too_large_error("")) } else { Ok(text) }
}

impl Unsupported {
    pub(super) fn new(path: &str, reason: impl Into<String>) -> Unsupported {
        Unsupported { path: path.to_owned(), reason: reason.into() }
    }

    /// Formats the reason, with the path only if it differs from `path`.
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
