//! Which store a place names: `--store URL`, or the data directory when nobody said otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_core::{Code, Error, Result};

use super::sqlite::FILE_NAME;
use super::{HeadFile, MemoryStore, SqliteStore, Store, StoreState};
use crate::private::private_directory;

/// `sqlite:FILE`, `memory:`, or a data directory.
pub async fn open(place: &str) -> Result<Arc<dyn Store>> {
    match file_of(place)? {
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
pub async fn open_remembered(place: &str, data: &Path) -> Result<OpenedStore> {
    let Some(path) = file_of(place)? else {
        return Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: None });
    };
    // What lies there decides what is damage, so it must be the user's own before it is read.
    for directory in [Some(data), path.parent()].into_iter().flatten().filter(|directory| directory.is_dir()) {
        private_directory(directory)?;
    }
    let head = HeadFile::new(data, &path);
    if head.read() == Ok(None) {
        return Ok(OpenedStore { store: Arc::new(SqliteStore::open_file(path).await?), head: Some(head) });
    }
    match SqliteStore::open_existing(path).await {
        Ok(store) => {
            let head = match store.find_cut() {
                Some(reason) => head.with_unusable(StoreState::Damaged, &reason),
                None => head,
            };
            Ok(OpenedStore { store: Arc::new(store), head: Some(head) })
        }
        Err(error) => match StoreState::of(&error) {
            StoreState::Ok | StoreState::Down => Err(error),
            state @ (StoreState::Damaged | StoreState::Missing) => {
                let head = head.with_unusable(state, &error.message);
                Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: Some(head) })
            }
        },
    }
}

/// The file of a store; `None` for one in memory.
pub(super) fn file_of(place: &str) -> Result<Option<PathBuf>> {
    Ok(match place_of(place)? {
        Place::Memory => None,
        Place::File(path) if path.is_dir() => Some(path.join(FILE_NAME)),
        Place::File(path) => Some(path.to_owned()),
        Place::Directory(path) => Some(path.join(FILE_NAME)),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Memory,
    File(&'a Path),
    Directory(&'a Path),
}

fn place_of(place: &str) -> Result<Place<'_>> {
    match place.split_once(':') {
        Some(("memory", "" | "//")) => Ok(Place::Memory),
        Some(("sqlite", path)) if path.trim_start_matches('/').is_empty() => refuse("`sqlite:` names no file"),
        Some(("sqlite", path)) => Ok(Place::File(Path::new(path.strip_prefix("//").unwrap_or(path)))),
        // What follows the scheme may hold a password, so it is not repeated.
        Some((scheme, _)) if is_scheme(scheme) => refuse(&format!("a store of the kind `{scheme}:` is not known")),
        Some(_) | None if place.is_empty() => refuse("the store has no name"),
        Some(_) | None => Ok(Place::Directory(Path::new(place))),
    }
}

/// A single letter is a drive.
fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn refuse<T>(reason: &str) -> Result<T> {
    let message = format!("{reason}; write `sqlite:FILE`, `memory:`, or a data directory");
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_file_a_directory_or_memory() {
        for (text, place) in [
            ("memory:", Place::Memory),
            ("sqlite:a/b.db", Place::File(Path::new("a/b.db"))),
            ("sqlite:///a/b.db", Place::File(Path::new("/a/b.db"))),
            ("sqlite:/a/b.db", Place::File(Path::new("/a/b.db"))),
            ("/a/b", Place::Directory(Path::new("/a/b"))),
            ("./a:b", Place::Directory(Path::new("./a:b"))),
            ("data", Place::Directory(Path::new("data"))),
            (r"C:\data", Place::Directory(Path::new(r"C:\data"))),
        ] {
            assert_eq!(place_of(text).unwrap(), place, "{text}");
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
            let error = place_of(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        }
    }
}
