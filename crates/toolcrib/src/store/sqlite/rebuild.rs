//! Rebuilds a damaged store: a new file with everything that could be read from the old one, which is kept under
//! another name.
//!
//! Nothing is deleted: the old file stays as `FILE.damaged-TIME`, for a later attempt to read more of it. The new store
//! has the same key and the same sequence numbers, so keyed hashes and remembered positions stay valid.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toolcrib_core::{Code, Error, Result, Timestamp};

use super::{JournalMode, SqliteStore};
use crate::store::open::{is_database, store_file};
use crate::store::{CopyRun, Salvage, Store, StoreAdministration};

/// Creates a new store from what was salvaged and puts it in the place of the old one, which must be closed. Returns
/// the new name of the old file, if there was one. Returns `None` for a store in memory, too. Fails for a database,
/// which cannot be replaced as a whole.
pub async fn rebuild_store(location: &str, salvage: &Salvage, now: Timestamp) -> Result<Option<PathBuf>> {
    if is_database(location) {
        let message = "a store in PostgreSQL is not rebuilt; restore a backup into an empty database with \
                       `toolcrib restore FILE`, and name that database with `--store`";
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let Some(path) = store_file(location)? else { return Ok(None) };
    // Completed under a temporary name first: an interruption leaves the old file in place.
    let new_path = with_suffix(&path, &format!(".new-{}", compact_time(now)));
    let store = SqliteStore::open_file(&new_path).await?;
    let filled = match fill_store(&store, salvage).await {
        Ok(()) => store.close_for_rename(JournalMode::Wal).await,
        Err(error) => Err(error),
    };
    store.close().await;
    filled?;
    replace_store(&new_path, &path, "damaged", now)
}

/// Suffixes of the files beside a store: its write-ahead log. A new store must not find the log of the old one.
const LOG_SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// Puts a new store in the place of another one, which is kept as `FILE.WORD-TIME`. Returns that name, if there was a
/// store. At every moment there is one of both, except on a file system without hard links.
pub(super) fn replace_store(new_path: &Path, path: &Path, word: &str, now: Timestamp) -> Result<Option<PathBuf>> {
    let kept_path = with_suffix(path, &format!(".{word}-{}", compact_time(now)));
    for suffix in LOG_SUFFIXES {
        rename_if_exists(&with_suffix(path, suffix), &with_suffix(&kept_path, suffix))?;
    }
    let is_kept = match std::fs::hard_link(path, &kept_path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(move_error(path, &kept_path, error)),
        Err(_) => rename_if_exists(path, &kept_path)?,
    };
    rename(new_path, path)?;
    Ok(is_kept.then_some(kept_path))
}

/// Puts a new store in the place of one that is not kept.
pub(super) fn replace_empty_store(new_path: &Path, path: &Path) -> Result<()> {
    remove_log(path)?;
    rename(new_path, path)
}

/// Removes the files of a store.
pub(super) fn remove_store_files(path: &Path) -> Result<()> {
    remove_log(path)?;
    remove_if_exists(path)
}

fn remove_log(path: &Path) -> Result<()> {
    LOG_SUFFIXES.into_iter().try_for_each(|suffix| remove_if_exists(&with_suffix(path, suffix)))
}

fn remove_if_exists(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let message = format!("`{}` cannot be removed: {error}", path.display());
            Err(Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns a time as part of a file name.
fn compact_time(now: Timestamp) -> String {
    now.to_string().replace([':', '-'], "")
}

/// Fills a new store. Records keep their checksums, damaged ones included, so the new journal reports the same faults
/// until they are accepted.
async fn fill_store(store: &SqliteStore, salvage: &Salvage) -> Result<()> {
    // With the old key, the keyed hashes in the journal stay valid.
    let key = salvage.key.unwrap_or_else(rand::random);
    let run = CopyRun::new();
    store.begin_copy(key, run).await?;
    store.restore_records(run, 0, &salvage.records).await?;
    for (name, definition) in &salvage.definitions {
        store.put_definition(*name, definition).await?;
    }
    for manifest in &salvage.manifests {
        store.put_manifest(manifest).await?;
    }
    for features in &salvage.features {
        store.put_features(features).await?;
    }
    store.finish_copy(run).await
}

/// Renames a file that must exist: another process may have moved it.
fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|error| move_error(from, to, error))
}

/// Renames a file; returns whether it existed.
fn rename_if_exists(from: &Path, to: &Path) -> Result<bool> {
    match std::fs::rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(move_error(from, to, error)),
    }
}

/// Gives a file a name that no other file has yet.
pub(super) fn rename_to_new(from: &Path, to: &Path) -> Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => remove_if_exists(from),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
            Err(move_error(from, to, error))
        }
        // A file system without hard links.
        Err(_) => rename(from, to),
    }
}

fn move_error(from: &Path, to: &Path, error: std::io::Error) -> Error {
    let message = format!("`{}` cannot be moved to `{}`: {error}", from.display(), to.display());
    Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
}

/// Appends a suffix to the file name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
