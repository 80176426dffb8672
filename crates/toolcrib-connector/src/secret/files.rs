//! Reads the files of `${file:…}` references for async code: on blocking threads and with a deadline, so that a file on
//! a network file system that hangs delays only the sources that need it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use toolcrib_core::source::SourceKind;
use toolcrib_core::time::format_duration;

use super::{ReferenceValues, file_paths, read_secret_file};

/// Deadline for reading one file. Long enough for a network file system that is mounted on first access.
const SECRET_FILE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reader of secret files. Concurrent readers of one path share one read, so that a file that hangs occupies one thread,
/// however often its value is needed.
#[derive(Debug, Default)]
pub struct SecretFiles {
    /// Reads in progress, by path.
    running: Arc<Mutex<HashMap<String, RunningRead>>>,
}

/// A read in progress.
#[derive(Debug, Clone)]
struct RunningRead {
    started: Instant,
    /// Content of the file, or the reason why it cannot be read; `None` until the read has ended.
    content: watch::Receiver<Option<Result<String, String>>>,
}

impl SecretFiles {
    /// Reads the files that the references of a source's configuration name.
    pub async fn read_for(&self, kind: &SourceKind) -> ReferenceValues {
        self.read_all(&file_paths(kind)).await
    }

    /// Reads files, each once. A file that cannot be read in time is an error of its references, like a missing one.
    pub async fn read_all(&self, paths: &BTreeSet<String>) -> ReferenceValues {
        let contents = join_all(paths.iter().map(|path| self.read(path))).await;
        ReferenceValues { files: paths.iter().cloned().zip(contents).collect() }
    }

    /// Reads a file on a blocking thread, or waits for a read in progress. Fails with the reason, for a message.
    async fn read(&self, path: &str) -> Result<String, String> {
        let RunningRead { started, mut content } = self.start(path);
        // A read that has hung for longer than the deadline fails its readers at once: waiting again would delay every
        // use.
        match timeout_at(started + SECRET_FILE_TIMEOUT, content.wait_for(Option::is_some)).await {
            Ok(Ok(content)) => content.clone().unwrap_or_else(|| Err("reading the file was interrupted".to_owned())),
            Ok(Err(_)) => Err("reading the file was interrupted".to_owned()),
            Err(_) => Err(format!("the file was not read within {}", format_duration(SECRET_FILE_TIMEOUT))),
        }
    }

    /// Returns the read of a path that is in progress, or starts one.
    fn start(&self, path: &str) -> RunningRead {
        let mut running = self.running.lock();
        // The channel of a read that was interrupted is closed; such a read is started again.
        if let Some(read) = running.get(path).filter(|read| read.content.has_changed().is_ok()) {
            return read.clone();
        }
        let (sender, content) = watch::channel(None);
        let read = RunningRead { started: Instant::now(), content };
        running.insert(path.to_owned(), read.clone());
        let path = path.to_owned();
        let running = self.running.clone();
        // The thread removes the entry: it stays while the read hangs, although its readers may have stopped waiting.
        tokio::task::spawn_blocking(move || {
            let content = read_secret_file(&path);
            running.lock().remove(&path);
            sender.send_replace(Some(content));
        });
        read
    }
}

/// RAII guard for tests: the read of a path that does not end.
#[cfg(any(test, feature = "testkit"))]
#[derive(Debug)]
pub struct HungRead {
    path: String,
    running: Arc<Mutex<HashMap<String, RunningRead>>>,
    _sender: watch::Sender<Option<Result<String, String>>>,
}

#[cfg(any(test, feature = "testkit"))]
impl SecretFiles {
    /// Makes reads of a path wait, as for one that never returns.
    pub fn hang(&self, path: &str) -> HungRead {
        let (sender, content) = watch::channel(None);
        self.running.lock().insert(path.to_owned(), RunningRead { started: Instant::now(), content });
        HungRead { path: path.to_owned(), running: self.running.clone(), _sender: sender }
    }
}

#[cfg(any(test, feature = "testkit"))]
impl Drop for HungRead {
    fn drop(&mut self) {
        self.running.lock().remove(&self.path);
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
        let read = files.hang(&hung);
        let started = Instant::now();
        assert_eq!(files.read(&other).await, Ok("token".to_owned()));
        assert!(started.elapsed() < SECRET_FILE_TIMEOUT, "another file is read at once");
        for _ in 0..3 {
            assert_eq!(files.read(&hung).await, Err("the file was not read within 5s".to_owned()));
        }
        assert!(started.elapsed() < SECRET_FILE_TIMEOUT * 2, "only the first reader waits");
        drop(read);
        assert_eq!(files.read(&hung).await, Ok("token".to_owned()));
        assert!(files.running.lock().is_empty(), "reads that have ended are dropped");
    }
}
