//! A server of ours that says where it listens.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::Result;

/// Ends when it is dropped.
pub(super) struct ListeningProcess {
    child: Child,
    pub(super) url: String,
}

impl ListeningProcess {
    pub(super) fn start(command: &mut Command) -> Result<ListeningProcess> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut process = ListeningProcess { child, url: String::new() };
        let mut lines = BufReader::new(process.child.stdout.take().ok_or("it has no stdout")?).lines();
        let line = lines.next().ok_or("it ended before it listened")??;
        process.url = line.strip_prefix("listening on ").ok_or(format!("it said `{line}`"))?.to_owned();
        // Whatever else it prints is read as well, so that it never waits for us.
        thread::spawn(move || lines.for_each(drop));
        Ok(process)
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
