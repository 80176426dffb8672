//! PostgreSQL server that all tests of a run share: the program `postgres-server` of the test kit, which has its own
//! data and port. It ends when its stdin is closed, thus also with this program.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::paths::WorkspacePaths;

/// Running server; dropping it stops the server.
#[derive(Debug)]
pub(crate) struct SharedPostgres {
    /// URL of its database `postgres`, with a user who may create others.
    pub(crate) admin_url: String,
    process: Child,
}

impl SharedPostgres {
    /// Starts the server; `None` if PostgreSQL is not installed or does not start, for which the program prints the
    /// reason.
    pub(crate) fn start(paths: &WorkspacePaths) -> Option<SharedPostgres> {
        let mut command = Command::new(paths.target_dir.join("postgres-server"));
        command.env("TOOLCRIB_TEST_DEPS", &paths.deps_dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().ok()?;
        let mut admin_url = String::new();
        BufReader::new(process.stdout.take()?).read_line(&mut admin_url).ok()?;
        let server = SharedPostgres { admin_url: admin_url.trim().to_owned(), process };
        (!server.admin_url.is_empty()).then_some(server)
    }
}

impl Drop for SharedPostgres {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
