//! Opens the store that a location names: `--store URL`, or by default the data directory.
//!
//! `open` creates what is missing. `open_with_head` also knows from the head file whether the store was in use before:
//! then a missing or empty file is a loss and not a first start, and nothing is created in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_core::{Code, Error, Result};

use super::{HeadFile, MemoryStore, Store};
#[cfg(feature = "sqlite")]
use super::{SqliteStore, StoreState};
#[cfg(feature = "sqlite")]
use crate::private_dir::ensure_private_directory;

/// Name of the store file in a data directory.
pub(super) const STORE_FILE_NAME: &str = "toolcrib.db";

/// Opens a store at `sqlite:FILE`, `memory:`, or a data directory. Without the feature `sqlite`, only `memory:` can be
/// opened. Fails with `CONFIG_INVALID` for an unknown location, and with `STORE_UNAVAILABLE` if the file cannot be
/// opened.
pub async fn open(location: &str) -> Result<Arc<dyn Store>> {
    let Some(path) = store_file(location)? else { return Ok(Arc::new(MemoryStore::new())) };
    #[cfg(feature = "sqlite")]
    return Ok(Arc::new(SqliteStore::open_file(path).await?));
    #[cfg(not(feature = "sqlite"))]
    Err(no_sqlite_error(&path))
}

/// A store and its head file.
#[derive(Debug)]
pub struct OpenedStore {
    /// The store, or an empty one in memory in place of a lost one.
    pub store: Arc<dyn Store>,
    /// For [`RegistryOptions::head_file`](crate::RegistryOptions); `None` for a store in memory.
    pub head: Option<HeadFile>,
}

/// Opens a store, and compares it with the head file in the data directory `data`. A store that was in use before is
/// not created again if it is missing, empty or no database: an empty store in memory is returned instead, and a
/// registry over it reports the journal as damaged.
pub async fn open_with_head(location: &str, data: &Path) -> Result<OpenedStore> {
    let Some(path) = store_file(location)? else {
        return Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: None });
    };
    #[cfg(feature = "sqlite")]
    return open_file_with_head(path, data).await;
    #[cfg(not(feature = "sqlite"))]
    {
        let _ = data;
        Err(no_sqlite_error(&path))
    }
}

/// Opens a store file, and compares it with the head file.
#[cfg(feature = "sqlite")]
async fn open_file_with_head(path: PathBuf, data: &Path) -> Result<OpenedStore> {
    // These directories decide what counts as damage, so they must belong to the user before anything in them is read.
    for directory in [Some(data), path.parent()].into_iter().flatten().filter(|directory| directory.is_dir()) {
        ensure_private_directory(directory)?;
    }
    let head = HeadFile::new(data, &path);
    // Never used before: create it.
    if head.read().await == Ok(None) {
        return Ok(OpenedStore { store: Arc::new(SqliteStore::open_file(path).await?), head: Some(head) });
    }
    // Used before: anything but a readable store is damage. An unreadable head file counts as used before, too.
    match SqliteStore::open_existing(path).await {
        Ok(store) => {
            let head = match store.find_truncation() {
                Some(reason) => head.with_store_damage(StoreState::Damaged, &reason),
                None => head,
            };
            Ok(OpenedStore { store: Arc::new(store), head: Some(head) })
        }
        Err(error) => match StoreState::from_error(&error) {
            // Locked, or no permission: a later attempt may succeed, and nothing is known to be lost.
            StoreState::Ok | StoreState::Down => Err(error),
            state @ (StoreState::Damaged | StoreState::Missing) => {
                let head = head.with_store_damage(state, &error.message);
                Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: Some(head) })
            }
        },
    }
}

/// Returns the file of a store; `None` for a store in memory. `sqlite:` may name a directory, e.g. a mounted volume;
/// the file in it has the default name.
pub(super) fn store_file(location: &str) -> Result<Option<PathBuf>> {
    Ok(match parse_location(location)? {
        StoreLocation::Memory => None,
        StoreLocation::File(path) if path.is_dir() => Some(path.join(STORE_FILE_NAME)),
        StoreLocation::File(path) => Some(path.to_owned()),
        StoreLocation::Directory(path) => Some(path.join(STORE_FILE_NAME)),
    })
}

/// A parsed store location. The location `memory:` has neither file nor head.
#[derive(Debug, PartialEq, Eq)]
enum StoreLocation<'a> {
    Memory,
    File(&'a Path),
    Directory(&'a Path),
}

/// Parses a location. A path may contain colons, as long as it does not start like a URL.
fn parse_location(location: &str) -> Result<StoreLocation<'_>> {
    match location.split_once(':') {
        Some(("memory", "" | "//")) => Ok(StoreLocation::Memory),
        Some(("sqlite", path)) if path.trim_start_matches('/').is_empty() => {
            invalid_location("`sqlite:` has no file name")
        }
        Some(("sqlite", path)) => Ok(StoreLocation::File(Path::new(path.strip_prefix("//").unwrap_or(path)))),
        // The rest of the URL may hold a password, so it is not repeated in the message.
        Some((scheme, _)) if is_scheme(scheme) => invalid_location(&format!("unknown kind of store `{scheme}:`")),
        Some(_) | None if location.is_empty() => invalid_location("the store location is empty"),
        Some(_) | None => Ok(StoreLocation::Directory(Path::new(location))),
    }
}

/// Whether a text is a URL scheme. A single letter is a Windows drive.
fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Error for a store in a file, in a build that has none.
#[cfg(not(feature = "sqlite"))]
fn no_sqlite_error(path: &Path) -> Error {
    let message = format!("`{}` needs SQLite (feature `sqlite`); this program only has `memory:`", path.display());
    Error::new(Code::ConfigInvalid, message)
}

/// Returns an error that lists the accepted forms.
fn invalid_location<T>(reason: &str) -> Result<T> {
    let message = format!("{reason}; write `sqlite:FILE`, `memory:`, or a data directory");
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_file_a_directory_or_memory() {
        for (text, location) in [
            ("memory:", StoreLocation::Memory),
            ("sqlite:a/b.db", StoreLocation::File(Path::new("a/b.db"))),
            ("sqlite:///a/b.db", StoreLocation::File(Path::new("/a/b.db"))),
            ("sqlite:/a/b.db", StoreLocation::File(Path::new("/a/b.db"))),
            ("/a/b", StoreLocation::Directory(Path::new("/a/b"))),
            ("./a:b", StoreLocation::Directory(Path::new("./a:b"))),
            ("data", StoreLocation::Directory(Path::new("data"))),
            (r"C:\data", StoreLocation::Directory(Path::new(r"C:\data"))),
        ] {
            assert_eq!(parse_location(text).unwrap(), location, "{text}");
        }
    }

    #[test]
    fn an_unknown_scheme_is_rejected_without_repeating_secrets() {
        for (text, message) in [
            (
                "mongo://me:secret@host/db",
                "unknown kind of store `mongo:`; write `sqlite:FILE`, `memory:`, or a data directory",
            ),
            ("sqlite:", "`sqlite:` has no file name; write `sqlite:FILE`, `memory:`, or a data directory"),
            ("", "the store location is empty; write `sqlite:FILE`, `memory:`, or a data directory"),
        ] {
            let error = parse_location(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        }
    }
}
