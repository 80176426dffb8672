//! A hostile family: a child, a grandchild, and an escapee in a session of its own without a living parent.
//! None of them minds SIGTERM or SIGHUP, and all hold our standard output open.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// An ignored signal stays ignored in what is started later. They end by themselves after ten minutes, should a
/// test leave them behind.
const SCRIPT: &str = r#"
trap '' TERM HUP
echo "child $$" >> "$1"
(setsid sh -c 'echo "escapee $$" >> "$1"; exec sleep 600' sh "$1" &)
sh -c 'echo "grandchild $$" >> "$1"; exec sleep 600' sh "$1" &
wait
"#;

/// Starts them and waits until each has written its name and process id to the file.
pub(crate) fn start(pids: &Path) {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(pids).stdin(Stdio::null());
    command.spawn().expect("start the child");
    for _ in 0..1000 {
        if fs::read_to_string(pids).is_ok_and(|text| text.lines().count() >= 3) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    eprintln!("scripted-server: the family did not come up within 5 s");
    std::process::exit(1);
}
