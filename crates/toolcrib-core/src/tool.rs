//! A tool: identity, the name an agent sees, and its content as the source describes it, normalised.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Code, Error, Result};
use crate::execution::Backing;
use crate::fingerprint::Fingerprint;
use crate::json::{self, Fields};
use crate::source::SourceId;
use crate::text::{shown, shown_short};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<Box<RawValue>>,
    /// Every other field the source gave, in its order.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub extra: Fields,
    /// Raw text of fields that are shown otherwise than they were given.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub original: Fields,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Last, so that its text can be cut out of a stored tool without parsing it.
    pub face: Face,
}

/// What lists show of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Face {
    pub title: Option<String>,
    /// As an agent sees it; what the source wrote is in the tool's `original` when it differs.
    pub description: String,
    pub input_schema: Box<RawValue>,
    pub annotations: Option<Box<RawValue>>,
}

/// What had to be supplied or left out to make a tool usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    NoSchema,
    NoDescription,
    TextCleaned,
    AnnotationsIgnored,
    OutputSchemaIgnored,
}

impl Note {
    pub fn text(self) -> &'static str {
        match self {
            Note::NoSchema => "the source gave no schema, so any arguments are passed on as they are",
            Note::NoDescription => "the source gave no description",
            Note::TextCleaned => "characters that hide or steer were removed from its text",
            Note::OutputSchemaIgnored => "its output schema cannot be used and is left out",
            Note::AnnotationsIgnored => "its annotations are not an object and were left out",
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
pub const BACKING: &str = "x-toolcrib-backing";

impl Tool {
    /// The tool as its source offered it.
    pub fn as_offered(&self) -> Fields {
        let mut offered = Fields::default();
        let absent = |note: Note| self.notes.contains(&note);
        let Face { title, description, input_schema, annotations } = &self.face;
        let given = [
            ("name", Some(json::string(&self.name))),
            ("title", title.as_deref().map(json::string)),
            ("description", (!absent(Note::NoDescription)).then(|| json::string(description))),
            ("inputSchema", (!absent(Note::NoSchema)).then(|| input_schema.clone())),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", annotations.clone()),
            (BACKING, self.backing.clone()),
        ];
        for (key, shown) in given {
            if let Some(value) = self.original.get(key).map(ToOwned::to_owned).or(shown) {
                offered.put(key, value);
            }
        }
        offered.extend(&self.extra);
        offered
    }

    /// How it is carried out, where this process knows that itself.
    pub fn backing(&self) -> Option<Backing> {
        serde_json::from_str(self.backing.as_ref()?.get()).ok()
    }

    pub fn hints(&self) -> Hints {
        self.face.annotations.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// What an agent sees: `source__tool`, or a built-in's bare name. At most 64 characters of `[A-Za-z0-9_-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ToolName(String);

pub const SEPARATOR: &str = "__";
pub(crate) const LONGEST: usize = 64;

impl ToolName {
    /// The plain name of a tool: illegal characters become `_`, and one that is too long is cut and gets a short hash.
    pub fn plain(prefix: &str, tool: &str) -> ToolName {
        let name = prefixed(prefix, tool);
        if name.len() <= LONGEST { ToolName(name) } else { ToolName::hashed(prefix, tool) }
    }

    /// The name when the plain one is taken or too long: cut, plus `_` and eight digits of the original name's hash.
    pub fn hashed(prefix: &str, tool: &str) -> ToolName {
        let mut name = prefixed(prefix, tool);
        name.truncate(LONGEST - 9);
        ToolName(format!("{name}_{}", Fingerprint::of(tool).short(8)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Only ASCII comes out, so a cut never falls inside a character.
fn prefixed(prefix: &str, tool: &str) -> String {
    let legal = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    let tool = shown(tool);
    prefix.chars().chain(tool.chars().map(|character| if legal(character) { character } else { '_' })).collect()
}

/// A tool as somebody asked for it, before the catalogue is consulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    Qualified { source: &'a str, tool: &'a str },
    Bare(&'a str),
}

/// The one parser of `source__tool`, `source/tool`, `source:tool` and bare names.
pub fn parse_name(text: &str) -> Result<Asked<'_>> {
    let malformed = |reason: &str| {
        let message = format!("`{}` is not a tool name: {reason}", shown_short(text, 80));
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
        None => Ok(Asked::Bare(text)),
        Some(("", _)) => malformed("nothing stands before the separator; write `source__tool`"),
        Some((_, "")) => malformed("nothing stands after the separator; write `source__tool`"),
        Some((source, tool)) => Ok(Asked::Qualified { source, tool }),
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
        let qualified = |source, tool| Asked::Qualified { source, tool };
        for (text, asked) in [
            ("git__push", qualified("git", "push")),
            ("git__push__all", qualified("git", "push__all")),
            ("git___push", qualified("git", "_push")),
            ("git/push", qualified("git", "push")),
            ("git:push/x", qualified("git", "push/x")),
            ("git:push__all", qualified("git", "push__all")),
            ("git__push/all", qualified("git", "push/all")),
            ("push", Asked::Bare("push")),
            ("_push_", Asked::Bare("_push_")),
        ] {
            assert_eq!(parse_name(text).unwrap(), asked, "{text}");
        }
        for text in ["", "__push", "git__", "__", "/push", "git:", "a\nb", &"x".repeat(513)] {
            assert_eq!(parse_name(text).unwrap_err().code, Code::ToolInvalidInput, "{text}");
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
            assert_eq!(ToolName::plain("git__", tool).as_str(), name);
        }
        let long = ToolName::plain("git__", &"x".repeat(100));
        assert_eq!(long.as_str().len(), 64);
        assert!(long.as_str().starts_with("git__xxx"));
        assert_ne!(long, ToolName::plain("git__", &"x".repeat(101)));
    }

    #[test]
    fn only_a_boolean_is_a_hint() {
        let hints = |text: &str| serde_json::from_str::<Hints>(text).unwrap();
        assert!(hints(r#"{"readOnlyHint":true,"title":"x"}"#).read_only_hint);
        assert!(!hints(r#"{"readOnlyHint":"yes"}"#).read_only_hint);
    }
}
