//! Starting through the guard, or without one in a process group.

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
use crate::guard::mark::GuardMark;

/// What is between SIGTERM and SIGKILL for a server without a guard.
const TERM_TO_KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// For a guard's first word. The caller has a deadline of its own; this one is for a machine that hardly moves.
const GUARD_START_TIMEOUT: Duration = Duration::from_secs(30);

/// For a guard to end its tree; it gives servers half a second. Below what [`Server::stop`] allows for all of it.
const GUARD_END_TIMEOUT: Duration = Duration::from_secs(3);

/// For what a guard that has ended already said.
const FINAL_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// What ends the tree.
#[derive(Debug)]
pub(super) enum ProcessTree {
    Guard {
        /// The guard ends the tree when this closes.
        channel: Option<GuardChannel>,
        server_pid: Option<Pid>,
        /// Waits for the end of the guard, and ends the tree where the guard did not.
        watcher: Option<JoinHandle<()>>,
    },
    Group(Option<Pid>),
}

/// What a guard is held by, until it is dropped.
#[derive(Debug)]
pub(super) struct GuardChannel {
    _channel: OwnedWriteHalf,
    /// Tells the watch.
    _until_dropped: oneshot::Sender<()>,
}

impl ProcessTree {
    pub(super) fn pid(&self) -> Option<u32> {
        let (ProcessTree::Guard { server_pid: pid, .. } | ProcessTree::Group(pid)) = self;
        pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// After the child was waited for.
    pub(super) async fn finish(&mut self, status: ExitStatus) {
        match self {
            ProcessTree::Guard { channel: hold, server_pid: server, watcher: watch } => {
                if status.signal().is_some() {
                    kill_group(*server, Signal::KILL);
                }
                drop(hold.take());
                if let Some(watching) = watch {
                    let _ = watching.await;
                    *watch = None;
                }
            }
            ProcessTree::Group(group) => kill_group(*group, Signal::KILL),
        }
    }

    /// Ends the tree, with the chance to leave in order.
    pub(super) async fn terminate(&mut self, child: &mut Child) {
        match self {
            ProcessTree::Guard { channel: hold, .. } => drop(hold.take()),
            ProcessTree::Group(group) => {
                kill_group(*group, Signal::TERM);
                if timeout(TERM_TO_KILL_TIMEOUT, child.wait()).await.is_err() {
                    kill_group(*group, Signal::KILL);
                }
            }
        }
    }

    /// Ends the tree at once, without waiting.
    pub(super) fn kill(&mut self) {
        match self {
            ProcessTree::Guard { channel: hold, .. } => drop(hold.take()),
            ProcessTree::Group(group) => kill_group(*group, Signal::KILL),
        }
    }
}

fn kill_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Gone already is as good.
        let _ = kill_process_group(group, signal);
    }
}

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

/// A binary that does not know it is the guard would start all over again, and its servers too.
fn current_binary() -> Result<PathBuf> {
    if !crate::guard::can_guard() {
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

async fn start_guarded(exe: PathBuf, launch: &Launch) -> Result<ServerProcess> {
    let broken = |error: io::Error| {
        let program = launch.program.display();
        let message = format!(
            "cannot start the guard of `{program}`; is `guard::run_if_asked()` the first line of `main`, before any runtime?"
        );
        Error::new(Code::ToolUnavailable, message).with_cause(error)
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(broken)?;
    ours.set_nonblocking(true).map_err(broken)?;
    let ours = UnixStream::from_std(ours).map_err(broken)?;
    // Only their end is inherited. A process that is started in this very moment by other code inherits it too. The
    // guard does not mind, for it waits for the end of ours; but that the guard was killed then shows only when that
    // process has ended, or when this server is stopped.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| broken(error.into()))?;

    let mark = GuardMark::random();
    let mut command = Command::new(exe);
    command.arg0("crib-guard").arg(crate::guard::GUARD_ARGUMENT).arg(theirs.as_raw_fd().to_string());
    command.arg(mark.to_string()).arg("--");
    command.arg(&launch.program).args(&launch.args).process_group(0);
    let child = configure_command(command, launch).spawn().map_err(broken)?;
    drop(theirs);

    let (reader, writer) = ours.into_split();
    let (until_dropped, dropped) = oneshot::channel();
    let hold = GuardChannel { _channel: writer, _until_dropped: until_dropped };
    let mut server =
        ServerProcess::new(child, ProcessTree::Guard { channel: Some(hold), server_pid: None, watcher: None });
    let mut channel = BufReader::new(reader);
    let heard = read_start_report(&mut server.child, &mut channel).await;
    match heard.as_deref().ok().and_then(|line| line.trim_end().split_once(' ')) {
        Some((word @ ("started" | "unmarked"), pid)) => {
            if word == "unmarked" {
                warn_unmarked_once();
            }
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            if let ProcessTree::Guard { server_pid: server, watcher: watch, .. } = &mut server.tree {
                *server = pid;
                *watch = Some(tokio::spawn(watch_guard(channel, dropped, pid, mark)));
            }
            Ok(server)
        }
        Some(("failed", errno)) => Err(start_error(launch, io::Error::from_raw_os_error(errno.parse().unwrap_or(0)))),
        _ => {
            // A guard that is only late ignores this, and ends its tree as our end of the channel closes; a program
            // that is no guard goes. One that was killed may have started the server before.
            if let Some(pid) = server.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, Signal::TERM);
            }
            tokio::spawn(watch_guard(channel, dropped, None, mark));
            Err(broken(heard.err().unwrap_or_else(|| io::Error::other("it ended without a word"))))
        }
    }
}

/// Waits for a guard to end, and ends its tree where the guard did not: it was killed, or does not move. Ends with the
/// guard, or at the latest [`GUARD_TIMEOUT`] after it was told to end, and what killing takes.
async fn watch_guard(
    mut channel: BufReader<OwnedReadHalf>,
    dropped: oneshot::Receiver<()>,
    server: Option<Pid>,
    mark: GuardMark,
) {
    let mut last = String::new();
    {
        let mut read = pin!(channel.read_line(&mut last));
        tokio::select! {
            _ = &mut read => {}
            _ = dropped => {
                let _ = timeout(GUARD_END_TIMEOUT, read).await;
            }
        }
    }
    if last == crate::guard::TREE_ENDED_MESSAGE {
        return;
    }
    kill_group(server, Signal::KILL);
    let all_ended = tokio::task::spawn_blocking(move || mark.kill_marked()).await;
    if !all_ended.unwrap_or(false) {
        tracing::warn!("the guard of a server was killed, and some processes of that server may not have ended");
    }
}

/// Every server of this process is in the same situation.
fn warn_unmarked_once() {
    static WARNING: Once = Once::new();
    WARNING.call_once(|| {
        tracing::warn!(
            "the servers that are started cannot be marked (`RLIMIT_LOCKS` is 0 or may not be set here): if a guard is \
             killed, processes of its server may remain, and may be taken for local clients that need no token"
        );
    });
}

/// What the guard says of its server: `started PID`, `unmarked PID` for one that was started without a mark, or
/// `failed ERRNO`.
async fn read_start_report(guard: &mut Child, channel: &mut BufReader<OwnedReadHalf>) -> io::Result<String> {
    let mut line = String::new();
    let mut read = pin!(channel.read_line(&mut line));
    let heard = timeout(GUARD_START_TIMEOUT, async {
        tokio::select! {
            read = &mut read => read,
            // Should a neighbour hold their end too, it will not read as ended, but what was said is there.
            _ = guard.wait() => timeout(FINAL_OUTPUT_TIMEOUT, &mut read).await?,
        }
    });
    heard.await??;
    Ok(line)
}
