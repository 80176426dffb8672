//! Rebuilds a damaged store: a new file with everything that could be read from the old one, which is kept under
//! another name.
//!
//! Nothing is deleted: the old file stays as `FILE.damaged-TIME`, for a later attempt to read more of it. The new store
//! has the same key and the same sequence numbers, so keyed hashes and remembered positions stay valid.

use std::path::{Path, PathBuf};

use toolcrib_core::{Code, Error, Result, Timestamp};

use super::SqliteStore;
use crate::store::open::store_file;
use crate::store::{Salvage, Store, StoreAdministration};

/// Creates a new store from what was salvaged and puts it in the place of the old one, which must be closed. Returns
/// the new name of the old file, if there was one. Returns `None` for a store in memory, too.
pub async fn rebuild_store(location: &str, salvage: &Salvage, now: Timestamp) -> Result<Option<PathBuf>> {
    let Some(path) = store_file(location)? else { return Ok(None) };
    let time = now.to_string().replace([':', '-'], "");
    // Completed under a temporary name first: an interruption leaves the old file in place.
    let new_path = with_suffix(&path, &format!(".new-{time}"));
    let store = SqliteStore::open_file(&new_path).await?;
    let filled = fill_store(&store, salvage).await;
    store.close().await;
    filled?;
    let mut damaged_path = None;
    // Then move the old files away.
    // The write-ahead log first: the new file must not find the log of the old one.
    for suffix in ["-wal", "-shm", ""] {
        let target = with_suffix(&path, &format!(".damaged-{time}{suffix}"));
        if rename_if_exists(&with_suffix(&path, suffix), &target)? && suffix.is_empty() {
            damaged_path = Some(target);
        }
    }
    rename_if_exists(&new_path, &path)?;
    Ok(damaged_path)
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
fn rename_if_exists(from: &Path, to: &Path) -> Result<bool> {
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
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
