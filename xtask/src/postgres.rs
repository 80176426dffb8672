//! PostgreSQL server that all tests of a run share: the program `postgres-server` of the test kit, which has its own
//! data and port. It ends when its stdin is closed, thus also with this program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::deps::npm;
use crate::paths::WorkspacePaths;

/// Running server; dropping it stops the server.
#[derive(Debug)]
pub(crate) struct SharedPostgres {
    /// URL of its database `postgres`, with a user who may create others.
    admin_url: String,
    process: Child,
    /// Programs of a version that is not installed on the system.
    programs: Option<CopiedPrograms>,
}

/// Copy of the programs of PostgreSQL in the temporary directory; dropping it removes them. Root runs PostgreSQL as
/// another user, who may not have access to the directory of fetched packages.
#[derive(Debug)]
struct CopiedPrograms(PathBuf);

impl SharedPostgres {
    /// Starts the server of the system; `None` if PostgreSQL is not installed or does not start, for which the program
    /// prints the reason.
    pub(crate) fn start(paths: &WorkspacePaths) -> Option<SharedPostgres> {
        SharedPostgres::start_with(paths, None)
    }

    /// Starts the newer version that npm has fetched.
    pub(crate) fn start_fetched(paths: &WorkspacePaths) -> Option<SharedPostgres> {
        SharedPostgres::start_with(paths, Some(CopiedPrograms::copy(&npm::postgres_dir(paths))?))
    }

    fn start_with(paths: &WorkspacePaths, programs: Option<CopiedPrograms>) -> Option<SharedPostgres> {
        let mut command = Command::new(paths.target_dir.join("postgres-server"));
        command.env("TOOLCRIB_TEST_DEPS", &paths.deps_dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(programs) = &programs {
            command.env("TOOLCRIB_TEST_POSTGRES_BIN", programs.bin_dir());
        }
        let mut process = command.spawn().ok()?;
        let mut admin_url = String::new();
        BufReader::new(process.stdout.take()?).read_line(&mut admin_url).ok()?;
        let server = SharedPostgres { admin_url: admin_url.trim().to_owned(), process, programs };
        (!server.admin_url.is_empty()).then_some(server)
    }

    /// Sets the variables with which tests find this server, and start others of the same version.
    pub(crate) fn set_test_env(&self, command: &mut Command) {
        command.env("TOOLCRIB_TEST_POSTGRES", &self.admin_url);
        if let Some(programs) = &self.programs {
            command.env("TOOLCRIB_TEST_POSTGRES_BIN", programs.bin_dir());
        }
    }
}

impl Drop for SharedPostgres {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl CopiedPrograms {
    /// Copies a directory; `None` if that fails, for which `cp` prints the reason.
    fn copy(from: &Path) -> Option<CopiedPrograms> {
        let copy =
            CopiedPrograms(std::env::temp_dir().join(format!("toolcrib-postgres-programs-{}", std::process::id())));
        let status = Command::new("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(&copy.0).status();
        status.is_ok_and(|status| status.success()).then_some(copy)
    }

    fn bin_dir(&self) -> PathBuf {
        self.0.join("bin")
    }
}

impl Drop for CopiedPrograms {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
