//! Identifier of a source, which is also the prefix of its tools.
//!
//! ```text
//! GitHub        github
//! My-Server     my_server
//! --x--y--      x_y
//! x × 40         x × 23, `_` and 8 hexadecimal digits of the SHA-256 of the name
//! 日本           rejected: no letter or digit of a-z, 0-9
//! call_tool     rejected: a name of Toolcrib's own
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;

/// Normalised name of a source: `[a-z0-9]+(_[a-z0-9]+)*`, at most 32 characters, not reserved. Without `__`, so that
/// `source__tool` splits unambiguously. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(Arc<str>);

/// Maximum length of an id, which leaves room for the tool in names of at most 64 characters.
const MAX_SOURCE_ID_LEN: usize = 32;
/// Names of Toolcrib's own meta tools.
const RESERVED_IDS: [&str; 3] = ["search_tools", "describe_tools", "call_tool"];

impl SourceId {
    /// Id of the source of tools that an embedding program registers.
    pub(super) fn embedded() -> SourceId {
        SourceId("embedded".into())
    }

    /// Parses an id that is already in normalised form.
    /// For stored ids and for arguments; an unusual spelling is an error with the normalised form as a hint.
    pub fn parse(id: &str) -> Result<SourceId> {
        let canonical = SourceId::normalize_name(id)?;
        if canonical.as_str() == id {
            return Ok(canonical);
        }
        let message = format!("`{}` is not a source id; did you mean `{canonical}`?", truncate_name(id));
        Err(Error::new(Code::ConfigInvalid, message))
    }

    /// Normalises the name of a source: lower case, runs of other characters become `_`. Cuts a long one, and rejects
    /// reserved names. For names that users choose. Fails with `CONFIG_INVALID` and the reason.
    pub fn from_name(name: &str) -> Result<SourceId> {
        let id = SourceId::normalize_name(name)?;
        if id == SourceId::embedded() {
            let message = format!(
                "`{}` cannot name a source: it is reserved for tools of an embedding program",
                truncate_name(name)
            );
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        Ok(id)
    }

    /// Returns a unique id for a source whose name cannot be normalised, so that it can be listed with its error.
    /// It may be any text, so a hash of the whole name is part of the id.
    pub fn placeholder(name: &str) -> SourceId {
        let words = name.to_lowercase();
        let mut words: Vec<&str> = words.split(|character: char| !character.is_ascii_alphanumeric()).collect();
        words.retain(|word| !word.is_empty());
        let id = if words.is_empty() { "source".to_owned() } else { words.join("_") };
        SourceId(cut_id(&id, name).into())
    }

    /// Returns the normalised form of a name without a limit of its length; empty if it has no letter or digit.
    pub fn uncut_form(name: &str) -> String {
        let mut id = String::new();
        for character in name.chars().flat_map(char::to_lowercase) {
            if character.is_ascii_alphanumeric() {
                id.push(character);
            } else if !id.is_empty() && !id.ends_with('_') {
                id.push('_');
            }
        }
        id.truncate(id.trim_end_matches('_').len());
        id
    }

    /// Normalises a name; accepts the id of embedded tools.
    pub fn normalize_name(name: &str) -> Result<SourceId> {
        let id = SourceId::uncut_form(name);
        let reject = |reason: &str| {
            Err(Error::new(Code::ConfigInvalid, format!("`{}` cannot name a source: {reason}", truncate_name(name))))
        };
        match id.as_str() {
            "" => reject("it has no letter or digit of a-z, 0-9"),
            _ if id.len() > MAX_SOURCE_ID_LEN => Ok(SourceId(cut_id(&id, name).into())),
            _ if RESERVED_IDS.contains(&id.as_str()) => reject("that name is reserved"),
            _ => Ok(SourceId(id.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Cuts the normalised form of a name and appends a hash of the name as given, so that names with the same beginning
/// get different ids. At most [`MAX_SOURCE_ID_LEN`] characters.
fn cut_id(id: &str, name: &str) -> String {
    const HASH_LEN: usize = 8;
    let cut = id.get(..MAX_SOURCE_ID_LEN - HASH_LEN - 1).unwrap_or(id);
    format!("{}_{}", cut.trim_end_matches('_'), Fingerprint::digest(name).short_hex(HASH_LEN))
}

/// Shortens a rejected name for messages.
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
    fn names_are_normalised_to_ids() {
        for (name, id) in [("My-Server", "my_server"), ("github", "github"), ("a  b..c", "a_b_c"), ("_x__y_", "x_y")] {
            assert_eq!(SourceId::from_name(name).unwrap().as_str(), id);
        }
    }

    #[test]
    fn long_names_are_cut_and_end_in_a_hash_of_the_name() {
        let limit = "x".repeat(32);
        assert_eq!(SourceId::from_name(&limit).unwrap().as_str(), limit);
        // The cut would end in `_` here, before that of the hash.
        let long = format!("{}-and still more", "X".repeat(22));
        let hash = Fingerprint::digest(&long).short_hex(8);
        let id = SourceId::from_name(&long).unwrap();
        assert_eq!(id.as_str(), format!("{}_{hash}", "x".repeat(22)));
        assert_eq!(SourceId::parse(id.as_str()).unwrap(), id, "a cut id is an id");
        for (name, other) in [("y".repeat(33), "y".repeat(34)), ("Y".repeat(40), "y".repeat(40))] {
            let (id, other) = (SourceId::from_name(&name).unwrap(), SourceId::from_name(&other).unwrap());
            assert!(id != other && id.as_str().len() == 32 && SourceId::parse(id.as_str()).is_ok(), "{id} {other}");
        }
        let message = SourceId::parse(&long).unwrap_err().message;
        assert!(message.ends_with(&format!("is not a source id; did you mean `{id}`?")), "{message}");
    }

    #[test]
    fn invalid_names_and_ids_are_rejected() {
        for name in ["", "---", "日本", "call_tool", "Search-Tools", "Embedded"] {
            assert_eq!(SourceId::from_name(name).unwrap_err().code, Code::ConfigInvalid, "{name}");
        }
        assert_eq!(
            SourceId::parse("My-Server").unwrap_err().message,
            "`My-Server` is not a source id; did you mean `my_server`?"
        );
    }
}
