//! A new store with what can be read of a damaged one. The old file is kept under another name.

use std::path::{Path, PathBuf};

use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Error, Result, Source, Timestamp};

use super::open::store_file;
use super::{SqliteStore, Store, StoredRecord};

/// What can be read of a store.
#[derive(Debug, Default)]
pub struct Salvage {
    pub(crate) key: Option<[u8; 32]>,
    /// As they are stored, checksums included.
    pub(crate) records: Vec<StoredRecord>,
    pub(crate) definitions: Vec<(Fingerprint, Source)>,
    pub(crate) manifests: Vec<PackedManifest>,
}

/// Makes a new store of what was salvaged and puts it in the place of the old one, which must be closed. Returns the new
/// name of the old file, where there was one.
pub async fn rebuild_store(place: &str, salvage: &Salvage, now: Timestamp) -> Result<Option<PathBuf>> {
    let Some(path) = store_file(place)? else { return Ok(None) };
    let time = now.to_string().replace([':', '-'], "");
    // Made whole beside its place: an interruption leaves the old file where it is.
    let made = with_suffix(&path, &format!(".new-{time}"));
    let store = SqliteStore::open_file(&made).await?;
    let filled = fill_store(&store, salvage).await;
    store.close().await;
    filled?;
    let mut set_aside = None;
    // The log first: a new file must not find the log of the old one.
    for suffix in ["-wal", "-shm", ""] {
        let aside = with_suffix(&path, &format!(".damaged-{time}{suffix}"));
        if rename_if_exists(&with_suffix(&path, suffix), &aside)? && suffix.is_empty() {
            set_aside = Some(aside);
        }
    }
    rename_if_exists(&made, &path)?;
    Ok(set_aside)
}

async fn fill_store(store: &SqliteStore, salvage: &Salvage) -> Result<()> {
    store.restore(&salvage.records, salvage.key).await?;
    for (name, definition) in &salvage.definitions {
        store.put_definition(*name, definition).await?;
    }
    for manifest in &salvage.manifests {
        store.put_manifest(manifest).await?;
    }
    Ok(())
}

/// Whether there was such a file.
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

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
