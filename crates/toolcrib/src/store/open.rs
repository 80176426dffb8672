//! Opens the store that a location names: `--store URL`, or by default the data directory.
//!
//! `open` creates what is missing. `open_with_head` also knows from the head file whether the store was in use before:
//! then a missing or empty file is a loss and not a first start, and nothing is created in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_core::{Code, Error, Result};

#[cfg(feature = "postgres")]
use super::PostgresStore;
#[cfg(feature = "sqlite")]
use super::SqliteStore;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use super::StoreState;
use super::{CopyReport, HeadFile, MemoryStore, Store};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::private_dir::ensure_private_directory;

/// Name of the store file in a data directory.
pub(super) const STORE_FILE_NAME: &str = "toolcrib.db";

/// Expected content of a file or database.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedContent {
    /// A store, or nothing yet.
    Any,
    /// A store to fill, which may be an unfinished copy, or nothing yet.
    CopyTarget,
    /// A store. A file without tables is damaged, a database without tables holds no store.
    Existing,
    /// A store that was in use before: a database without tables is damaged.
    #[cfg(feature = "postgres")]
    UsedBefore,
}

/// Opens a store at `sqlite:FILE`, `postgres://…`, `memory:`, or a data directory. Without the features `sqlite` and
/// `postgres`, only `memory:` can be opened. Fails with `CONFIG_INVALID` for an unknown location, and with
/// `STORE_UNAVAILABLE` if the file or database cannot be opened.
pub async fn open(location: &str) -> Result<Arc<dyn Store>> {
    let location = parse_location(location)?;
    match location {
        StoreLocation::Memory => Ok(Arc::new(MemoryStore::new())),
        StoreLocation::Database(url) => open_database(url).await,
        StoreLocation::File(_) | StoreLocation::Directory(_) => open_file(location.path()).await,
    }
}

/// Opens a store in order to copy another one into it, at a location as for [`open`]. Only this opens an unfinished
/// copy.
pub async fn open_copy_target(location: &str) -> Result<Arc<dyn Store>> {
    let location = parse_location(location)?;
    match location {
        StoreLocation::Memory => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "postgres")]
        StoreLocation::Database(url) => Ok(Arc::new(PostgresStore::open_copy_target(url).await?)),
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Database(url) => open_database(url).await,
        #[cfg(feature = "sqlite")]
        StoreLocation::File(_) | StoreLocation::Directory(_) => {
            Ok(Arc::new(SqliteStore::open_copy_target(location.path()).await?))
        }
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::File(_) | StoreLocation::Directory(_) => open_file(location.path()).await,
    }
}

/// Opens a store that exists, with the head file in its own directory. Creates nothing.
pub async fn open_existing(location: &str) -> Result<OpenedStore> {
    open_existing_with_head(location, None).await
}

/// Opens a store that exists, with the head file in the data directory `data`, or else in its own directory. Creates
/// nothing, and fails if the store cannot be read. A database without a data directory has no head file.
pub(super) async fn open_existing_with_head(location: &str, data: Option<&Path>) -> Result<OpenedStore> {
    let parsed = parse_location(location)?;
    let head = data.map(|data| head_file(location, data)).transpose()?.flatten();
    match parsed {
        StoreLocation::Memory => Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head }),
        #[cfg(feature = "postgres")]
        StoreLocation::Database(url) => {
            Ok(OpenedStore { store: Arc::new(PostgresStore::open_existing(url).await?), head })
        }
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Database(_) => Err(missing_feature_error("PostgreSQL", "postgres")),
        #[cfg(feature = "sqlite")]
        StoreLocation::File(_) | StoreLocation::Directory(_) => {
            let path = parsed.path();
            let store = SqliteStore::open_existing(&path).await?;
            let head = head.or_else(|| path.parent().map(|directory| HeadFile::new(directory, &path)));
            let head = head.map(|head| match store.truncation() {
                Some(reason) => head.with_store_damage(StoreState::Damaged, reason),
                None => head,
            });
            Ok(OpenedStore { store: Arc::new(store), head })
        }
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::File(_) | StoreLocation::Directory(_) => Err(missing_feature_error("SQLite", "sqlite")),
    }
}

/// Replaces the entries that the head files have of an earlier store at the location of a finished copy, which would
/// make the copy look damaged: in the data directory `data`, and beside a store in a file. Files without such an entry
/// stay as they are.
pub async fn remember_copy(location: &str, data: Option<&Path>, report: &CopyReport) -> Result<()> {
    let directory = match parse_location(location)? {
        StoreLocation::Memory | StoreLocation::Database(_) => None,
        location @ (StoreLocation::File(_) | StoreLocation::Directory(_)) => {
            location.path().parent().map(Path::to_owned)
        }
    };
    for directory in data.into_iter().chain(directory.as_deref()) {
        if let Some(head) = head_file(location, directory)?
            && head.read().await != Ok(None)
        {
            head.reset(report.head.clone()).await?;
        }
    }
    Ok(())
}

/// Returns the head file of a store in the data directory `data`; `None` for a store in memory.
pub(super) fn head_file(location: &str, data: &Path) -> Result<Option<HeadFile>> {
    let location = parse_location(location)?;
    Ok(match location {
        StoreLocation::Memory => None,
        #[cfg(feature = "postgres")]
        StoreLocation::Database(url) => Some(HeadFile::for_database(data, &PostgresStore::database_name(url)?)),
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Database(_) => None,
        StoreLocation::File(_) | StoreLocation::Directory(_) => Some(HeadFile::new(data, &location.path())),
    })
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
    let location = parse_location(location)?;
    match location {
        StoreLocation::Memory => Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: None }),
        StoreLocation::Database(url) => open_database_with_head(url, data).await,
        StoreLocation::File(_) | StoreLocation::Directory(_) => open_file_with_head(location.path(), data).await,
    }
}

/// Opens a store file; creates it if it is missing.
#[cfg(feature = "sqlite")]
async fn open_file(path: PathBuf) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open_file(path).await?))
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
            let head = match store.truncation() {
                Some(reason) => head.with_store_damage(StoreState::Damaged, reason),
                None => head,
            };
            Ok(OpenedStore { store: Arc::new(store), head: Some(head) })
        }
        Err(error) => replace_lost_store(head, error),
    }
}

/// Opens a database; creates the tables if there are none.
#[cfg(feature = "postgres")]
async fn open_database(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(PostgresStore::open(url).await?))
}

/// Opens a database, and compares it with the head file. The head file of each node tells what that node has seen, such
/// as records that a database lost when it was restored from a backup.
#[cfg(feature = "postgres")]
async fn open_database_with_head(url: &str, data: &Path) -> Result<OpenedStore> {
    ensure_private_directory(data)?;
    let head = HeadFile::for_database(data, &PostgresStore::database_name(url)?);
    if head.read().await == Ok(None) {
        return Ok(OpenedStore { store: open_database(url).await?, head: Some(head) });
    }
    match PostgresStore::open_used_before(url).await {
        Ok(store) => Ok(OpenedStore { store: Arc::new(store), head: Some(head) }),
        Err(error) => replace_lost_store(head, error),
    }
}

/// Returns an empty store in memory in place of one whose content is lost; fails if it is only unavailable: locked, not
/// running, or without permission. A later attempt may succeed then, and nothing is known to be lost.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn replace_lost_store(head: HeadFile, error: Error) -> Result<OpenedStore> {
    match StoreState::from_error(&error) {
        StoreState::Ok | StoreState::Down => Err(error),
        state @ (StoreState::Damaged | StoreState::Missing) => {
            let head = head.with_store_damage(state, &error.message);
            Ok(OpenedStore { store: Arc::new(MemoryStore::new()), head: Some(head) })
        }
    }
}

/// Returns the file of a store; `None` for a store in memory or in a database.
#[cfg(feature = "sqlite")]
pub(super) fn store_file(location: &str) -> Result<Option<PathBuf>> {
    Ok(match parse_location(location)? {
        StoreLocation::Memory | StoreLocation::Database(_) => None,
        location @ (StoreLocation::File(_) | StoreLocation::Directory(_)) => Some(location.path()),
    })
}

/// Fails for a store in memory, which has nothing to copy and keeps nothing.
pub fn ensure_lasting(location: &str) -> Result<()> {
    match parse_location(location)? {
        StoreLocation::Memory => {
            Err(Error::new(Code::ConfigInvalid, "`memory:` ends with this command; name a store that lasts"))
        }
        StoreLocation::Database(_) | StoreLocation::File(_) | StoreLocation::Directory(_) => Ok(()),
    }
}

/// Whether two locations are those of the same store. Fails for a malformed one.
pub fn is_same_location(one: &str, other: &str) -> Result<bool> {
    let id = |location: &str| -> Result<String> {
        Ok(match parse_location(location)? {
            StoreLocation::Memory => location.to_owned(),
            #[cfg(feature = "postgres")]
            StoreLocation::Database(url) => PostgresStore::database_name(url)?,
            #[cfg(not(feature = "postgres"))]
            StoreLocation::Database(url) => url.to_owned(),
            location @ (StoreLocation::File(_) | StoreLocation::Directory(_)) => {
                let path = location.path();
                path.canonicalize().unwrap_or(path).display().to_string()
            }
        })
    };
    Ok(id(one)? == id(other)?)
}

/// Whether a location is that of a database.
#[cfg(feature = "sqlite")]
pub(super) fn is_database(location: &str) -> bool {
    matches!(parse_location(location), Ok(StoreLocation::Database(_)))
}

/// A parsed store location. The location `memory:` has neither file nor head.
#[derive(Debug, PartialEq, Eq)]
enum StoreLocation<'a> {
    Memory,
    /// URL of a PostgreSQL database.
    Database(&'a str),
    File(&'a Path),
    Directory(&'a Path),
}

impl StoreLocation<'_> {
    /// Returns the path of the file. `sqlite:` may name a directory, e.g. a mounted volume; the file in it has the
    /// default name. Other locations have no file, and an empty path.
    fn path(&self) -> PathBuf {
        match self {
            StoreLocation::File(path) if path.is_dir() => path.join(STORE_FILE_NAME),
            StoreLocation::File(path) => path.to_path_buf(),
            StoreLocation::Directory(path) => path.join(STORE_FILE_NAME),
            StoreLocation::Memory | StoreLocation::Database(_) => PathBuf::new(),
        }
    }
}

/// Parses a location. A path may contain colons, as long as it does not start like a URL.
fn parse_location(location: &str) -> Result<StoreLocation<'_>> {
    match location.split_once(':') {
        Some(("memory", "" | "//")) => Ok(StoreLocation::Memory),
        Some(("sqlite", path)) if path.trim_start_matches('/').is_empty() => {
            invalid_location("`sqlite:` has no file name")
        }
        Some(("sqlite", path)) => Ok(StoreLocation::File(Path::new(path.strip_prefix("//").unwrap_or(path)))),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(StoreLocation::Database(location)),
        Some(("postgres" | "postgresql", _)) => invalid_location("a PostgreSQL URL begins with `postgres://`"),
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

/// Error for a store of a kind that this build does not have.
#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn missing_feature_error(kind: &str, feature: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("this program is built without {kind} (feature `{feature}`)"))
}

#[cfg(not(feature = "sqlite"))]
async fn open_file(_: PathBuf) -> Result<Arc<dyn Store>> {
    Err(missing_feature_error("SQLite", "sqlite"))
}

#[cfg(not(feature = "sqlite"))]
async fn open_file_with_head(_: PathBuf, _: &Path) -> Result<OpenedStore> {
    Err(missing_feature_error("SQLite", "sqlite"))
}

#[cfg(not(feature = "postgres"))]
async fn open_database(_: &str) -> Result<Arc<dyn Store>> {
    Err(missing_feature_error("PostgreSQL", "postgres"))
}

#[cfg(not(feature = "postgres"))]
async fn open_database_with_head(_: &str, _: &Path) -> Result<OpenedStore> {
    Err(missing_feature_error("PostgreSQL", "postgres"))
}

/// Returns an error that lists the accepted forms.
fn invalid_location<T>(reason: &str) -> Result<T> {
    let message =
        format!("{reason}; write `sqlite:FILE`, `postgres://USER@HOST/DATABASE`, `memory:`, or a data directory");
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_file_a_directory_or_memory() {
        for (text, location) in [
            ("memory:", StoreLocation::Memory),
            ("postgres://me@host/db", StoreLocation::Database("postgres://me@host/db")),
            ("postgresql://me@host/db", StoreLocation::Database("postgresql://me@host/db")),
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
                "unknown kind of store `mongo:`; write `sqlite:FILE`, `postgres://USER@HOST/DATABASE`, `memory:`, or a data directory",
            ),
            (
                "sqlite:",
                "`sqlite:` has no file name; write `sqlite:FILE`, `postgres://USER@HOST/DATABASE`, `memory:`, or a data directory",
            ),
            (
                "postgres:me:secret@host/db",
                "a PostgreSQL URL begins with `postgres://`; write `sqlite:FILE`, `postgres://USER@HOST/DATABASE`, `memory:`, or a data directory",
            ),
            (
                "",
                "the store location is empty; write `sqlite:FILE`, `postgres://USER@HOST/DATABASE`, `memory:`, or a data directory",
            ),
        ] {
            let error = parse_location(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        }
    }
}
