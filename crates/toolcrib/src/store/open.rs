//! Which store a place names: `--store URL`, or the data directory when nobody said otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_core::{Code, Error, Result};

use super::sqlite::STORE_FILE_NAME;
use super::{HeadFile, MemoryStore, SqliteStore, Store, StoreState};
use crate::private_dir::ensure_private_directory;

/// `sqlite:FILE`, `memory:`, or a data directory.
pub async fn open(place: &str) -> Result<Arc<dyn Store>> {
    match store_file(place)? {
        Some(path) => Ok(Arc::new(SqliteStore::open_file(path).await?)),
        None => Ok(Arc::new(MemoryStore::new())),
    }
}

/// A store, and what its data directory remembers of it.
#[derive(Debug)]
pub struct OpenedStore {
    pub store: Arc<dyn Store>,
    /// Goes into [`Options::head`](crate::Options). There is none for a store in memory.
    pub head: Option<HeadFile>,
}

/// Opens a store and looks at what the data directory `data` remembers of it: one that was in use before is not made anew
/// when it is gone, empty or no database. It is opened as an empty one in memory then, and a registry over it finds the
/// journal damaged.
pub async fn open_with_head(place: &str, data: &Path) -> Result<OpenedStore> {
    let Some(path) = store_file(place)? else {
        return Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: None });
    };
    // What lies there decides what is damage, so it must be the user's own before it is read.
    for directory in [Some(data), path.parent()].into_iter().flatten().filter(|directory| directory.is_dir()) {
        ensure_private_directory(directory)?;
    }
    let head = HeadFile::new(data, &path);
    if head.read() == Ok(None) {
        return Ok(OpenedStore { store: Arc::new(SqliteStore::open_file(path).await?), head: Some(head) });
    }
    match SqliteStore::open_existing(path).await {
        Ok(store) => {
            let head = match store.find_truncation() {
                Some(reason) => head.with_store_damage(StoreState::Damaged, &reason),
                None => head,
            };
            Ok(OpenedStore { store: Arc::new(store), head: Some(head) })
        }
        Err(error) => match StoreState::from_error(&error) {
            StoreState::Ok | StoreState::Down => Err(error),
            state @ (StoreState::Damaged | StoreState::Missing) => {
                let head = head.with_store_damage(state, &error.message);
                Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: Some(head) })
            }
        },
    }
}

/// The file of a store; `None` for one in memory.
pub(super) fn store_file(place: &str) -> Result<Option<PathBuf>> {
    Ok(match parse_location(place)? {
        StoreLocation::Memory => None,
        StoreLocation::File(path) if path.is_dir() => Some(path.join(STORE_FILE_NAME)),
        StoreLocation::File(path) => Some(path.to_owned()),
        StoreLocation::Directory(path) => Some(path.join(STORE_FILE_NAME)),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum StoreLocation<'a> {
    Memory,
    File(&'a Path),
    Directory(&'a Path),
}

fn parse_location(place: &str) -> Result<StoreLocation<'_>> {
    match place.split_once(':') {
        Some(("memory", "" | "//")) => Ok(StoreLocation::Memory),
        Some(("sqlite", path)) if path.trim_start_matches('/').is_empty() => {
            invalid_location("`sqlite:` names no file")
        }
        Some(("sqlite", path)) => Ok(StoreLocation::File(Path::new(path.strip_prefix("//").unwrap_or(path)))),
        // What follows the scheme may hold a password, so it is not repeated.
        Some((scheme, _)) if is_scheme(scheme) => {
            invalid_location(&format!("a store of the kind `{scheme}:` is not known"))
        }
        Some(_) | None if place.is_empty() => invalid_location("the store has no name"),
        Some(_) | None => Ok(StoreLocation::Directory(Path::new(place))),
    }
}

/// A single letter is a drive.
fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn invalid_location<T>(reason: &str) -> Result<T> {
    let message = format!("{reason}; write `sqlite:FILE`, `memory:`, or a data directory");
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_file_a_directory_or_memory() {
        for (text, place) in [
            ("memory:", StoreLocation::Memory),
            ("sqlite:a/b.db", StoreLocation::File(Path::new("a/b.db"))),
            ("sqlite:///a/b.db", StoreLocation::File(Path::new("/a/b.db"))),
            ("sqlite:/a/b.db", StoreLocation::File(Path::new("/a/b.db"))),
            ("/a/b", StoreLocation::Directory(Path::new("/a/b"))),
            ("./a:b", StoreLocation::Directory(Path::new("./a:b"))),
            ("data", StoreLocation::Directory(Path::new("data"))),
            (r"C:\data", StoreLocation::Directory(Path::new(r"C:\data"))),
        ] {
            assert_eq!(parse_location(text).unwrap(), place, "{text}");
        }
    }

    #[test]
    fn an_unknown_store_is_refused_without_its_secrets() {
        for (text, message) in [
            (
                "mongo://me:secret@host/db",
                "a store of the kind `mongo:` is not known; write `sqlite:FILE`, `memory:`, or a data directory",
            ),
            ("sqlite:", "`sqlite:` names no file; write `sqlite:FILE`, `memory:`, or a data directory"),
            ("", "the store has no name; write `sqlite:FILE`, `memory:`, or a data directory"),
        ] {
            let error = parse_location(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        }
    }
}
