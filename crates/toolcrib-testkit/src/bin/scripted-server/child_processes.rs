//! Child processes that are hard to end: a child, a grandchild, and a process that has left the process group and
//! session. All ignore SIGTERM and SIGHUP and keep stdout of the server open.
//!
//! A server that is killed alone leaves all three behind, one whose process group is killed still leaves the last.
//! Tests read their process ids from the file and check that none is alive.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Ignored signals stay ignored in child processes. All exit by themselves after ten minutes, in case a test leaves
/// them behind.
const SCRIPT: &str = r#"
trap '' TERM HUP
echo "child $$" >> "$1"
(setsid sh -c 'echo "escapee $$" >> "$1"; exec sleep 600' sh "$1" &)
sh -c 'echo "grandchild $$" >> "$1"; exec sleep 600' sh "$1" &
wait
"#;

/// Starts the processes and waits until each has written its name and process id to the file.
pub(crate) fn start(pids: &Path) {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(pids).stdin(Stdio::null());
    command.spawn().expect("start the child");
    // The processes report through the file only, so it is polled: every 5 ms, for 5 s at most.
    for _ in 0..1000 {
        if fs::read_to_string(pids).is_ok_and(|text| text.lines().count() >= 3) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    eprintln!("scripted-server: the child processes did not start within 5 s");
    std::process::exit(1);
}
