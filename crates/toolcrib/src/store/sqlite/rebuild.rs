//! Rebuilds a damaged store: a new file with everything that could be read from the old one, which is kept under
//! another name.
//!
//! Nothing is deleted: the old file stays as `FILE.damaged-TIME`, for a later attempt to read more of it. The new store
//! has the same key and the same sequence numbers, so keyed hashes and remembered positions stay valid.

use std::path::{Path, PathBuf};

use toolcrib_core::{Code, Error, Result, Timestamp};

use super::SqliteStore;
use crate::store::open::{is_database, store_file};
use crate::store::{Salvage, Store, StoreAdministration};

/// Creates a new store from what was salvaged and puts it in the place of the old one, which must be closed. Returns
/// the new name of the old file, if there was one. Returns `None` for a store in memory, too. Fails for a database, which
/// cannot be replaced as a whole.
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
    let filled = fill_store(&store, salvage).await;
    store.close().await;
    filled?;
    let damaged_path = move_store_aside(&path, "damaged", now)?;
    rename_if_exists(&new_path, &path)?;
    Ok(damaged_path)
}

/// Files of a store, by their suffixes. The write-ahead log comes first: a new file must not find the log of the old one.
const STORE_FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", ""];

/// Moves the files of a store to `FILE.WORD-TIME`. Returns the new name, if there was a file.
pub(super) fn move_store_aside(path: &Path, word: &str, now: Timestamp) -> Result<Option<PathBuf>> {
    let new_name = with_suffix(path, &format!(".{word}-{}", compact_time(now)));
    let mut moved_to = None;
    for suffix in STORE_FILE_SUFFIXES {
        let target = with_suffix(&new_name, suffix);
        if rename_if_exists(&with_suffix(path, suffix), &target)? && suffix.is_empty() {
            moved_to = Some(target);
        }
    }
    Ok(moved_to)
}

/// Removes the files of a store.
pub(super) fn remove_store_files(path: &Path) -> Result<()> {
    for path in STORE_FILE_SUFFIXES.map(|suffix| with_suffix(path, suffix)) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let message = format!("`{}` cannot be removed: {error}", path.display());
                return Err(Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns a time as part of a file name.
fn compact_time(now: Timestamp) -> String {
    now.to_string().replace([':', '-'], "")
}

/// Fills a new store. Records keep their checksums, damaged ones included, so the new journal reports the same faults
/// until they are accepted.
async fn fill_store(store: &SqliteStore, salvage: &Salvage) -> Result<()> {
    // With the old key, the keyed hashes in the journal stay valid.
    let key = match salvage.key {
        Some(key) => key,
        None => store.key().await?,
    };
    store.begin_copy(key).await?;
    store.restore_records(0, &salvage.records).await?;
    for (name, definition) in &salvage.definitions {
        store.put_definition(*name, definition).await?;
    }
    for manifest in &salvage.manifests {
        store.put_manifest(manifest).await?;
    }
    for features in &salvage.features {
        store.put_features(features).await?;
    }
    store.finish_copy().await
}

/// Renames a file; returns whether it existed.
pub(super) fn rename_if_exists(from: &Path, to: &Path) -> Result<bool> {
    match std::fs::rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            let message = format!("`{}` cannot be moved to `{}`: {error}", from.display(), to.display());
            Err(Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error))
        }
    }
}

/// Appends a suffix to the file name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
