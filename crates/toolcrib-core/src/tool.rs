//! A tool: its identity, its name in the catalogue, and its content as the source describes it, normalised.
//!
//! A tool has three names, which are types of their own or say so in their names:
//!
//! ```text
//! original name    create.issue           the source's own; calls to the source must use it
//! ToolId           github, create.issue   identity in the inventory and in events
//! ToolName         github__create_issue   what agents see and call
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access_rules::RiskHints;
use crate::error::{Code, Error, Result};
use crate::execution::ExecutionSpec;
use crate::fingerprint::Fingerprint;
use crate::json::{self, RawFields};
use crate::source::SourceId;
use crate::text::{sanitize, sanitize_truncated};

/// Identity of a tool. Two fields and never one string, because names may contain any separator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolId {
    pub source: SourceId,
    /// The source's own name for the tool.
    pub name: String,
}

/// A tool as its source describes it, normalised. Schemas and unknown fields keep their original JSON text.
///
/// The serialised form is stored in manifests, so field names are fixed by `serde` attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    /// The source's own name for the tool.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// [`ExecutionSpec`] as JSON, for tools that Toolcrib executes itself (OpenAPI operations, workflows). Not listed.
    #[serde(rename = "backing", default, skip_serializing_if = "Option::is_none")]
    pub execution_spec: Option<Box<RawValue>>,
    /// All other fields that the source sent, in their order.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub extra: RawFields,
    /// Original JSON of the fields that normalisation changed, by field name.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub original: RawFields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<ToolNote>,
    /// Must stay the last field: its text is cut out of the stored tool without parsing.
    #[serde(rename = "face")]
    pub listing: ToolListing,
}

/// The part of a tool that lists show.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolListing {
    pub title: Option<String>,
    /// Sanitised; the source's text is in [`Tool::original`] if it differs.
    pub description: String,
    /// JSON Schema of the arguments; for OpenAPI operations it may be pruned.
    pub input_schema: Box<RawValue>,
    /// MCP annotations, such as `readOnlyHint`.
    pub annotations: Option<Box<RawValue>>,
}

/// Something that normalisation added to a tool or removed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolNote {
    /// The schema `{"type":"object"}` was filled in.
    NoSchema,
    /// A text with the name of the tool was filled in.
    NoDescription,
    /// The original is in [`Tool::original`].
    TextCleaned,
    /// They were no object.
    AnnotationsIgnored,
    /// It was no object, too large, nested too deep, or refers to another document.
    OutputSchemaIgnored,
}

impl ToolNote {
    /// Describes the note for people.
    pub fn text(self) -> &'static str {
        match self {
            ToolNote::NoSchema => "the source provides no input schema; any arguments are passed on",
            ToolNote::NoDescription => "the source provides no description",
            ToolNote::TextCleaned => "hidden and control characters were removed from its text",
            ToolNote::OutputSchemaIgnored => "its output schema is invalid and was removed",
            ToolNote::AnnotationsIgnored => "its annotations are not an object and were removed",
        }
    }
}

/// MCP annotations that affect retries. Values other than booleans count as `false`.
/// A server that sends `"yes"` instead of `true` gets no retries rather than an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    #[serde(deserialize_with = "deserialize_bool_or_false")]
    pub read_only_hint: bool,
    #[serde(deserialize_with = "deserialize_bool_or_false")]
    pub idempotent_hint: bool,
}

/// Deserialises a boolean; any other value becomes `false` instead of an error.
fn deserialize_bool_or_false<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_bool().unwrap_or(false))
}

/// Whether an MCP tool runs as a task, from `execution.taskSupport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskMode {
    /// It runs within the call. The default of the protocol, and for unknown values.
    #[default]
    Forbidden,
    /// The client may call it as a task.
    Optional,
    /// It has to be called as a task.
    Required,
}

/// Key under which a connector puts the [`ExecutionSpec`] of a tool that it offers.
pub const EXECUTION_SPEC_KEY: &str = "x-toolcrib-backing";

impl Tool {
    /// Returns the fields of the tool as its source sent them.
    /// Their fingerprint is that of the offered definition, which `verify` checks. The order of fields is not restored;
    /// the canonical form does not need it.
    pub fn to_offered_fields(&self) -> RawFields {
        let mut offered = RawFields::default();
        let has_note = |note: ToolNote| self.notes.contains(&note);
        let ToolListing { title, description, input_schema, annotations } = &self.listing;
        let fields = [
            ("name", Some(json::raw_string(&self.name))),
            ("title", title.as_deref().map(json::raw_string)),
            ("description", (!has_note(ToolNote::NoDescription)).then(|| json::raw_string(description))),
            ("inputSchema", (!has_note(ToolNote::NoSchema)).then(|| input_schema.clone())),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", annotations.clone()),
            (EXECUTION_SPEC_KEY, self.execution_spec.clone()),
        ];
        // The original text of a field takes precedence over the normalised one.
        for (key, listed) in fields {
            if let Some(value) = self.original.get(key).map(ToOwned::to_owned).or(listed) {
                offered.insert(key, value);
            }
        }
        offered.extend(&self.extra);
        offered
    }

    /// Returns how the tool can be called, as an MCP server says in `execution.taskSupport`.
    pub fn task_support(&self) -> TaskMode {
        let execution = self.extra.get("execution").and_then(RawFields::parse);
        let support = execution.and_then(|execution| serde_json::from_str(execution.get("taskSupport")?.get()).ok());
        support.unwrap_or_default()
    }

    /// Parses the execution specification, if the tool has one.
    /// For tools of MCP servers the caller must ignore it, see
    /// `ToolRef::execution_spec` of the catalogue.
    pub fn parse_execution_spec(&self) -> Option<ExecutionSpec> {
        serde_json::from_str(self.execution_spec.as_ref()?.get()).ok()
    }

    /// Returns what the source says about the risk of calling the tool. Values other than booleans count as absent.
    pub fn risk_hints(&self) -> RiskHints {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Annotations {
            read_only_hint: Value,
            destructive_hint: Value,
            open_world_hint: Value,
        }
        let annotations = self.listing.annotations.as_ref();
        let parsed: Annotations =
            annotations.and_then(|annotations| serde_json::from_str(annotations.get()).ok()).unwrap_or_default();
        let defaults = RiskHints::default();
        RiskHints {
            read_only: parsed.read_only_hint.as_bool().unwrap_or(defaults.read_only),
            destructive: parsed.destructive_hint.as_bool().unwrap_or(defaults.destructive),
            open_world: parsed.open_world_hint.as_bool().unwrap_or(defaults.open_world),
        }
    }

    /// Whether the tool is for the views of MCP Apps alone and not for models: `_meta.ui.visibility` has `app` and not
    /// `model`.
    pub fn is_app_only(&self) -> bool {
        #[derive(Deserialize)]
        struct Meta {
            ui: Ui,
        }
        #[derive(Deserialize)]
        struct Ui {
            visibility: Vec<String>,
        }
        let meta = self.extra.get("_meta").and_then(|raw| serde_json::from_str::<Meta>(raw.get()).ok());
        meta.is_some_and(|Meta { ui: Ui { visibility } }| {
            let names = |audience: &str| visibility.iter().any(|name| name == audience);
            names("app") && !names("model")
        })
    }

    /// Parses the annotations that affect retries; all `false` if there are none.
    pub fn hints(&self) -> Hints {
        self.listing.annotations.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// Name of a tool in the catalogue: `source__tool`, or the bare name of a built-in. At most 64 characters of
/// `[A-Za-z0-9_-]`, which all providers accept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ToolName(String);

/// Separates source and tool in a [`ToolName`].
pub const SEPARATOR: &str = "__";
/// Returns what the names of a source's tools begin with: `source__`, or nothing for the kind `builtin`.
pub fn name_prefix(source: &SourceId, kind: &str) -> String {
    if kind == "builtin" { String::new() } else { format!("{source}{SEPARATOR}") }
}

/// Maximum length of a [`ToolName`], the smallest limit among the providers.
/// OpenAI and Anthropic accept 64 characters; MCP itself allows 128.
pub const MAX_TOOL_NAME_LEN: usize = 64;

impl ToolName {
    /// Derives the name from the original one: illegal characters become `_`; a name that is too long is cut and gets a
    /// hash. The result depends on both arguments alone, so a tool has the same name on every machine.
    pub fn from_original(prefix: &str, tool: &str) -> ToolName {
        let name = sanitize_with_prefix(prefix, tool);
        if name.len() <= MAX_TOOL_NAME_LEN { ToolName(name) } else { ToolName::with_hash(prefix, tool) }
    }

    /// Derives a unique name when the plain one is taken or too long: cut, plus `_` and 8 hex digits of the original
    /// name's hash.
    pub fn with_hash(prefix: &str, tool: &str) -> ToolName {
        let mut name = sanitize_with_prefix(prefix, tool);
        // Leaves room for `_` and 8 digits.
        name.truncate(MAX_TOOL_NAME_LEN - 9);
        ToolName(format!("{name}_{}", Fingerprint::digest(tool).short_hex(8)))
    }

    /// Returns the name without the prefix of its source, as rules on tools may spell it.
    pub fn without_prefix(&self, prefix: &str) -> &str {
        self.0.strip_prefix(prefix).unwrap_or(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Replaces illegal characters of a tool's name by `_`. The result is ASCII, so it can be truncated at any byte.
fn sanitize_with_prefix(prefix: &str, tool: &str) -> String {
    let legal = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    let tool = sanitize(tool);
    prefix.chars().chain(tool.chars().map(|character| if legal(character) { character } else { '_' })).collect()
}

/// A tool name as a client wrote it, split but not yet looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedToolName<'a> {
    /// Name with a source.
    Qualified { source: &'a str, tool: &'a str },
    /// Name without a separator.
    Bare(&'a str),
}

/// Parses `source__tool`, `source/tool`, `source:tool` and bare names. The only parser of tool names.
/// Nothing is looked up, and the parts are not normalised.
///
/// # Errors
/// `TOOL_INVALID_INPUT` if the text is empty, too long, has control characters or lacks one of the parts.
pub fn parse_tool_name(text: &str) -> Result<ParsedToolName<'_>> {
    let malformed = |reason: &str| {
        let message = format!("`{}` is not a tool name: {reason}", sanitize_truncated(text, 80));
        Err(Error::new(Code::ToolInvalidInput, message))
    };
    if text.is_empty() {
        return malformed("it is empty");
    }
    if text.len() > 512 || text.chars().any(char::is_control) {
        return malformed("it is too long or has control characters");
    }
    // The first separator counts, as the original name of a tool may contain any of them.
    let split = match (text.find(SEPARATOR), text.find(['/', ':'])) {
        (Some(separator), Some(other)) if other < separator => text.split_once(['/', ':']),
        (Some(_), _) => text.split_once(SEPARATOR),
        (None, _) => text.split_once(['/', ':']),
    };
    match split {
        None => Ok(ParsedToolName::Bare(text)),
        Some(("", _)) => malformed("the source is missing before the separator; write `source__tool`"),
        Some((_, "")) => malformed("the tool is missing after the separator; write `source__tool`"),
        Some((source, tool)) => Ok(ParsedToolName::Qualified { source, tool }),
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_separator() {
        let qualified = |source, tool| ParsedToolName::Qualified { source, tool };
        for (text, expected) in [
            ("git__push", qualified("git", "push")),
            ("git__push__all", qualified("git", "push__all")),
            ("git___push", qualified("git", "_push")),
            ("git/push", qualified("git", "push")),
            ("git:push/x", qualified("git", "push/x")),
            ("git:push__all", qualified("git", "push__all")),
            ("git__push/all", qualified("git", "push/all")),
            ("push", ParsedToolName::Bare("push")),
            ("_push_", ParsedToolName::Bare("_push_")),
        ] {
            assert_eq!(parse_tool_name(text).unwrap(), expected, "{text}");
        }
        for text in ["", "__push", "git__", "__", "/push", "git:", "a\nb", &"x".repeat(513)] {
            assert_eq!(parse_tool_name(text).unwrap_err().code, Code::ToolInvalidInput, "{text}");
        }
    }

    #[test]
    fn a_name_is_sanitized_and_at_most_64_characters() {
        for (tool, name) in [
            ("push", "git__push"),
            ("a.b/c d", "git__a_b_c_d"),
            ("größe", "git__gr__e"),
            ("esc\u{1b}[31mred", "git__escred"),
        ] {
            assert_eq!(ToolName::from_original("git__", tool).as_str(), name);
        }
        let long = ToolName::from_original("git__", &"x".repeat(100));
        assert_eq!(long.as_str().len(), 64);
        assert!(long.as_str().starts_with("git__xxx"));
        assert_ne!(long, ToolName::from_original("git__", &"x".repeat(101)));
    }

    #[test]
    fn only_a_boolean_is_a_hint() {
        let hints = |text: &str| serde_json::from_str::<Hints>(text).unwrap();
        assert!(hints(r#"{"readOnlyHint":true,"title":"x"}"#).read_only_hint);
        assert!(!hints(r#"{"readOnlyHint":"yes"}"#).read_only_hint);
    }
}
