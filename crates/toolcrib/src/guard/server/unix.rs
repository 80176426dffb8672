//! Starting through the guard, or without one in a process group.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use toolcrib_core::{Code, Error, Result};

use super::{GuardExe, Launch, Server, direct, not_started, prepare};

/// What is between SIGTERM and SIGKILL for a server without a guard.
const GRACE: Duration = Duration::from_millis(500);

/// For a guard's first word. The caller has a deadline of its own; this one is for a machine that hardly moves.
const SPEAK_UP: Duration = Duration::from_secs(30);

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
        let program = launch.program.display();
        let message = format!(
            "cannot start the guard of `{program}`; is `guard::run_if_asked()` the first line of `main`, before any runtime?"
        );
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
        Some(("failed", errno)) => Err(not_started(launch, io::Error::from_raw_os_error(errno.parse().unwrap_or(0)))),
        _ => {
            // A guard that is only late ignores this, and ends its tree as our end of the channel closes; a program
            // that is no guard goes.
            if let Some(pid) = server.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, Signal::TERM);
            }
            Err(broken(heard.err().unwrap_or_else(|| io::Error::other("it ended without a word"))))
        }
    }
}

/// What the guard says of its server: `started PID` or `failed ERRNO`.
async fn first_word(guard: &mut Child, channel: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    let mut read = pin!(channel.read_line(&mut line));
    let heard = timeout(SPEAK_UP, async {
        tokio::select! {
            read = &mut read => read,
            // Should a neighbour hold their end too, it will not read as ended, but what was said is there.
            _ = guard.wait() => timeout(LAST_WORD, &mut read).await?,
        }
    });
    heard.await??;
    Ok(line)
}
