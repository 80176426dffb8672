//! Parses the stored body of a record: an event that this build knows, one of a newer version, or damage.
//!
//! The difference matters: a record of a newer version is skipped or, if it is critical, stops calls until Toolcrib is
//! updated; a damaged one needs an administrator. Taking one for the other would send users to the wrong remedy.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::json;

use super::Event;

/// Result of parsing a stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "exists once, while a record is parsed")]
pub enum StoredEvent {
    Known(Event),
    /// Valid JSON whose type, or a variant of an enum in it, this build does not know.
    Newer {
        /// Value of `type`.
        kind: String,
    },
    /// Anything else, with the reason: not JSON, not an object, no type, or a known type with missing or wrong fields.
    Damaged(String),
}

impl StoredEvent {
    /// Parses the JSON of a record. Never fails: damage is a result too.
    pub fn parse(body: &str) -> StoredEvent {
        // serde accepts an array for an event too, but events are never written that way.
        if !body.trim_start().starts_with('{') {
            return StoredEvent::Damaged("it is not a JSON object".to_owned());
        }
        let error = match serde_json::from_str(body) {
            Ok(Event::Unknown) => None,
            Ok(event) => return StoredEvent::Known(event),
            Err(error) => Some(error),
        };
        match (event_type(body), error) {
            (Ok(kind), _) if !is_known_type(&kind) => StoredEvent::Newer { kind },
            (Ok(kind), Some(error)) if is_unknown_variant(&error) => StoredEvent::Newer { kind },
            (_, Some(error)) | (Err(error), None) => StoredEvent::Damaged(error.to_string()),
            (Ok(_), None) => StoredEvent::Damaged("its `type` is not a string".to_owned()),
        }
    }
}

/// Returns the type of a stored event of any version. The other fields are skipped without being parsed: an event of a
/// newer version may contain numbers and nesting that this build cannot handle.
pub fn event_type(body: &str) -> serde_json::Result<String> {
    #[derive(Deserialize)]
    struct TypeField {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str(body).map(|head: TypeField| head.kind)
}

/// Whether this build knows an event type. Without fields a known type fails to parse, and only an unknown one does
/// not.
fn is_known_type(kind: &str) -> bool {
    !matches!(serde_json::from_value(json!({ "type": kind })), Ok(Event::Unknown))
}

/// Recognises serde's error for an unknown variant by its message, which works at any depth and in every enum of an
/// event. A test pins the message.
fn is_unknown_variant(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("unknown variant `")
}

/// Compares versions by their three numbers. A pre-release counts as its release, and an invalid version as the oldest.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    version_numbers(a).cmp(&version_numbers(b))
}

/// Major, minor and patch; a missing or invalid number counts as zero.
fn version_numbers(version: &str) -> [u64; 3] {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}
