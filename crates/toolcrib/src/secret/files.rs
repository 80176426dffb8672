//! Reads the files of `${file:…}` references for async code: on blocking threads and with a deadline, so that a file on
//! a network file system that hangs delays only the sources that need it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use toolcrib_core::source::SourceKind;
use toolcrib_core::time::format_duration;

use super::{ReferenceValues, file_paths, read_secret_file};

/// Deadline for reading one file. Long enough for a network file system that is mounted on first access.
const SECRET_FILE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reader of secret files. Reads of one path take turns, so that a file that hangs occupies one thread, however often
/// its value is needed.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles {
    /// Turn of each path that is being read.
    turns: Mutex<HashMap<String, Arc<PathTurn>>>,
}

/// Admits one read of a path at a time.
#[derive(Debug, Default)]
struct PathTurn {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Start of the running read.
    started: Mutex<Option<Instant>>,
}

impl SecretFiles {
    /// Reads the files that the references of a source's configuration name.
    pub(crate) async fn read_for(&self, kind: &SourceKind) -> ReferenceValues {
        self.read_all(&file_paths(kind)).await
    }

    /// Reads files, each once. A file that cannot be read in time is an error of its references, like a missing one.
    pub(crate) async fn read_all(&self, paths: &BTreeSet<String>) -> ReferenceValues {
        let contents = join_all(paths.iter().map(|path| self.read(path))).await;
        ReferenceValues { files: paths.iter().cloned().zip(contents).collect() }
    }

    /// Reads a file on a blocking thread. Fails with the reason, for a message.
    async fn read(&self, path: &str) -> Result<String, String> {
        let timed_out = || format!("the file was not read within {}", format_duration(SECRET_FILE_TIMEOUT));
        let turn = self.turn(path);
        // An earlier read has hung for longer than the deadline: waiting for it again would delay every use.
        if turn.started.lock().is_some_and(|started| started.elapsed() >= SECRET_FILE_TIMEOUT) {
            return Err(timed_out());
        }
        let deadline = Instant::now() + SECRET_FILE_TIMEOUT;
        let Ok(guard) = timeout_at(deadline, turn.lock.clone().lock_owned()).await else { return Err(timed_out()) };
        *turn.started.lock() = Some(Instant::now());
        let path = path.to_owned();
        // The thread owns the turn: it ends with the read, although its reader may have stopped waiting.
        let reading = tokio::task::spawn_blocking(move || {
            let content = read_secret_file(&path);
            *turn.started.lock() = None;
            drop(guard);
            content
        });
        match timeout_at(deadline, reading).await {
            Ok(content) => content.unwrap_or_else(|_| Err("reading the file was interrupted".to_owned())),
            Err(_) => Err(timed_out()),
        }
    }

    /// Returns the turn of a path.
    fn turn(&self, path: &str) -> Arc<PathTurn> {
        let mut turns = self.turns.lock();
        // A turn that only this table holds is not in use.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(path.to_owned()).or_default().clone()
    }
}

/// RAII guard for tests: the read of a path that does not end.
#[cfg(test)]
pub(crate) struct HungRead {
    turn: Arc<PathTurn>,
    _guard: tokio::sync::OwnedMutexGuard<()>,
}

#[cfg(test)]
impl SecretFiles {
    /// Takes the turn of a path, as a read does that never returns.
    pub(crate) async fn hang(&self, path: &str) -> HungRead {
        let turn = self.turn(path);
        let guard = turn.lock.clone().lock_owned().await;
        *turn.started.lock() = Some(Instant::now());
        HungRead { turn, _guard: guard }
    }
}

#[cfg(test)]
impl Drop for HungRead {
    fn drop(&mut self) {
        *self.turn.started.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_delays_no_other_file_and_is_waited_for_once() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, "token\n").unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (hung, other) = (write("hung"), write("other"));
        let files = SecretFiles::default();
        let read = files.hang(&hung).await;
        let started = Instant::now();
        assert_eq!(files.read(&other).await, Ok("token".to_owned()));
        assert!(started.elapsed() < SECRET_FILE_TIMEOUT, "another file is read at once");
        for _ in 0..3 {
            assert_eq!(files.read(&hung).await, Err("the file was not read within 5s".to_owned()));
        }
        assert!(started.elapsed() < SECRET_FILE_TIMEOUT * 2, "only the first reader waits");
        drop(read);
        assert_eq!(files.read(&hung).await, Ok("token".to_owned()));
        assert_eq!(files.turns.lock().len(), 1, "turns that are not in use are dropped");
    }
}
