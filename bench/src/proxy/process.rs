//! Server process that prints the URL it listens on, as a line `listening on URL`. All servers of the benchmarks choose
//! a free port and print it like this.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::Result;

/// Running server, killed on drop.
pub(crate) struct ListeningProcess {
    child: Child,
    pub(crate) url: String,
}

impl ListeningProcess {
    /// Starts a server and waits for the line with its URL.
    pub(crate) fn start(command: &mut Command) -> Result<ListeningProcess> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut process = ListeningProcess { child, url: String::new() };
        let mut lines = BufReader::new(process.child.stdout.take().ok_or("the server has no stdout")?).lines();
        let line = lines.next().ok_or("the server exited before it listened")??;
        process.url = line.strip_prefix("listening on ").ok_or(format!("unexpected output `{line}`"))?.to_owned();
        // Drains stdout, so that the server never blocks on a full pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok(process)
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        // Fails if the server has exited already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
