//! Starts servers on Unix: through the guard, or without one in a process group.
//!
//! With a guard, the child of this process is the guard, and its pid is not that of the server; the guard reports the
//! server's. Each guard has a watcher task that reads the channel to its end: if the last line is not `ended`, the
//! guard was killed or is stopped, and the watcher kills the tree by process group and mark.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Once;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use toolcrib_core::{Code, Error, Result};

use super::{GuardExe, Launch, ServerProcess, configure_command, start_error, unguarded_command};
use crate::mark::GuardMark;

/// Time between SIGTERM and SIGKILL for a server without guard.
const TERM_TO_KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for a guard to report the start of its server. The caller has its own deadline; this one covers an overloaded
/// machine.
const GUARD_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a guard to end its tree, of which it gives servers half a second. Less than [`ServerProcess::stop`] allows
/// in total.
const GUARD_END_TIMEOUT: Duration = Duration::from_secs(3);

/// Time to read what a guard that has already exited reported.
const FINAL_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// Means to end the process tree of a server.
#[derive(Debug)]
pub(super) enum ProcessTree {
    /// By a guard process.
    Guard {
        /// Closing it makes the guard end the tree.
        channel: Option<GuardChannel>,
        /// Process group of the server.
        server_pid: Option<Pid>,
        /// Task that waits for the guard, and kills the tree if the guard did not.
        watcher: Option<JoinHandle<()>>,
    },
    /// By signals to the server's process group.
    Group(Option<Pid>),
}

/// Our end of the channel to a guard. Dropping it tells the guard to end its tree.
#[derive(Debug)]
pub(super) struct GuardChannel {
    /// Never written to; its end is the message.
    _channel: OwnedWriteHalf,
    /// Notifies the watcher when dropped.
    _until_dropped: oneshot::Sender<()>,
}

impl ProcessTree {
    /// Process id of the server, if it was reported.
    pub(super) fn pid(&self) -> Option<u32> {
        let (ProcessTree::Guard { server_pid: pid, .. } | ProcessTree::Group(pid)) = self;
        pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Cleans up after the child was waited for: processes that it left behind are killed.
    pub(super) async fn finish(&mut self, status: ExitStatus) {
        match self {
            ProcessTree::Guard { channel, server_pid, watcher } => {
                // A guard that died by a signal did not clean up.
                if status.signal().is_some() {
                    kill_group(*server_pid, Signal::KILL);
                }
                drop(channel.take());
                if let Some(task) = watcher {
                    let _ = task.await;
                    *watcher = None;
                }
            }
            ProcessTree::Group(group) => kill_group(*group, Signal::KILL),
        }
    }

    /// Ends the tree with SIGTERM first, so that servers can exit cleanly.
    pub(super) async fn terminate(&mut self, child: &mut Child) {
        match self {
            ProcessTree::Guard { channel, .. } => drop(channel.take()),
            // Without a guard this process has to wait itself between the two signals.
            ProcessTree::Group(group) => {
                kill_group(*group, Signal::TERM);
                if timeout(TERM_TO_KILL_TIMEOUT, child.wait()).await.is_err() {
                    kill_group(*group, Signal::KILL);
                }
            }
        }
    }

    /// Ends the tree without waiting.
    pub(super) fn kill(&mut self) {
        match self {
            ProcessTree::Guard { channel, .. } => drop(channel.take()),
            ProcessTree::Group(group) => kill_group(*group, Signal::KILL),
        }
    }
}

/// Signals a process group.
fn kill_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Fails if the group has ended already, which is fine.
        let _ = kill_process_group(group, signal);
    }
}

/// Starts a server with or without guard.
pub(super) async fn start(guard: &GuardExe, launch: &Launch) -> Result<ServerProcess> {
    match guard {
        GuardExe::CurrentExe => start_guarded(current_binary()?, launch).await,
        GuardExe::Path(path) => start_guarded(path.clone(), launch).await,
        GuardExe::None => {
            let child =
                unguarded_command(launch).process_group(0).spawn().map_err(|error| start_error(launch, error))?;
            let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
            Ok(ServerProcess::new(child, ProcessTree::Group(group)))
        }
    }
}

/// Path of this binary. Fails if `main` does not call `run_if_requested`: such a binary would run its own program
/// again, and start servers again, instead of acting as guard.
fn current_binary() -> Result<PathBuf> {
    if !crate::can_guard() {
        let message = "this program is not prepared to guard its servers; call `toolcrib::guard::run_if_requested()` \
                       first thing in `main`, or choose `GuardExe::None`";
        return Err(Error::new(Code::Internal, message));
    }
    // On Linux this link stays valid when an update replaces the file.
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe()
        .map_err(|error| Error::new(Code::Internal, "cannot find this program's own file").with_cause(error))
}

/// Starts a server through a guard and waits for the guard's report.
async fn start_guarded(exe: PathBuf, launch: &Launch) -> Result<ServerProcess> {
    let guard_error = |error: io::Error| {
        let program = launch.program.display();
        let message = format!(
            "cannot start the guard of `{program}`; is `guard::run_if_requested()` the first line of `main`, before any runtime?"
        );
        Error::new(Code::ToolUnavailable, message).with_cause(error)
    };
    // The channel: one end for this process, the other inherited by the guard under the number in its arguments.
    let (own_end, guard_end) = std::os::unix::net::UnixStream::pair().map_err(guard_error)?;
    own_end.set_nonblocking(true).map_err(guard_error)?;
    let own_end = UnixStream::from_std(own_end).map_err(guard_error)?;
    // Only the guard's end is inherited. A process that other code starts at this very moment inherits it, too. That
    // does no harm to the guard, which waits for EOF from our end; but a killed guard is then noticed only when that
    // process has ended or this server is stopped.
    rustix::io::fcntl_setfd(&guard_end, FdFlags::empty()).map_err(|error| guard_error(error.into()))?;

    // Start the guard in a process group of its own, so that Ctrl-C does not reach it.
    let mark = GuardMark::random();
    let mut command = Command::new(exe);
    command.arg0("crib-guard").arg(crate::GUARD_ARGUMENT).arg(guard_end.as_raw_fd().to_string());
    command.arg(mark.to_string()).arg("--");
    command.arg(&launch.program).args(&launch.args).process_group(0);
    let child = configure_command(command, launch).spawn().map_err(guard_error)?;
    // Close our copy of the guard's end, or its end would never read as closed here.
    drop(guard_end);

    let (reader, writer) = own_end.into_split();
    let (until_dropped, dropped) = oneshot::channel();
    let guard_channel = GuardChannel { _channel: writer, _until_dropped: until_dropped };
    // From here on dropping `server` ends the tree, also if the caller stops waiting for the report.
    let mut server =
        ServerProcess::new(child, ProcessTree::Guard { channel: Some(guard_channel), server_pid: None, watcher: None });
    let mut channel = BufReader::new(reader);
    let report = read_start_report(&mut server.child, &mut channel).await;
    match report.as_deref().ok().and_then(|line| line.trim_end().split_once(' ')) {
        Some((status_word @ ("started" | "unmarked"), pid)) => {
            if status_word == "unmarked" {
                warn_unmarked_once();
            }
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            if let ProcessTree::Guard { server_pid, watcher, .. } = &mut server.tree {
                *server_pid = pid;
                *watcher = Some(tokio::spawn(watch_guard(channel, dropped, pid, mark)));
            }
            Ok(server)
        }
        Some(("failed", errno)) => Err(start_error(launch, io::Error::from_raw_os_error(errno.parse().unwrap_or(0)))),
        _ => {
            // A guard that is only slow ignores the signal and ends its tree when our end of the channel closes.
            // Another program ends by the signal. A guard that was killed may have started the server, so watch the
            // channel.
            if let Some(pid) = server.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, Signal::TERM);
            }
            tokio::spawn(watch_guard(channel, dropped, None, mark));
            let cause = report.err().unwrap_or_else(|| io::Error::other("the guard exited without a report"));
            Err(guard_error(cause))
        }
    }
}

/// Waits for a guard to end, and kills its tree if the guard did not: because it was killed, or is stopped. Returns
/// when the guard has ended, or at the latest [`GUARD_END_TIMEOUT`] plus the time for killing after the channel was
/// closed.
async fn watch_guard(
    mut channel: BufReader<OwnedReadHalf>,
    dropped: oneshot::Receiver<()>,
    server: Option<Pid>,
    mark: GuardMark,
) {
    let mut last_line = String::new();
    {
        let mut read = pin!(channel.read_line(&mut last_line));
        // A line or EOF from the guard, or our own end of the channel was dropped: then the guard gets a bounded time.
        tokio::select! {
            _ = &mut read => {}
            _ = dropped => {
                let _ = timeout(GUARD_END_TIMEOUT, read).await;
            }
        }
    }
    if last_line == crate::TREE_ENDED_MESSAGE {
        return;
    }
    // The guard did not confirm: kill the server's group and everything with its mark. The search reads `/proc` and
    // sleeps between rounds, so it runs on a blocking thread.
    kill_group(server, Signal::KILL);
    let all_ended = tokio::task::spawn_blocking(move || mark.kill_marked()).await;
    if !all_ended.unwrap_or(false) {
        tracing::warn!("the guard of a server was killed, and some processes of that server may not have ended");
    }
}

/// Logs once per process, since all servers are affected alike.
fn warn_unmarked_once() {
    static WARNING: Once = Once::new();
    WARNING.call_once(|| {
        tracing::warn!(
            "started servers cannot be marked (`RLIMIT_LOCKS` is 0 or must not be changed here): if a guard is killed, \
              processes of its server may remain, and may be taken for local clients that need no token"
        );
    });
}

/// Reads the guard's report: `started PID`, `unmarked PID` if the server has no mark, or `failed ERRNO`.
async fn read_start_report(guard: &mut Child, channel: &mut BufReader<OwnedReadHalf>) -> io::Result<String> {
    let mut line = String::new();
    let mut read = pin!(channel.read_line(&mut line));
    let report = timeout(GUARD_START_TIMEOUT, async {
        tokio::select! {
            read = &mut read => read,
            // If another process inherited the guard's end, there is no EOF, but the report may be in the buffer.
            _ = guard.wait() => timeout(FINAL_OUTPUT_TIMEOUT, &mut read).await?,
        }
    });
    report.await??;
    Ok(line)
}
