//! What went wrong with the file, in words that help. Everything is `STORE_UNAVAILABLE`, and the error of SQLite is its cause.

use std::io;
use std::path::Path;

use toolcrib_core::{Code, Error};

use crate::store::{NEXT_STEP, StoreState};

pub(super) fn fault(path: &Path, error: sqlx::Error) -> Error {
    let store = path.display();
    // The lower byte says what, the rest where exactly: https://www.sqlite.org/rescode.html
    let (message, retryable) = match code(&error).map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => return locked(path).with_cause(error),
        Some(FULL) => (format!("the disk is full and the store `{store}` cannot grow; free some space"), true),
        Some(READONLY | PERM) => {
            (format!("the store `{store}` may not be written; check the permissions of it and its directory"), false)
        }
        Some(CANTOPEN) => {
            (format!("the store `{store}` cannot be opened; check that its directory is writable"), false)
        }
        Some(CORRUPT | NOTADB | ERROR) => return damaged(path, &error).with_cause(error),
        Some(IOERR) => (format!("the disk failed under the store `{store}`; check the disk"), true),
        Some(_) | None => (format!("the store `{store}` failed"), true),
    };
    Error::new(Code::StoreUnavailable, message).with_retryable(retryable).with_cause(error)
}

/// Our statements are fixed, so that this one means tables or columns that are not there.
const ERROR: u32 = 1;
const PERM: u32 = 3;
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const READONLY: u32 = 8;
const IOERR: u32 = 10;
const CORRUPT: u32 = 11;
const FULL: u32 = 13;
const CANTOPEN: u32 = 14;
const NOTADB: u32 = 26;

pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error).map(|code| code & 0xff), Some(BUSY | LOCKED))
}

/// Whether single rows are at fault, and others may be read: a damaged page, or a text that is none.
pub(super) fn is_partial_damage(error: &sqlx::Error) -> bool {
    let of_row = matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. });
    of_row || code(error).map(|code| code & 0xff) == Some(CORRUPT)
}

fn damaged(path: &Path, error: &sqlx::Error) -> Error {
    let reason = error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default();
    let message = format!("the store `{}` is damaged ({reason}){NEXT_STEP}", path.display());
    StoreState::Damaged.mark(Error::new(Code::StoreUnavailable, message))
}

/// The file is not the one that was opened.
pub(super) fn vanished(path: &Path, what: &str) -> Error {
    let message = format!(
        "the store `{}` {what} while it was open; bring the file back, or stop this process and run `toolcrib verify`",
        path.display()
    );
    StoreState::Missing.mark(Error::new(Code::StoreUnavailable, message))
}

/// A store that was in use before is not there any more: its file is gone or holds nothing.
pub(super) fn lost(path: &Path, state: StoreState, what: &str) -> Error {
    let message = format!("the store `{}` {what}{NEXT_STEP}", path.display());
    state.mark(Error::new(Code::StoreUnavailable, message))
}

fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

pub(super) fn newer(path: &Path, version: i64) -> Error {
    let (store, known) = (path.display(), super::schema::VERSION);
    let message = format!(
        "the store `{store}` was written by a newer Toolcrib (its version is {version}, this one knows {known}); \
         use the newer one, or another data directory"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

pub(super) fn foreign(path: &Path) -> Error {
    let message = format!("`{}` is a database of another program; name another file for the store", path.display());
    StoreState::Damaged.mark(Error::new(Code::StoreUnavailable, message))
}

pub(super) fn locked(path: &Path) -> Error {
    let message = format!("the store `{}` is locked by another process; try again", path.display());
    Error::new(Code::StoreUnavailable, message)
}

pub(super) fn queued(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is busy; try again", path.display()))
}

pub(super) fn closed(path: &Path) -> Error {
    Error::new(Code::StoreUnavailable, format!("the store `{}` is closed", path.display())).with_retryable(false)
}

pub(super) fn unreachable(what: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot make the {what} `{}`: {}", path.display(), error.kind());
    Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
}
