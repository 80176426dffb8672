//! The id of a source: what names it everywhere, and prefixes its tools.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;

/// `[a-z0-9]+(_[a-z0-9]+)*`, at most 32 characters, and none of the reserved names.
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(Arc<str>);

const MAX_SOURCE_ID_LEN: usize = 32;
const RESERVED_IDS: [&str; 3] = ["search_tools", "describe_tools", "call_tool"];

impl SourceId {
    /// What an embedding program's own tools belong to.
    pub(super) fn embedded() -> SourceId {
        SourceId("embedded".into())
    }

    /// Takes an id that already obeys the rules.
    pub fn parse(id: &str) -> Result<SourceId> {
        let canonical = SourceId::normalise_name(id)?;
        if canonical.as_str() == id {
            return Ok(canonical);
        }
        Err(Error::new(
            Code::ConfigInvalid,
            format!("`{}` is not a source id; did you mean `{canonical}`?", truncate_name(id)),
        ))
    }

    /// The id of a name somebody gives a source: lower case, other runs of characters become `_`, nothing reserved.
    pub fn from_name(name: &str) -> Result<SourceId> {
        let id = SourceId::normalise_name(name)?;
        if id == SourceId::embedded() {
            let message =
                format!("`{}` cannot name a source: an embedding program's own tools have it", truncate_name(name));
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        Ok(id)
    }

    /// An id for a source whose name cannot be one, so that it can be listed with the reason.
    pub(crate) fn placeholder(name: &str) -> SourceId {
        let words = name.to_lowercase();
        let mut words: Vec<&str> = words.split(|character: char| !character.is_ascii_alphanumeric()).collect();
        words.retain(|word| !word.is_empty());
        let mut id = if words.is_empty() { "source".to_owned() } else { words.join("_") };
        id.truncate(MAX_SOURCE_ID_LEN - 9);
        SourceId(format!("{}_{}", id.trim_end_matches('_'), Fingerprint::digest(name).short_hex(8)).into())
    }

    pub(crate) fn normalise_name(name: &str) -> Result<SourceId> {
        let mut id = String::new();
        for character in name.chars().flat_map(char::to_lowercase) {
            if character.is_ascii_alphanumeric() {
                id.push(character);
            } else if !id.is_empty() && !id.ends_with('_') {
                id.push('_');
            }
        }
        let id = id.trim_end_matches('_');
        let refuse = |reason: &str| {
            Err(Error::new(Code::ConfigInvalid, format!("`{}` cannot name a source: {reason}", truncate_name(name))))
        };
        match id {
            "" => refuse("it has no letter or digit of a-z, 0-9"),
            _ if id.len() > MAX_SOURCE_ID_LEN => refuse("its id would be longer than 32 characters"),
            _ if RESERVED_IDS.contains(&id) => refuse("that name is reserved"),
            _ => Ok(SourceId(id.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn truncate_name(name: &str) -> String {
    crate::text::sanitize_truncated(name, 60)
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for SourceId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for SourceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SourceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SourceId::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_an_id() {
        for (name, id) in [("My-Server", "my_server"), ("github", "github"), ("a  b..c", "a_b_c"), ("_x__y_", "x_y")] {
            assert_eq!(SourceId::from_name(name).unwrap().as_str(), id);
        }
    }

    #[test]
    fn an_id_that_breaks_the_rules_is_refused() {
        for name in ["", "---", "日本", "call_tool", "Search-Tools", "Embedded", &"x".repeat(33)] {
            assert_eq!(SourceId::from_name(name).unwrap_err().code, Code::ConfigInvalid, "{name}");
        }
        assert_eq!(
            SourceId::parse("My-Server").unwrap_err().message,
            "`My-Server` is not a source id; did you mean `my_server`?"
        );
    }
}
