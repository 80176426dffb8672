//! A server we started, from our side: its three streams, and the leash that ends its tree.

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

/// The bound on a tree that was told to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Who guards the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardExe {
    /// This binary, whose `main` calls [`run_if_asked`](super::run_if_asked) first.
    CurrentExe,
    /// Another binary that does; an absolute path.
    Path(PathBuf),
    /// Nobody: the server gets a process group, and that group is killed when the [`Server`] is stopped or dropped.
    /// Processes that leave the group survive, and after a `kill -9` of this process the whole tree does.
    None,
}

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// The whole environment: nothing of ours is added. See [`clean_env`](super::clean_env).
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
}

/// A running server. Dropping it ends its whole tree.
#[derive(Debug)]
pub struct ServerProcess {
    /// Whoever takes it must drop it before [`Server::stop`]: its end is how a server is asked to leave.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    child: Child,
    tree: system::ProcessTree,
}

impl GuardExe {
    /// This binary where it can be its own guard, else nobody.
    pub fn detect() -> GuardExe {
        if cfg!(unix) && super::can_guard() { GuardExe::CurrentExe } else { GuardExe::None }
    }

    /// Starts a server; an error names the program and says what to do.
    pub async fn start(&self, launch: Launch) -> Result<ServerProcess> {
        if let Some(cwd) = &launch.cwd
            && !tokio::fs::metadata(cwd).await.is_ok_and(|metadata| metadata.is_dir())
        {
            return Err(permanent_start_error(&launch, &format!("its `cwd` `{}` is not a directory", cwd.display())));
        }
        system::start(self, &launch).await
    }
}

impl ServerProcess {
    fn new(mut child: Child, leash: system::ProcessTree) -> ServerProcess {
        // Taken now, for waiting on a child closes the stdin it still holds.
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        ServerProcess { stdin, stdout, stderr, child, tree: leash }
    }

    /// The server's own process id.
    pub fn pid(&self) -> Option<u32> {
        self.tree.pid().or(self.child.id())
    }

    /// Waits until the server and what it left behind are gone. The code is the server's own, 128 + n after signal n.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.tree.finish(status).await;
        Ok(status)
    }

    /// Asks the server to leave by the end of its stdin, and ends its tree when it has not done so within `grace`.
    /// Gives its status, or `None` when even a kill did not end it promptly.
    pub async fn stop(mut self, grace: Duration) -> Option<ExitStatus> {
        drop((self.stdin.take(), self.stdout.take(), self.stderr.take()));
        if let Ok(status) = timeout(grace, self.wait()).await {
            return status.ok();
        }
        self.tree.terminate(&mut self.child).await;
        timeout(KILL_TIMEOUT, self.wait()).await.ok()?.ok()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Once the child was waited for, its number may be somebody else's.
        if self.child.id().is_some() {
            self.tree.kill();
        }
    }
}

/// The command with what all ways of starting have in common.
fn configure_command(mut command: Command, launch: &Launch) -> Command {
    command.env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    command
}

fn unguarded_command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).kill_on_drop(true);
    configure_command(command, launch)
}

/// Trying again does not help: somebody has to change something first.
fn permanent_start_error(launch: &Launch, reason: &str) -> Error {
    let message = format!("cannot start `{}`: {reason}", launch.program.display());
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}

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
        io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Error::new(Code::ToolUnavailable, format!("cannot start `{}` now", launch.program.display()))
                .with_cause(error)
        }
        _ => permanent_start_error(launch, &error.to_string()),
    }
}
