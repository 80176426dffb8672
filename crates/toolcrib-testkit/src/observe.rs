//! Observation of servers and processes: waiting for a condition, files that scripted servers write or read, running
//! processes.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of every wait; long enough for a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until the condition holds; panics after [`TEST_TIMEOUT`]. Takes no real time under tokio's paused clock.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_until_async(what, async || condition()).await;
}

/// Like [`wait_until`], for a condition that awaits.
pub async fn wait_until_async(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Like [`wait_until`], for a test without a runtime.
#[track_caller]
pub fn wait_until_blocking(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the content of a file, or an empty text without one.
pub fn read_or_empty(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the lines of a file; none without a file. A scripted server with `--count-file` writes one for each start.
pub fn read_lines(path: &Path) -> Vec<String> {
    read_or_empty(path).lines().map(str::to_owned).collect()
}

/// Replaces a file that a server may be reading at this moment: a reader gets the old content or the new one, but never
/// the empty file that `fs::write` makes in between.
///
/// # Panics
///
/// If the file cannot be written.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
pub fn replace_file(path: &Path, content: &str) {
    let new_path = path.with_added_extension("new");
    fs::write(&new_path, content).unwrap();
    fs::rename(&new_path, path).unwrap();
}

/// Whether a process exists and is not a zombie.
pub fn is_running(pid: &str) -> bool {
    let stat = read_or_empty(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Sends a signal to a process, by the signal's name without `SIG`.
///
/// # Panics
///
/// If there is no such process.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
pub fn send_signal(name: &str, pid: impl Display) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "{name} {pid}: {status}");
}
