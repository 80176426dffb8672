//! Which store a place names: `--store URL`, or the data directory when nobody said otherwise.

use std::path::Path;
use std::sync::Arc;

use toolcrib_core::{Code, Error, Result};

use super::{MemoryStore, SqliteStore, Store};

/// `sqlite:FILE`, `memory:`, or a data directory.
pub async fn open(place: &str) -> Result<Arc<dyn Store>> {
    match place_of(place)? {
        Place::Memory => Ok(Arc::new(MemoryStore::new())),
        Place::File(path) if path.is_dir() => Ok(Arc::new(SqliteStore::open(path).await?)),
        Place::File(path) => Ok(Arc::new(SqliteStore::open_file(path).await?)),
        Place::Directory(path) => Ok(Arc::new(SqliteStore::open(path).await?)),
    }
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
