//! Turns SQLite and file errors into `STORE_UNAVAILABLE` with a message that names the store and the next step. The
//! original error is the cause.
//!
//! If the content is unreliable or the file is missing, the details hold the state of the store, and the registry
//! refuses calls. Conditions that may pass (locked, disk full, I/O error) are retryable. Everything else, such as
//! missing permissions or a newer schema, is not.

use std::io;
use std::path::Path;

use toolcrib_core::{Code, Error};

use crate::store::{StoreState, VERIFY_HINT};

/// Converts an error of SQLite. The message of SQLite itself is shown for damage only; elsewhere it is the cause, for
/// the log.
pub(super) fn store_error(path: &Path, error: sqlx::Error) -> Error {
    let store = path.display();
    // The lower byte is the primary result code, the rest its extension: https://www.sqlite.org/rescode.html
    let (message, retryable) = match sqlite_code(&error).map(|code| code & 0xff) {
        Some(SQLITE_BUSY | SQLITE_LOCKED) => return locked_error(path).with_cause(error),
        Some(SQLITE_FULL) => (format!("the disk is full and the store `{store}` cannot grow; free some space"), true),
        Some(SQLITE_READONLY | SQLITE_PERM) => {
            (format!("the store `{store}` is not writable; check the permissions of the file and its directory"), false)
        }
        Some(SQLITE_CANTOPEN) => {
            (format!("the store `{store}` cannot be opened; check that its directory is writable"), false)
        }
        Some(SQLITE_CORRUPT | SQLITE_NOTADB | SQLITE_ERROR) => return damaged_error(path, &error).with_cause(error),
        Some(SQLITE_IOERR) => (format!("an I/O error occurred in the store `{store}`; check the disk"), true),
        Some(_) | None => (format!("the store `{store}` failed"), true),
    };
    Error::new(Code::StoreUnavailable, message).with_retryable(retryable).with_cause(error)
}

/// All statements are fixed, so this code means missing tables or columns.
const SQLITE_ERROR: u32 = 1;
const SQLITE_PERM: u32 = 3;
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_IOERR: u32 = 10;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_NOTADB: u32 = 26;

/// Whether another connection holds a lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(sqlite_code(error).map(|code| code & 0xff), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

/// Whether only some rows are unreadable (a damaged page, invalid UTF-8), so that others may be read. Readers then fall
/// back to single rows.
pub(super) fn is_partial_damage(error: &sqlx::Error) -> bool {
    let is_row_error = matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. });
    is_row_error || sqlite_code(error).map(|code| code & 0xff) == Some(SQLITE_CORRUPT)
}

/// The file is damaged.
fn damaged_error(path: &Path, error: &sqlx::Error) -> Error {
    let reason = error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default();
    let message = format!("the store `{}` is damaged ({reason}){VERIFY_HINT}", path.display());
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

/// The file at the path is no longer the one that was opened. `what` is e.g. "was removed".
pub(super) fn missing_file_error(path: &Path, what: &str) -> Error {
    let message = format!(
        "the store `{}` {what} while it was open; restore the file, or stop this process and run `toolcrib verify`",
        path.display()
    );
    StoreState::Missing.annotate(Error::new(Code::StoreUnavailable, message))
}

/// A store that was in use before is missing or empty. `what` is e.g. "is missing".
pub(super) fn lost_store_error(path: &Path, state: StoreState, what: &str) -> Error {
    let message = format!("the store `{}` {what}{VERIFY_HINT}", path.display());
    state.annotate(Error::new(Code::StoreUnavailable, message))
}

/// Returns SQLite's extended result code.
fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The schema is of a newer Toolcrib.
pub(super) fn newer_schema_error(path: &Path, version: i64) -> Error {
    let store = path.display();
    let known = super::schema::SCHEMA_VERSION;
    let message = format!(
        "the store `{store}` was written by a newer Toolcrib (schema version {version}, this one supports {known}); \
         upgrade this Toolcrib, or use another data directory"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// The file is a SQLite database, but not of Toolcrib.
pub(super) fn foreign_database_error(path: &Path) -> Error {
    let message = format!("`{}` is a database of another program; name another file for the store", path.display());
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

/// Another process holds the lock for too long.
pub(super) fn locked_error(path: &Path) -> Error {
    let message = format!("the store `{}` is locked by another process; try again", path.display());
    Error::new(Code::StoreUnavailable, message)
}

/// Other callers in this process use the connection for too long. Retryable.
pub(super) fn busy_error(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is busy; try again", path.display()))
}

/// The store was closed.
pub(super) fn closed_error(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is closed", path.display())).with_retryable(false)
}

/// A file or directory cannot be created or opened.
pub(super) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot create the {what} `{}`: {}", path.display(), error.kind());
    Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
}
