//! `DATA/head`: position of the last record of each store, kept outside of the store. A store that ends earlier, or has
//! another record at that position, has lost records.
//!
//! ```json
//! { "default": { "seq": 42, "checksum": "9f86d081884c7d659a2feaa0c55ad015", "has_rules": false }, "sqlite:/srv/other.db": { … } }
//! ```
//!
//! It also tells whether there were groups, access rules or policies at that position, which damaged records cannot.
//!
//! The file is written after each commit and before the response. It may be behind the journal after a crash, never
//! ahead of it; so a head that is ahead means that records were lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use toolcrib_core::inventory::Damage;
use toolcrib_core::{Code, Result, ResultExt};

use super::{StoreState, VERIFY_HINT};
use crate::private_dir::{private_file_options, replace_private_file};

const HEAD_FILE_NAME: &str = "head";
/// A file of its own, because the head file itself is replaced by a rename, which would leave other processes with a
/// lock on the old file.
const LOCK_FILE_NAME: &str = "head.lock";
/// Key of the store inside the data directory.
const DEFAULT_KEY: &str = "default";
/// Time to wait for the lock. Another process holds it only to read and write a small file. Beyond it the update fails,
/// which is only logged: the next write tries again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// `File::try_lock` is polled on a blocking thread, because a lock without timeout could block it for ever.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Sequence number of a record and its checksum.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalPosition {
    /// Sequence number; 0 before the first record.
    pub seq: u64,
    /// Checksum of that record.
    pub checksum: String,
}

/// Entry of a store in the head file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RememberedHead {
    #[serde(flatten)]
    pub(crate) position: JournalPosition,
    /// Whether a group, access rule or policy was in force after that record. An entry without it was written by a
    /// version that has none.
    #[serde(default)]
    pub(crate) has_rules: bool,
}

/// Entry of one store in the head file of a data directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HeadFile {
    /// Data directory that holds the head file and its lock.
    directory: PathBuf,
    /// `default`, or the store's URL without credentials.
    key: String,
    /// Set when the store's file is known to be unusable.
    pub(crate) store_damage: Option<(StoreState, Damage)>,
    /// Shared by all clones.
    progress: Arc<HeadProgress>,
}

/// State of the writes of this process.
#[derive(Debug, Default)]
struct HeadProgress {
    /// Newest sequence number in the file, as far as this process knows.
    remembered: AtomicU64,
    /// Serializes writes: a writer that waited often finds its position written already.
    write_lock: tokio::sync::Mutex<()>,
    /// Newest entry that is to be written.
    newest: parking_lot::Mutex<RememberedHead>,
}

/// When a position is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadWrite {
    /// If the file can be read and has an earlier position.
    IfNewer,
    Always,
}

/// Content of the head file.
type HeadsByStore = BTreeMap<String, RememberedHead>;

impl HeadFile {
    /// Creates the handle for the store in the file `store`. Accesses no file contents.
    pub fn new(directory: &Path, store: &Path) -> HeadFile {
        // The file itself may not exist yet, so only its directory is resolved.
        let resolve = |path: &Path| {
            let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
            match (parent, path.file_name()) {
                (Some(parent), Some(name)) => parent.join(name),
                (_, _) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            }
        };
        let store = resolve(store);
        let is_default = store == resolve(&directory.join(super::open::STORE_FILE_NAME));
        let key = if is_default { DEFAULT_KEY.to_owned() } else { format!("sqlite:{}", store.display()) };
        HeadFile::with_key(directory, key)
    }

    /// Creates the handle for a database, by its URL without credentials.
    #[cfg(feature = "postgres")]
    pub(crate) fn for_database(directory: &Path, name: &str) -> HeadFile {
        HeadFile::with_key(directory, name.to_owned())
    }

    fn with_key(directory: &Path, key: String) -> HeadFile {
        HeadFile { directory: directory.to_owned(), key, store_damage: None, progress: Arc::default() }
    }

    /// Returns a handle that reports the store's file as unusable.
    pub(crate) fn with_store_damage(self, state: StoreState, reason: &str) -> HeadFile {
        // The messages built from damage end with the hint already.
        let reason = reason.strip_suffix(VERIFY_HINT).unwrap_or(reason).to_owned();
        HeadFile { store_damage: Some((state, Damage::Unusable { reason })), ..self }
    }

    /// Returns the path of the head file.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(HEAD_FILE_NAME)
    }

    /// Returns the entry about the last record known to have been written; `None` if the file has none for this store.
    /// A file that exists and cannot be read or parsed is damage: it is the evidence against a journal that was cut.
    pub(crate) async fn read(&self) -> Result<Option<RememberedHead>, Damage> {
        // On a blocking thread, although the file is small: a writer holds the writer lock meanwhile, and on a file
        // system that hangs it must not take an async thread with it. The thread costs tens of microseconds, much less
        // than the transaction of a write, and maintenance reads only after the store has changed.
        let head = self.clone();
        let read = tokio::task::spawn_blocking(move || head.read_all()).await;
        let remembered = read.unwrap_or_else(|error| Err(self.unreadable(&error)))?.remove(&self.key);
        if let Some(remembered) = &remembered {
            self.progress.remembered.fetch_max(remembered.position.seq, Ordering::Relaxed);
        }
        Ok(remembered)
    }

    /// Reads the entries of all stores.
    fn read_all(&self) -> Result<HeadsByStore, Damage> {
        match fs::read(self.path()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| self.unreadable(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HeadsByStore::new()),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// Returns the damage of a head file that cannot be read.
    fn unreadable(&self, error: &dyn std::fmt::Display) -> Damage {
        let path = self.path();
        let reason = format!(
            "the head file `{}`, which records the length of the journal, cannot be read: {error}",
            path.display()
        );
        Damage::HeadUnreadable { reason }
    }

    /// Writes an entry, unless one with a later position is in the file already.
    pub(crate) async fn remember(&self, entry: RememberedHead) -> Result<()> {
        let seq = entry.position.seq;
        if seq == 0 || seq <= self.progress.remembered.load(Ordering::Relaxed) {
            return Ok(());
        }
        {
            let mut newest = self.progress.newest.lock();
            if newest.position.seq < seq {
                *newest = entry;
            }
        }
        // While this task waits for the lock, another one may write a newer position: then there is nothing left to do.
        let _guard = self.progress.write_lock.lock().await;
        if seq <= self.progress.remembered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let newest = self.progress.newest.lock().clone();
        self.write(newest, HeadWrite::IfNewer).await
    }

    /// Writes an entry, whatever is in the file. If the file cannot be read, its entries of other stores are lost.
    pub(crate) async fn reset(&self, entry: RememberedHead) -> Result<()> {
        let _guard = self.progress.write_lock.lock().await;
        self.write(entry, HeadWrite::Always).await
    }

    /// Replaces the file by one with this entry.
    async fn write(&self, entry: RememberedHead, condition: HeadWrite) -> Result<()> {
        let head = self.clone();
        let seq = entry.position.seq;
        let work = move || {
            let _lock = head.lock()?;
            let mut heads = match (head.read_all(), condition) {
                (Ok(heads), _) => heads,
                (Err(_), HeadWrite::Always) => HeadsByStore::new(),
                (Err(damage), HeadWrite::IfNewer) => return Err(io::Error::other(damage.to_string())),
            };
            // Another process may have written a later position while this one waited for the lock.
            let is_newer = heads.get(&head.key).is_none_or(|known| known.position.seq < seq);
            if is_newer || condition == HeadWrite::Always {
                heads.insert(head.key.clone(), entry);
                let text = serde_json::to_string_pretty(&heads).map_err(io::Error::other)?;
                replace_private_file(&head.path(), &format!("{text}\n"))?;
            }
            io::Result::Ok(())
        };
        let written =
            tokio::task::spawn_blocking(work).await.context(Code::Internal, "write the head of the journal")?;
        written.context(Code::StoreUnavailable, format!("`{}` cannot be written", self.path().display()))?;
        self.progress.remembered.fetch_max(seq, Ordering::Relaxed);
        Ok(())
    }

    /// Locks the head file against other processes: reading, deciding and writing must not interleave. Unlocks when the
    /// returned file is dropped. The operating system releases the lock of a process that ends.
    fn lock(&self) -> io::Result<File> {
        let file = private_file_options().create(true).truncate(false).open(self.directory.join(LOCK_FILE_NAME))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                }
                Err(fs::TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64) -> RememberedHead {
        let position = JournalPosition { seq, checksum: format!("{seq:032x}") };
        RememberedHead { position, has_rules: seq % 2 == 1 }
    }

    #[tokio::test]
    async fn the_newest_position_of_each_store_is_remembered() {
        let data = tempfile::tempdir().unwrap();
        let inside = HeadFile::new(data.path(), &data.path().join("toolcrib.db"));
        let other = HeadFile::new(data.path(), &data.path().join("other.db"));
        assert_eq!(inside.read().await, Ok(None));
        inside.remember(entry(3)).await.unwrap();
        other.remember(entry(7)).await.unwrap();
        // Another process that is behind does not overwrite a newer position.
        HeadFile::new(data.path(), &data.path().join("toolcrib.db")).remember(entry(2)).await.unwrap();
        assert_eq!((inside.read().await, other.read().await), (Ok(Some(entry(3))), Ok(Some(entry(7)))));
        let text: HeadsByStore = serde_json::from_slice(&fs::read(inside.path()).unwrap()).unwrap();
        let outside = format!("sqlite:{}", data.path().canonicalize().unwrap().join("other.db").display());
        assert_eq!(text.keys().collect::<Vec<_>>(), ["default", &outside]);
        inside.reset(entry(1)).await.unwrap();
        assert_eq!(inside.read().await, Ok(Some(entry(1))));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(inside.path()).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let mut names: Vec<_> = fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["head", "head.lock"], "no temporary file stays");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_writers_never_overwrite_a_newer_position() {
        let data = tempfile::tempdir().unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for seq in 1..=64 {
            // Each with a handle of its own, like separate processes.
            let head = HeadFile::new(data.path(), &data.path().join("toolcrib.db"));
            writers.spawn(async move { head.remember(entry(seq)).await });
        }
        for written in writers.join_all().await {
            written.unwrap();
        }
        let head = HeadFile::new(data.path(), &data.path().join("toolcrib.db"));
        assert_eq!(head.read().await, Ok(Some(entry(64))));
    }

    #[tokio::test]
    async fn an_unreadable_file_is_damage_until_it_is_reset() {
        let data = tempfile::tempdir().unwrap();
        let head = HeadFile::new(data.path(), &data.path().join("toolcrib.db"));
        for content in ["", "{", "[]", r#"{"default":7}"#] {
            fs::write(head.path(), content).unwrap();
            assert!(matches!(head.read().await, Err(Damage::HeadUnreadable { .. })), "{content}");
            head.remember(entry(1)).await.unwrap_err();
            assert_eq!(fs::read_to_string(head.path()).unwrap(), content, "it is left as evidence");
        }
        head.reset(entry(1)).await.unwrap();
        assert_eq!(head.read().await, Ok(Some(entry(1))));
    }
}
