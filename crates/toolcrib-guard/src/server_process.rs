//! A server process started by Toolcrib: its standard streams, and the process tree behind it.
//!
//! The caller takes the streams and keeps the [`ServerProcess`] as long as the server shall run. Starting goes through
//! a guard (`unix.rs`) or not; the rest of Toolcrib does not see the difference.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use toolcrib_core::{Code, Error, Result};

#[cfg(unix)]
use unix as system;

#[cfg(windows)]
use windows as system;

/// Time for a process tree to end after SIGKILL or after the channel to its guard was closed. Longer than the guard
/// takes (half a second for TERM) and than its watcher waits for it; a tree in uninterruptible sleep is given up.
const EXIT_AFTER_KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Program that guards the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardExe {
    /// This binary, whose `main` calls [`run_if_requested`](super::run_if_requested) first.
    CurrentExe,
    /// Another binary that does so; an absolute path.
    Path(PathBuf),
    /// No guard. The server gets a process group, which is killed when the [`ServerProcess`] is stopped or dropped.
    /// Processes that leave the group survive, and the whole tree survives a `kill -9` of this process.
    None,
}

/// Command to start.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Name to be found on `PATH`, or a path.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// The complete environment; nothing is inherited. See [`clean_env`](super::clean_env).
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; that of this process if `None`.
    pub cwd: Option<PathBuf>,
}

/// A running server. Dropping it kills its whole process tree.
#[derive(Debug)]
pub struct ServerProcess {
    /// Must be dropped before [`ServerProcess::stop`] by the code that takes it: EOF is the request to exit.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    /// The guard, or the server itself if there is none.
    child: Child,
    tree: system::ProcessTree,
}

impl GuardExe {
    /// This binary if it can be its own guard, else none.
    pub fn detect() -> GuardExe {
        if cfg!(unix) && super::can_guard() { GuardExe::CurrentExe } else { GuardExe::None }
    }

    /// Starts a server. An error names the program and what to do about it.
    pub async fn start(&self, launch: Launch) -> Result<ServerProcess> {
        // Checked here, because the operating system reports a missing directory like a missing program.
        if let Some(cwd) = &launch.cwd
            && !tokio::fs::metadata(cwd).await.is_ok_and(|metadata| metadata.is_dir())
        {
            return Err(permanent_start_error(&launch, &format!("its `cwd` `{}` is not a directory", cwd.display())));
        }
        system::start(self, &launch).await
    }
}

impl ServerProcess {
    /// Takes the streams out of the child, because waiting for a child closes a stdin that it still holds.
    fn new(mut child: Child, tree: system::ProcessTree) -> ServerProcess {
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        ServerProcess { stdin, stdout, stderr, child, tree }
    }

    /// Process id of the server itself, not of the guard.
    pub fn pid(&self) -> Option<u32> {
        self.tree.pid().or(self.child.id())
    }

    /// Waits until the server and its remaining processes have ended. May be cancelled and called again. The code is
    /// the server's own, 128 + n after signal n.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.tree.finish(status).await;
        Ok(status)
    }

    /// Asks the server to exit by closing its stdin, and ends its tree if it has not done so within `grace`. Returns
    /// its status, or `None` if even a kill did not end it in time.
    pub async fn stop(mut self, grace: Duration) -> Option<ExitStatus> {
        drop((self.stdin.take(), self.stdout.take(), self.stderr.take()));
        if let Ok(status) = timeout(grace, self.wait()).await {
            return status.ok();
        }
        self.tree.terminate(&mut self.child).await;
        timeout(EXIT_AFTER_KILL_TIMEOUT, self.wait()).await.ok()?.ok()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After waiting, `id` is `None`: the pid may belong to another process.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

/// Settings common to all ways of starting: environment, pipes, working directory.
fn configure_command(mut command: Command, launch: &Launch) -> Command {
    command.env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    command
}

/// Command without a guard. tokio kills the child on drop.
fn unguarded_command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).kill_on_drop(true);
    configure_command(command, launch)
}

/// Start error that a retry does not fix.
fn permanent_start_error(launch: &Launch, reason: &str) -> Error {
    let message = format!("cannot start `{}`: {reason}", launch.program.display());
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}

/// Maps the operating system's error to advice.
#[expect(clippy::wildcard_enum_match_arm, reason = "an open enum of the standard library")]
fn start_error(launch: &Launch, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if launch.program.as_encoded_bytes().contains(&b'/') => {
            permanent_start_error(launch, "there is no such file, or the interpreter it names is missing")
        }
        io::ErrorKind::NotFound => {
            permanent_start_error(launch, "not found on PATH; install it, or give its full path")
        }
        io::ErrorKind::PermissionDenied => permanent_start_error(launch, "permission denied; is the file executable?"),
        // Conditions of the machine that pass: retryable, unlike all others.
        io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Error::new(Code::ToolUnavailable, format!("cannot start `{}` now", launch.program.display()))
                .with_cause(error)
        }
        _ => permanent_start_error(launch, &error.to_string()),
    }
}
