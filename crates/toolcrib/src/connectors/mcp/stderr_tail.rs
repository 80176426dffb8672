//! Stderr output of stdio servers: the last lines in memory, and a bounded log file per source if there is a directory
//! for it.
//!
//! The last output of a server is often the only explanation of why it ended, so error messages quote its last lines.
//! Lines are redacted before they are kept anywhere. The file survives restarts of server and Toolcrib; `toolcrib logs`
//! shows it.

use std::collections::VecDeque;
#[cfg(unix)]
use std::fs::Permissions;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;
use toolcrib_core::Result;
use toolcrib_core::text::sanitize_truncated;

use crate::private_dir::ensure_private_directory;
use crate::redact::Redactor;

/// Number of lines kept in memory; error messages quote the last [`MAX_SHOWN_LINES`] that are not empty.
const MAX_TAIL_LINES: usize = 50;
/// Lines that an error message shows: Python prints the reason last, Node a stack trace and its version after it.
const MAX_SHOWN_LINES: usize = 5;
/// Characters of each line that an error message shows.
const MAX_SHOWN_LINE_CHARS: usize = 200;
/// Maximum length of a line; the rest of a longer one is skipped.
const MAX_LINE_BYTES: u64 = 4 * 1024;
/// Size at which a log file is cut to its newer half. With one server, the file takes at most this and one line;
/// several servers of one source count separately.
const MAX_LOG_FILE_BYTES: u64 = 256 * 1024;

/// The last lines that one server wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(super) struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Cancelled when stderr was read to its end.
    finished: CancellationToken,
}

impl StderrTail {
    /// Waits briefly until the output of a server that has ended is read completely. A child process that it left
    /// running may keep stderr open.
    pub(super) async fn drain(&self) {
        // Waited for in full only if a descendant keeps stderr open; otherwise the stream ends with the server.
        const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
        // A timeout only means that the tail may be incomplete.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.finished.cancelled()).await;
    }

    /// Returns the last lines that are not empty, oldest first, for error messages: at most [`MAX_SHOWN_LINES`] of
    /// them, each shortened to [`MAX_SHOWN_LINE_CHARS`].
    pub(super) fn last_lines(&self) -> Vec<String> {
        let lines = self.lines.lock();
        let shown = lines.iter().rev().map(|line| sanitize_truncated(line, MAX_SHOWN_LINE_CHARS));
        let mut shown: Vec<String> = shown.filter(|line| !line.is_empty()).take(MAX_SHOWN_LINES).collect();
        shown.reverse();
        shown
    }

    /// Appends a line, and removes the oldest one if there are too many.
    fn push(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() == MAX_TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Reads until the stream ends. Continues if the log file cannot be written: a server whose stderr is not read
    /// would block.
    pub(super) async fn follow(self, stderr: impl AsyncRead + Unpin, file: Option<PathBuf>, redactor: Arc<Redactor>) {
        let _finished = self.finished.clone().drop_guard();
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
            // A server may write megabytes without a line break: the buffer stays at the maximum length.
            let is_cut = line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n");
            let mut text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if is_cut {
                // The rest is skipped: a secret across the cut would be in two parts, and neither would be redacted.
                text.push('…');
                if skip_line(&mut reader).await.is_err() {
                    return;
                }
            }
            let text = redactor.redact(&text).into_owned();
            if let Some(open_log) = &mut log
                && append_line(open_log, &text).await.is_err()
            {
                // Write no further lines after an error.
                log = None;
            }
            self.push(text);
        }
    }
}

/// Skips the rest of a line.
async fn skip_line(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let chunk = reader.fill_buf().await?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(chunk.len(), |end| end + 1);
        let is_end = end.is_some() || length == 0;
        reader.consume(length);
        if is_end {
            return Ok(());
        }
    }
}

/// An open log file.
struct LogFile {
    file: tokio::fs::File,
    path: PathBuf,
    size: u64,
}

/// Opens the log file of a source. Returns `None` if that is impossible; logs the reason if it is the directory.
async fn open_log_file(path: &Path) -> Option<LogFile> {
    if let Some(directory) = path.parent() {
        let directory = directory.to_owned();
        let prepared = tokio::task::spawn_blocking(move || prepare_log_directory(&directory)).await.ok()?;
        if let Err(error) = prepared {
            tracing::warn!(%error, "the stderr output of servers is not written to log files");
            return None;
        }
    }
    let mut options = tokio::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    options.mode(0o600);
    let file = options.open(path).await.ok()?;
    // An existing file may have been created by an older version, or by hand.
    #[cfg(unix)]
    file.set_permissions(Permissions::from_mode(0o600)).await.ok()?;
    let size = file.metadata().await.ok()?.len();
    Some(LogFile { file, path: path.to_owned(), size })
}

/// Makes the log directory private. If others could write to it, a link could redirect the log.
fn prepare_log_directory(directory: &Path) -> Result<()> {
    #[cfg(unix)]
    if directory.is_dir() {
        // A directory of another user is rejected below.
        let _ = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    }
    ensure_private_directory(directory)
}

/// Appends a line; when the file is too large, removes its older half. It is cut in place, so the open file and its
/// path stay the same.
async fn append_line(log: &mut LogFile, line: &str) -> std::io::Result<()> {
    log.file.write_all(format!("{line}\n").as_bytes()).await?;
    log.file.flush().await?;
    log.size += line.len() as u64 + 1;
    // Keep the newer half, from the next line start on.
    if log.size > MAX_LOG_FILE_BYTES {
        let text = tokio::fs::read(&log.path).await?;
        let half = &text[text.len() / 2..];
        let newer = half.iter().position(|byte| *byte == b'\n').map_or(half, |end| &half[end + 1..]);
        log.file.set_len(0).await?;
        log.file.write_all(newer).await?;
        log.file.flush().await?;
        log.size = newer.len() as u64;
    }
    Ok(())
}
