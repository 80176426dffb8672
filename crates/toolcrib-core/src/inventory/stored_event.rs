//! What the body of a stored record is to this build: an event that it knows, one of a newer Toolcrib, or damage.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::json;

use super::Event;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredEvent {
    Known(Event),
    /// Valid JSON whose type, or a variant of an enum in it, this build does not know.
    Newer {
        /// Its type.
        kind: String,
    },
    /// Everything else, and why: no JSON, no object, no type, or a known type with missing or wrong fields.
    Damaged(String),
}

impl StoredEvent {
    pub fn parse(body: &str) -> StoredEvent {
        // serde reads an event from an array too, but none is ever written so.
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
            (Ok(_), None) => StoredEvent::Damaged("its type is no text".to_owned()),
        }
    }
}

/// The type of a stored event, of whatever version. Its other fields are skipped without being understood: an event of a
/// newer Toolcrib may hold numbers and depths that this build cannot take.
pub fn event_type(body: &str) -> serde_json::Result<String> {
    #[derive(Deserialize)]
    struct TypeField {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str(body).map(|head: TypeField| head.kind)
}

/// A known type misses its fields here; only an unknown one needs none.
fn is_known_type(kind: &str) -> bool {
    !matches!(serde_json::from_value(json!({ "type": kind })), Ok(Event::Unknown))
}

/// serde tells an unknown variant by its message alone. That finds it at any depth and in every enum that events will have,
/// which a list of fields would not; a test holds the message.
fn is_unknown_variant(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("unknown variant `")
}

/// Orders versions by their three numbers. A pre-release counts as its release, and what is no version as the oldest.
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    version_numbers(one).cmp(&version_numbers(other))
}

fn version_numbers(version: &str) -> [u64; 3] {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}
