//! A tool: identity, the name an agent sees, and its content as the source describes it, normalised.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Code, Error, Result};
use crate::execution::ExecutionSpec;
use crate::fingerprint::Fingerprint;
use crate::json::{self, RawFields};
use crate::source::SourceId;
use crate::text::{sanitize, sanitize_truncated};

/// Identity: two fields, never one string. The name is the source's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolId {
    pub source: SourceId,
    pub name: String,
}

/// One capability as its source describes it. Schemas and unknown fields stay the text they were.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    /// The source's own name.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// How it is carried out, where this process knows that itself: a [`Backing`]. No list
    /// shows it.
    #[serde(rename = "backing", default, skip_serializing_if = "Option::is_none")]
    pub execution_spec: Option<Box<RawValue>>,
    /// Every other field the source gave, in its order.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub extra: RawFields,
    /// Raw text of fields that are shown otherwise than they were given.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub original: RawFields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<ToolNote>,
    /// Last, so that its text can be cut out of a stored tool without parsing it.
    #[serde(rename = "face")]
    pub listing: ToolListing,
}

/// What lists show of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolListing {
    pub title: Option<String>,
    /// As an agent sees it; what the source wrote is in the tool's `original` when it differs.
    pub description: String,
    pub input_schema: Box<RawValue>,
    pub annotations: Option<Box<RawValue>>,
}

/// What had to be supplied or left out to make a tool usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolNote {
    NoSchema,
    NoDescription,
    TextCleaned,
    AnnotationsIgnored,
    OutputSchemaIgnored,
}

impl ToolNote {
    pub fn text(self) -> &'static str {
        match self {
            ToolNote::NoSchema => "the source gave no schema, so any arguments are passed on as they are",
            ToolNote::NoDescription => "the source gave no description",
            ToolNote::TextCleaned => "characters that hide or steer were removed from its text",
            ToolNote::OutputSchemaIgnored => "its output schema cannot be used and is left out",
            ToolNote::AnnotationsIgnored => "its annotations are not an object and were left out",
        }
    }
}

/// A hint a source gives about a tool. Only a plain boolean counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    #[serde(deserialize_with = "boolean_or_nothing")]
    pub read_only_hint: bool,
    #[serde(deserialize_with = "boolean_or_nothing")]
    pub idempotent_hint: bool,
}

fn boolean_or_nothing<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_bool().unwrap_or(false))
}

/// The key of an offered tool under which a connector says how it is carried out.
pub const EXECUTION_SPEC_KEY: &str = "x-toolcrib-backing";

impl Tool {
    /// The tool as its source offered it.
    pub fn to_offered_fields(&self) -> RawFields {
        let mut offered = RawFields::default();
        let absent = |note: ToolNote| self.notes.contains(&note);
        let ToolListing { title, description, input_schema, annotations } = &self.listing;
        let given = [
            ("name", Some(json::raw_string(&self.name))),
            ("title", title.as_deref().map(json::raw_string)),
            ("description", (!absent(ToolNote::NoDescription)).then(|| json::raw_string(description))),
            ("inputSchema", (!absent(ToolNote::NoSchema)).then(|| input_schema.clone())),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", annotations.clone()),
            (EXECUTION_SPEC_KEY, self.execution_spec.clone()),
        ];
        for (key, shown) in given {
            if let Some(given) = self.original.get(key).map(ToOwned::to_owned).or(shown) {
                offered.insert(key, given);
            }
        }
        offered.extend(&self.extra);
        offered
    }

    /// How it is carried out, where this process knows that itself.
    pub fn parse_execution_spec(&self) -> Option<ExecutionSpec> {
        serde_json::from_str(self.execution_spec.as_ref()?.get()).ok()
    }

    pub fn hints(&self) -> Hints {
        self.listing.annotations.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// What an agent sees: `source__tool`, or a built-in's bare name. At most 64 characters of `[A-Za-z0-9_-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ToolName(String);

pub const SEPARATOR: &str = "__";
pub(crate) const MAX_TOOL_NAME_LEN: usize = 64;

impl ToolName {
    /// The plain name of a tool: illegal characters become `_`, and one that is too long is cut and gets a short hash.
    pub fn from_original(prefix: &str, tool: &str) -> ToolName {
        let name = sanitize_with_prefix(prefix, tool);
        if name.len() <= MAX_TOOL_NAME_LEN { ToolName(name) } else { ToolName::with_hash(prefix, tool) }
    }

    /// The name when the plain one is taken or too long: cut, plus `_` and eight digits of the original name's hash.
    pub fn with_hash(prefix: &str, tool: &str) -> ToolName {
        let mut name = sanitize_with_prefix(prefix, tool);
        name.truncate(MAX_TOOL_NAME_LEN - 9);
        ToolName(format!("{name}_{}", Fingerprint::digest(tool).short_hex(8)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Only ASCII comes out, so a cut never falls inside a character.
fn sanitize_with_prefix(prefix: &str, tool: &str) -> String {
    let legal = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    let tool = sanitize(tool);
    prefix.chars().chain(tool.chars().map(|character| if legal(character) { character } else { '_' })).collect()
}

/// A tool as somebody asked for it, before the catalogue is consulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsedToolName<'a> {
    Qualified { source: &'a str, tool: &'a str },
    Bare(&'a str),
}

/// The one parser of `source__tool`, `source/tool`, `source:tool` and bare names.
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
    // Whichever stands first: a tool's own name may hold any of them.
    let split = match (text.find(SEPARATOR), text.find(['/', ':'])) {
        (Some(separator), Some(other)) if other < separator => text.split_once(['/', ':']),
        (Some(_), _) => text.split_once(SEPARATOR),
        (None, _) => text.split_once(['/', ':']),
    };
    match split {
        None => Ok(ParsedToolName::Bare(text)),
        Some(("", _)) => malformed("nothing stands before the separator; write `source__tool`"),
        Some((_, "")) => malformed("nothing stands after the separator; write `source__tool`"),
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
        for (text, asked) in [
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
            assert_eq!(parse_tool_name(text).unwrap(), asked, "{text}");
        }
        for text in ["", "__push", "git__", "__", "/push", "git:", "a\nb", &"x".repeat(513)] {
            assert_eq!(parse_tool_name(text).unwrap_err().code, Code::ToolInvalidInput, "{text}");
        }
    }

    #[test]
    fn a_name_is_legal_and_at_most_64_long() {
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
