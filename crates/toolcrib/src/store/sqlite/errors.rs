//! What went wrong with the file, in words that help. Everything is `STORE_UNAVAILABLE`, and the error of SQLite is its cause.

use std::io;
use std::path::Path;

use toolcrib_core::{Code, Error};

use crate::store::{StoreState, VERIFY_HINT};

pub(super) fn store_error(path: &Path, error: sqlx::Error) -> Error {
    let store = path.display();
    // The lower byte says what, the rest where exactly: https://www.sqlite.org/rescode.html
    let (message, retryable) = match sqlite_code(&error).map(|code| code & 0xff) {
        Some(SQLITE_BUSY | SQLITE_LOCKED) => return locked_error(path).with_cause(error),
        Some(SQLITE_FULL) => (format!("the disk is full and the store `{store}` cannot grow; free some space"), true),
        Some(SQLITE_READONLY | SQLITE_PERM) => {
            (format!("the store `{store}` may not be written; check the permissions of it and its directory"), false)
        }
        Some(SQLITE_CANTOPEN) => {
            (format!("the store `{store}` cannot be opened; check that its directory is writable"), false)
        }
        Some(SQLITE_CORRUPT | SQLITE_NOTADB | SQLITE_ERROR) => return damaged_error(path, &error).with_cause(error),
        Some(SQLITE_IOERR) => (format!("the disk failed under the store `{store}`; check the disk"), true),
        Some(_) | None => (format!("the store `{store}` failed"), true),
    };
    Error::new(Code::StoreUnavailable, message).with_retryable(retryable).with_cause(error)
}

/// Our statements are fixed, so that this one means tables or columns that are not there.
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

pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(sqlite_code(error).map(|code| code & 0xff), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

/// Whether single rows are at fault, and others may be read: a damaged page, or a text that is none.
pub(super) fn is_partial_damage(error: &sqlx::Error) -> bool {
    let of_row = matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. });
    of_row || sqlite_code(error).map(|code| code & 0xff) == Some(SQLITE_CORRUPT)
}

fn damaged_error(path: &Path, error: &sqlx::Error) -> Error {
    let reason = error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default();
    let message = format!("the store `{}` is damaged ({reason}){VERIFY_HINT}", path.display());
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

/// The file is not the one that was opened.
pub(super) fn missing_file_error(path: &Path, what: &str) -> Error {
    let message = format!(
        "the store `{}` {what} while it was open; bring the file back, or stop this process and run `toolcrib verify`",
        path.display()
    );
    StoreState::Missing.annotate(Error::new(Code::StoreUnavailable, message))
}

/// A store that was in use before is not there any more: its file is gone or holds nothing.
pub(super) fn lost_store_error(path: &Path, state: StoreState, what: &str) -> Error {
    let message = format!("the store `{}` {what}{VERIFY_HINT}", path.display());
    state.annotate(Error::new(Code::StoreUnavailable, message))
}

fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

pub(super) fn newer_schema_error(path: &Path, version: i64) -> Error {
    let (store, known) = (path.display(), super::schema::SCHEMA_VERSION);
    let message = format!(
        "the store `{store}` was written by a newer Toolcrib (its version is {version}, this one knows {known}); \
         use the newer one, or another data directory"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

pub(super) fn foreign_database_error(path: &Path) -> Error {
    let message = format!("`{}` is a database of another program; name another file for the store", path.display());
    StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, message))
}

pub(super) fn locked_error(path: &Path) -> Error {
    let message = format!("the store `{}` is locked by another process; try again", path.display());
    Error::new(Code::StoreUnavailable, message)
}

pub(super) fn busy_error(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is busy; try again", path.display()))
}

pub(super) fn closed_error(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is closed", path.display())).with_retryable(false)
}

pub(super) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot make the {what} `{}`: {}", path.display(), error.kind());
    Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
}
