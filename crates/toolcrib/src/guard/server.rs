//! A server we started, from our side: its three streams, and the leash that ends its tree.

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

/// The bound on a guard that starts, and on a tree that was told to end.
const PROMPTLY: Duration = Duration::from_secs(5);

/// Who guards the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardExe {
    /// This binary, whose `main` calls [`run_if_asked`](super::run_if_asked) first.
    CurrentExe,
    /// Another binary that does.
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
pub struct Server {
    /// Whoever takes it must drop it before [`Server::stop`]: its end is how a server is asked to leave.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    child: Child,
    leash: system::Leash,
}

impl GuardExe {
    /// This binary where it can be its own guard, else nobody.
    pub fn detect() -> GuardExe {
        if cfg!(unix) && super::ready() { GuardExe::CurrentExe } else { GuardExe::None }
    }

    /// Starts a server; an error names the program and says what to do.
    pub async fn start(&self, launch: Launch) -> Result<Server> {
        if let Some(cwd) = &launch.cwd
            && !tokio::fs::metadata(cwd).await.is_ok_and(|metadata| metadata.is_dir())
        {
            return Err(refused(&launch, &format!("its `cwd` `{}` is not a directory", cwd.display())));
        }
        system::start(self, &launch).await
    }
}

impl Server {
    fn new(mut child: Child, leash: system::Leash) -> Server {
        // Taken now, for waiting on a child closes the stdin it still holds.
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Server { stdin, stdout, stderr, child, leash }
    }

    /// The server's own process id.
    pub fn pid(&self) -> Option<u32> {
        self.leash.pid().or(self.child.id())
    }

    /// Waits until the server and what it left behind are gone. The code is the server's own, 128 + n after signal n.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.leash.ended(status);
        Ok(status)
    }

    /// Asks the server to leave by the end of its stdin, and ends its tree when it has not done so within `grace`.
    /// Gives its status, or `None` when even a kill did not end it promptly.
    pub async fn stop(mut self, grace: Duration) -> Option<ExitStatus> {
        drop((self.stdin.take(), self.stdout.take(), self.stderr.take()));
        if let Ok(status) = timeout(grace, self.wait()).await {
            return status.ok();
        }
        self.leash.pull(&mut self.child).await;
        timeout(PROMPTLY, self.wait()).await.ok()?.ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Once the child was waited for, its number may be somebody else's.
        if self.child.id().is_some() {
            self.leash.cut();
        }
    }
}

/// The command with what all ways of starting have in common.
fn prepare(mut command: Command, launch: &Launch) -> Command {
    command.env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    command
}

fn direct(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).kill_on_drop(true);
    prepare(command, launch)
}

/// Trying again does not help: somebody has to change something first.
fn refused(launch: &Launch, reason: &str) -> Error {
    let message = format!("cannot start `{}`: {reason}", launch.program.display());
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}

fn not_started(launch: &Launch, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if launch.program.as_encoded_bytes().contains(&b'/') => {
            refused(launch, "there is no such file, or the interpreter it names is missing")
        }
        io::ErrorKind::NotFound => refused(launch, "not found on PATH; install it, or give its full path"),
        io::ErrorKind::PermissionDenied => refused(launch, "permission denied; is the file executable?"),
        io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Error::new(Code::ToolUnavailable, format!("cannot start `{}` now", launch.program.display()))
                .with_cause(error)
        }
        _ => refused(launch, &error.to_string()),
    }
}

#[cfg(unix)]
mod unix {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    use std::pin::pin;

    use rustix::io::FdFlags;
    use rustix::process::{Pid, Signal, kill_process_group};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixStream;

    use super::*;

    /// What is between SIGTERM and SIGKILL for a server without a guard.
    const GRACE: Duration = Duration::from_millis(500);

    /// For what a guard that has ended already said.
    const LAST_WORD: Duration = Duration::from_millis(200);

    /// What ends the tree.
    #[derive(Debug)]
    pub(super) enum Leash {
        /// Our end of the channel: the guard ends the tree when it closes.
        Guard {
            channel: Option<UnixStream>,
            server: Option<Pid>,
        },
        Group(Option<Pid>),
    }

    impl Leash {
        pub(super) fn pid(&self) -> Option<u32> {
            let (Leash::Guard { server: pid, .. } | Leash::Group(pid)) = self;
            pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
        }

        /// After the child was waited for.
        pub(super) fn ended(&mut self, status: ExitStatus) {
            match self {
                // A guard that was itself killed could not clean up; its server's group is what we can still reach.
                Leash::Guard { server, .. } if status.signal().is_some() => kill_group(*server, Signal::KILL),
                Leash::Guard { .. } => {}
                Leash::Group(group) => kill_group(*group, Signal::KILL),
            }
        }

        /// Ends the tree, with the chance to leave in order.
        pub(super) async fn pull(&mut self, child: &mut Child) {
            match self {
                Leash::Guard { channel, .. } => drop(channel.take()),
                Leash::Group(group) => {
                    kill_group(*group, Signal::TERM);
                    if timeout(GRACE, child.wait()).await.is_err() {
                        kill_group(*group, Signal::KILL);
                    }
                }
            }
        }

        /// Ends the tree at once, without waiting.
        pub(super) fn cut(&mut self) {
            match self {
                Leash::Guard { channel, .. } => drop(channel.take()),
                Leash::Group(group) => kill_group(*group, Signal::KILL),
            }
        }
    }

    fn kill_group(group: Option<Pid>, signal: Signal) {
        if let Some(group) = group {
            // Gone already is as good.
            let _ = kill_process_group(group, signal);
        }
    }

    pub(super) async fn start(guard: &GuardExe, launch: &Launch) -> Result<Server> {
        match guard {
            GuardExe::CurrentExe => guarded(this_binary()?, launch).await,
            GuardExe::Path(path) => guarded(path.clone(), launch).await,
            GuardExe::None => {
                let child = direct(launch).process_group(0).spawn().map_err(|error| not_started(launch, error))?;
                let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
                Ok(Server::new(child, Leash::Group(group)))
            }
        }
    }

    /// A binary that does not know it is the guard would start all over again, and its servers too.
    fn this_binary() -> Result<PathBuf> {
        if !crate::guard::ready() {
            let message = "this program is not prepared to guard its servers; call `toolcrib::guard::run_if_asked()` \
                           first thing in `main`, or choose `GuardExe::None`";
            return Err(Error::new(Code::Internal, message));
        }
        // On Linux by this name, which stays true when an update has replaced the file.
        if cfg!(target_os = "linux") {
            return Ok(PathBuf::from("/proc/self/exe"));
        }
        std::env::current_exe()
            .map_err(|error| Error::new(Code::Internal, "cannot find this program's own file").with_cause(error))
    }

    async fn guarded(exe: PathBuf, launch: &Launch) -> Result<Server> {
        let broken = |error: io::Error| {
            let message = format!("cannot start the guard of `{}`", launch.program.display());
            Error::new(Code::ToolUnavailable, message).with_cause(error)
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(broken)?;
        ours.set_nonblocking(true).map_err(broken)?;
        let ours = UnixStream::from_std(ours).map_err(broken)?;
        // Only their end is inherited. A neighbour started in this very moment gets it too, which does no harm: the
        // guard waits for the end of ours.
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| broken(error.into()))?;

        let mut command = Command::new(exe);
        command.arg0("crib-guard").arg(crate::guard::ASKED).arg(theirs.as_raw_fd().to_string()).arg("--");
        command.arg(&launch.program).args(&launch.args).process_group(0);
        let child = prepare(command, launch).spawn().map_err(broken)?;
        drop(theirs);

        let mut server = Server::new(child, Leash::Guard { channel: None, server: None });
        let mut channel = BufReader::new(ours);
        let heard = first_word(&mut server.child, &mut channel).await;
        match heard.as_deref().ok().and_then(|line| line.trim_end().split_once(' ')) {
            Some(("started", pid)) => {
                let pid = pid.parse().ok().and_then(Pid::from_raw);
                server.leash = Leash::Guard { channel: Some(channel.into_inner()), server: pid };
                Ok(server)
            }
            Some(("failed", errno)) => {
                Err(not_started(launch, io::Error::from_raw_os_error(errno.parse().unwrap_or(0))))
            }
            _ => {
                // Whatever this program is, it is no guard.
                let _ = server.child.start_kill();
                Err(broken(heard.err().unwrap_or_else(|| io::Error::other("it ended without a word"))))
            }
        }
    }

    /// What the guard says of its server: `started PID` or `failed ERRNO`.
    async fn first_word(guard: &mut Child, channel: &mut BufReader<UnixStream>) -> io::Result<String> {
        let mut line = String::new();
        let mut read = pin!(channel.read_line(&mut line));
        let heard = timeout(PROMPTLY, async {
            tokio::select! {
                read = &mut read => read,
                // Should a neighbour hold their end too, it will not read as ended, but what was said is there.
                _ = guard.wait() => timeout(LAST_WORD, &mut read).await?,
            }
        });
        heard.await??;
        Ok(line)
    }
}

#[cfg(windows)]
mod windows {
    use super::*;

    /// The child alone is killed, by tokio, when it is dropped.
    #[derive(Debug)]
    pub(super) struct Leash;

    impl Leash {
        pub(super) fn pid(&self) -> Option<u32> {
            None
        }

        pub(super) fn ended(&mut self, _status: ExitStatus) {}

        pub(super) async fn pull(&mut self, child: &mut Child) {
            // Gone already is as good.
            let _ = child.start_kill();
        }

        pub(super) fn cut(&mut self) {}
    }

    pub(super) async fn start(_guard: &GuardExe, launch: &Launch) -> Result<Server> {
        let child = direct(launch).spawn().map_err(|error| not_started(launch, error))?;
        Ok(Server::new(child, Leash))
    }
}
