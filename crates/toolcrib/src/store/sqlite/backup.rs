//! Backups of a store of any kind in a SQLite file, and their restoration. Both write a file under another name,
//! compare it, and rename it last, so an interruption leaves what was there before. A store in a database is filled in
//! its place, and cannot be used until that is complete.

use std::path::{Path, PathBuf};

use toolcrib_core::{Code, Error, Result, Timestamp};

use super::rebuild::{remove_store_files, rename_to_new, replace_empty_store, replace_store, with_suffix};
use super::{JournalMode, SqliteStore, file};
use crate::private_dir::ensure_private_directory;
use crate::store::copy::{CopyReport, ReportProgress, copy_store};
use crate::store::open::{ensure_lasting, head_file, open_existing, open_existing_with_head, store_file};
use crate::store::{HeadFile, OpenedStore, Store, open_copy_target};

/// Suffix of a backup that is not complete yet.
const PARTIAL_SUFFIX: &str = ".partial";
/// Suffix of a store that is being restored.
const RESTORING_SUFFIX: &str = ".restoring";

/// Treatment of a store that has records already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingStore {
    /// Refuses to restore.
    Refuse,
    /// Keeps it under another name.
    MoveAside,
}

/// Result of a restoration.
#[derive(Debug)]
pub struct Restoration {
    /// The copy.
    pub copy: CopyReport,
    /// New name of the file that was replaced.
    pub moved_to: Option<PathBuf>,
}

/// Copies the store at a location into a new file that only its owner may access. `data` is the data directory.
/// Continues an interrupted backup into the same file. Fails with `CONFLICT` if the file exists.
pub async fn back_up_store(
    location: &str,
    data: &Path,
    target: &Path,
    progress: ReportProgress<'_>,
) -> Result<CopyReport> {
    ensure_lasting(location)?;
    if target.symlink_metadata().is_ok() {
        let message = format!("`{}` exists already; name a new file for the backup", target.display());
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let from = open_existing_with_head(location, Some(data)).await?;
    let partial = with_suffix(target, PARTIAL_SUFFIX);
    let copied = async {
        let to = SqliteStore::open_backup_target(&partial).await?;
        let copied = match copy_store(&from, &to, progress).await {
            Ok(report) => to.close_for_rename(JournalMode::Delete).await.map(|()| report),
            Err(error) => Err(name_partial_file(error, &partial)),
        };
        to.close().await;
        copied
    };
    let copied = copied.await;
    from.store.close().await;
    let report = copied?;
    // Fails if another run of this command was faster.
    rename_to_new(&partial, target)?;
    Ok(report)
}

/// Adds the way out to the error for an unfinished backup of another store.
fn name_partial_file(error: Error, partial: &Path) -> Error {
    if error.code != Code::Conflict {
        return error;
    }
    let message = format!("{}; remove `{}` to begin anew", error.message, partial.display());
    Error::new(Code::Conflict, message).with_retryable(false)
}

/// Copies a backup into the store at a location, whose data directory is `data`, and resets the head file. Fails with
/// `CONFLICT` if that store has records and is not to be moved aside, or if another process uses it.
pub async fn restore_backup(
    backup: &Path,
    location: &str,
    data: &Path,
    existing: ExistingStore,
    now: Timestamp,
    progress: ReportProgress<'_>,
) -> Result<Restoration> {
    ensure_lasting(location)?;
    if let Some(path) = store_file(location)?
        && path.canonicalize().is_ok_and(|path| backup.canonicalize().is_ok_and(|backup| backup == path))
    {
        let message = format!("`{}` is the store itself; name a backup", backup.display());
        return Err(Error::new(Code::BadRequest, message));
    }
    let from = open_existing(&format!("sqlite:{}", backup.display())).await?;
    let restored = match store_file(location)? {
        Some(path) => restore_with_head(&from, &path, data, existing, now, progress).await,
        // A store that is not a file is filled as it is.
        None => {
            let to = open_copy_target(location).await?;
            let copied = copy_store(&from, &*to, progress).await;
            to.close().await;
            match copied {
                Ok(copy) => {
                    if let Some(head) = head_file(location, data)? {
                        ensure_private_directory(data)?;
                        head.reset(copy.head.clone()).await?;
                    }
                    Ok(Restoration { copy, moved_to: None })
                }
                Err(error) => Err(error),
            }
        }
    };
    from.store.close().await;
    restored
}

/// Restores into a store file and resets its head file, without which a shorter journal would count as damaged.
async fn restore_with_head(
    from: &OpenedStore,
    path: &Path,
    data: &Path,
    existing: ExistingStore,
    now: Timestamp,
    progress: ReportProgress<'_>,
) -> Result<Restoration> {
    ensure_private_directory(data)?;
    let restoration = restore_file(from, path, existing, now, progress).await?;
    HeadFile::new(data, path).reset(restoration.copy.head.clone()).await?;
    Ok(restoration)
}

/// Restores into a file beside the one that the store has, and puts it in its place.
async fn restore_file(
    from: &OpenedStore,
    path: &Path,
    existing: ExistingStore,
    now: Timestamp,
    progress: ReportProgress<'_>,
) -> Result<Restoration> {
    ensure_replaceable(path, existing).await?;
    let new_path = with_suffix(path, RESTORING_SUFFIX);
    // Of an interrupted restoration, maybe of another backup.
    remove_store_files(&new_path)?;
    let to = SqliteStore::open_copy_target(&new_path).await?;
    let copied = match copy_store(from, &to, progress).await {
        Ok(copy) => to.close_for_rename(JournalMode::Wal).await.map(|()| copy),
        Err(error) => Err(error),
    };
    to.close().await;
    let copy = copied?;
    // Again: another process may have opened or filled the store meanwhile.
    let moved_to = match ensure_replaceable(path, existing).await? {
        CurrentStore::Occupied => replace_store(&new_path, path, "replaced", now)?,
        CurrentStore::Empty => {
            replace_empty_store(&new_path, path)?;
            None
        }
    };
    Ok(Restoration { copy, moved_to })
}

/// Content of the file at the path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CurrentStore {
    /// No file, or a store without records.
    Empty,
    /// A store with records, or a file that cannot be read.
    Occupied,
}

/// Fails if the store at a path is in use, or has records and is not to be moved aside.
async fn ensure_replaceable(path: &Path, existing: ExistingStore) -> Result<CurrentStore> {
    if std::fs::metadata(path).map_or(0, |metadata| metadata.len()) == 0 {
        return Ok(CurrentStore::Empty);
    }
    file::ensure_unused(path).await?;
    if let Ok(store) = SqliteStore::open_existing(path).await {
        let records = store.records(0, 1).await;
        store.close().await;
        if records.is_ok_and(|records| records.is_empty()) {
            return Ok(CurrentStore::Empty);
        }
    }
    match existing {
        ExistingStore::MoveAside => Ok(CurrentStore::Occupied),
        ExistingStore::Refuse => {
            let message = format!(
                "the store `{}` has records; `--replace` keeps it under another name and restores the backup",
                path.display()
            );
            Err(Error::new(Code::Conflict, message).with_retryable(false))
        }
    }
}
