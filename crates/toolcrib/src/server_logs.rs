//! The last words of servers: what they write to stderr, bounded, in memory and, where there is a place, in a file.

use std::collections::VecDeque;
#[cfg(unix)]
use std::fs::Permissions;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Result, SourceId};

use crate::private_dir::ensure_private_directory;
use crate::redact::Redactor;

const MAX_TAIL_LINES: usize = 50;
const MAX_LINE_BYTES: u64 = 4 * 1024;
const MAX_LOG_FILE_BYTES: u64 = 256 * 1024;

/// Where the log of a source lies in a directory of logs.
pub fn log_path(logs: &Path, id: &SourceId) -> PathBuf {
    logs.join(format!("{id}.log"))
}

/// The most recent lines of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Everything it had to say was read.
    finished: CancellationToken,
}

impl StderrTail {
    /// Waits until a server that has ended was heard to the end; what it left running may go on talking.
    pub(crate) async fn drain(&self) {
        const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
        let _still_talking = tokio::time::timeout(DRAIN_TIMEOUT, self.finished.cancelled()).await;
    }

    /// The last line that says something.
    pub(crate) fn last_line(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rev().map(|line| sanitize_truncated(line, 300)).find(|line| !line.is_empty())
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Reads until the stream ends. A log that cannot be written is no reason to stop reading: the server would block.
    pub(crate) async fn follow(self, stderr: impl AsyncRead + Unpin, file: Option<PathBuf>, redactor: Arc<Redactor>) {
        let _silent = self.finished.clone().drop_guard();
        let mut log = match &file {
            Some(path) => open_log_file(path).await,
            None => None,
        };
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let is_cut = line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n");
            let mut text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if is_cut {
                // The rest is passed over: a secret that the cut goes through would show in two parts.
                text.push('…');
                if skip_line(&mut reader).await.is_err() {
                    return;
                }
            }
            let text = redactor.redact(&text).into_owned();
            if let Some(open_log) = &mut log
                && append_line(open_log, &text).await.is_err()
            {
                log = None;
            }
            self.push(text);
        }
    }
}

/// Reads to the end of a line and forgets it.
async fn skip_line(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let chunk = reader.fill_buf().await?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        let is_over = end.is_some() || taken == 0;
        reader.consume(taken);
        if is_over {
            return Ok(());
        }
    }
}

struct LogFile {
    file: tokio::fs::File,
    path: PathBuf,
    size: u64,
}

async fn open_log_file(path: &Path) -> Option<LogFile> {
    if let Some(directory) = path.parent() {
        let directory = directory.to_owned();
        let made = tokio::task::spawn_blocking(move || prepare_log_directory(&directory)).await.ok()?;
        if let Err(error) = made {
            tracing::warn!(%error, "the output of servers is not written to a file");
            return None;
        }
    }
    let mut options = tokio::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    options.mode(0o600);
    let file = options.open(path).await.ok()?;
    // It may have been made by an older version, or by hand.
    #[cfg(unix)]
    file.set_permissions(Permissions::from_mode(0o600)).await.ok()?;
    let size = file.metadata().await.ok()?.len();
    Some(LogFile { file, path: path.to_owned(), size })
}

/// A directory that only its owner may enter, made so where it is not. In one that others can change, a link would lead
/// the log elsewhere.
fn prepare_log_directory(directory: &Path) -> Result<()> {
    #[cfg(unix)]
    if directory.is_dir() {
        // One that belongs to another user is refused below.
        let _not_ours = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    }
    ensure_private_directory(directory)
}

/// When a log has grown too large, its older half goes.
async fn append_line(log: &mut LogFile, line: &str) -> std::io::Result<()> {
    log.file.write_all(format!("{line}\n").as_bytes()).await?;
    log.file.flush().await?;
    log.size += line.len() as u64 + 1;
    if log.size > MAX_LOG_FILE_BYTES {
        let text = tokio::fs::read(&log.path).await?;
        let half = &text[text.len() / 2..];
        let kept = half.iter().position(|byte| *byte == b'\n').map_or(half, |end| &half[end + 1..]);
        log.file.set_len(0).await?;
        log.file.write_all(kept).await?;
        log.file.flush().await?;
        log.size = kept.len() as u64;
    }
    Ok(())
}
