//! Values in columns, for both databases. A damaged row is skipped and logged, so that it affects no other source.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toolcrib_core::Timestamp;

use super::{Login, LoginKind};

/// Seconds by which `manifests.stored_at` may be older than the last store of the manifest. `prune` removes only
/// manifests that are much older.
pub(crate) const STORED_AT_PRECISION: i64 = 600;

/// Time for which the last batch of counts of a writer is remembered. A writer that was cut off from the store for
/// longer may count a batch twice.
pub(crate) const COUNT_BATCH_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Serializes a value for a column or a parameter.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Returns what could be parsed; logs a failure and returns `None`. One damaged row must not make the others
/// unavailable.
pub(crate) fn skip_damaged<T, E: Display>(what: &str, name: &str, result: Result<T, E>) -> Option<T> {
    result.inspect_err(|error| log_damaged(what, &name, error)).ok()
}

/// Logs a damaged row.
pub(crate) fn log_damaged(what: &str, name: &dyn Display, error: &dyn Display) {
    tracing::warn!(%name, %error, "a stored {what} is damaged and skipped");
}

/// Parses a JSON column; logs and skips a damaged one.
pub(crate) fn parse_json<T: DeserializeOwned>(what: &str, name: &str, body: &str) -> Option<T> {
    skip_damaged(what, name, serde_json::from_str(body))
}

/// Columns of `logins`.
pub(crate) type LoginRow = (String, String, String, i64, i64);

/// Returns a session or link; `None` if the row is damaged or of a kind that this version does not know.
pub(crate) fn login_from_row((digest, kind, credential, created_at, expires_at): LoginRow) -> Option<Login> {
    Some(Login {
        digest: skip_damaged("login", &digest, digest.parse())?,
        kind: LoginKind::parse(&kind)?,
        credential,
        created_at: Timestamp(created_at),
        expires_at: Timestamp(expires_at),
    })
}

/// Escapes the character U+0000, which PostgreSQL refuses in texts. Only names and actors can contain it: in JSON it is
/// escaped already.
#[cfg(feature = "postgres")]
pub(crate) fn encode_text(text: &str) -> String {
    if text.contains(['\0', '\\']) { text.replace('\\', "\\\\").replace('\0', "\\0") } else { text.to_owned() }
}

/// Reverses [`encode_text`].
#[cfg(feature = "postgres")]
pub(crate) fn decode_text(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.next() == Some('0') => decoded.push('\0'),
            // The other escaped character is the backslash itself.
            character => decoded.push(character),
        }
    }
    decoded
}
