//! The guard's own side: starts the server, reaps, and ends the tree when Toolcrib or the server ends.
//!
//! Two threads and no runtime. The main thread reaps until nobody is left; the other waits for the end of the channel
//! and then kills. The main thread ends the channel itself when the server exits, so there is one way to the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::mark::GuardMark;
use super::tree;

/// How long a server has between SIGTERM and SIGKILL.
const TERM_TO_KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// A process in uninterruptible sleep dies when it wakes; there is no use in waiting longer for it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

const USAGE_EXIT_CODE: i32 = 2;
const NOT_STARTED_EXIT_CODE: i32 = 127;

/// Everything from the arguments after `__guard` to the exit code.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let Some(request) = GuardArguments::parse(arguments) else {
        let _ = writeln!(io::stderr(), "`{}` is started by Toolcrib itself, never by hand", super::GUARD_ARGUMENT);
        return USAGE_EXIT_CODE;
    };
    close_all_but(request.channel);
    // Unmarked the server runs all the same, and Toolcrib warns of it: some sandboxes for containers (gVisor) let no process
    // set this limit, and no server could be started in them. While the guard lives, what it started is still known as
    // that by the guard above it.
    let is_marked = request.mark.apply_to_current_process().is_ok();
    supervise(take_channel(request.channel), &request, is_marked).unwrap_or(NOT_STARTED_EXIT_CODE)
}

struct GuardArguments {
    channel: RawFd,
    mark: GuardMark,
    program: OsString,
    arguments: Vec<OsString>,
}

impl GuardArguments {
    /// `FD MARK -- COMMAND ARGS…`
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<GuardArguments> {
        let channel = arguments.next()?.to_str()?.parse().ok().filter(|&fd: &RawFd| fd > 2)?;
        let mark = GuardMark::parse(&arguments.next()?)?;
        arguments.next().filter(|argument| argument == "--")?;
        Some(GuardArguments { channel, mark, program: arguments.next()?, arguments: arguments.collect() })
    }
}

fn supervise(channel: UnixStream, request: &GuardArguments, is_marked: bool) -> io::Result<i32> {
    rustix::io::fcntl_setfd(&channel, FdFlags::CLOEXEC)?;
    ignore_termination_signals();
    tree::become_subreaper()?;

    let server = Arc::new(OnceLock::new());
    let killer = Killer { channel: channel.try_clone()?, server: Arc::clone(&server) };
    thread::Builder::new().spawn(move || killer.run())?;

    // In a group of its own: Ctrl-C in a terminal is for Toolcrib, which ends its servers in order.
    let mut command = Command::new(&request.program);
    command.args(&request.arguments).process_group(0);
    tree::kill_with_parent(&mut command);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            send_line(&channel, format!("failed {}\n", error.raw_os_error().unwrap_or(0)));
            return Ok(NOT_STARTED_EXIT_CODE);
        }
    };
    let pid = Pid::from_child(&child);
    let _ = server.set(pid);
    // Without `/dev/null` the server still runs; only its EOF is seen later.
    let _ = release_stdio();
    let word = if is_marked { "started" } else { "unmarked" };
    send_line(&channel, format!("{word} {}\n", child.id()));

    let code = reap(pid, &channel);
    tree::kill_remaining(pid);
    send_line(&channel, super::TREE_ENDED_MESSAGE.to_owned());
    Ok(code)
}

/// In one piece. When nobody listens any more, the killer knows already.
fn send_line(mut channel: &UnixStream, line: String) {
    let _ = channel.write_all(line.as_bytes());
}

/// Reaps the server and every orphan of its tree, until there is nobody left.
fn reap(server: Pid, channel: &UnixStream) -> i32 {
    let mut code = NOT_STARTED_EXIT_CODE;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == server => {
                code = exit_code(status);
                let _ = channel.shutdown(Shutdown::Read);
            }
            Ok(_) | Err(Errno::INTR) => {}
            // No child, and as every orphan becomes our child: no descendant either.
            Err(_) => return code,
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(NOT_STARTED_EXIT_CODE)
}

/// Waits for the end of the channel, then ends the tree.
struct Killer {
    channel: UnixStream,
    server: Arc<OnceLock<Pid>>,
}

impl Killer {
    fn run(mut self) {
        self.wait_for_channel_end();
        self.signal(Signal::TERM);
        thread::sleep(TERM_TO_KILL_TIMEOUT);
        // Again and again, for a process may fork while we look. The main thread ends us when nobody is left.
        let pause = Duration::from_millis(5);
        for _ in 0..KILL_TIMEOUT.as_millis() / pause.as_millis() {
            self.signal(Signal::KILL);
            thread::sleep(pause);
        }
        std::process::exit(NOT_STARTED_EXIT_CODE);
    }

    fn wait_for_channel_end(&mut self) {
        let mut byte = [0];
        loop {
            match self.channel.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(&server) = self.server.get() {
            tree::signal_tree(server, signal);
        }
    }
}

/// The server has them now; kept open here they would hide its EOF from the other side.
fn release_stdio() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// What the process that started Toolcrib, or a neighbour in the moment of our start, left open is not for servers.
fn close_all_but(channel: RawFd) {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let open: Vec<RawFd> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|&fd| fd > 2 && fd != channel) {
        #[expect(
            unsafe_code,
            reason = "first thing in `main`, nothing owns these yet; one is the listing's, closed by now"
        )]
        // SAFETY: no value in this process refers to `fd`.
        unsafe {
            libc::close(fd);
        }
    }
}

fn take_channel(channel: RawFd) -> UnixStream {
    #[expect(unsafe_code, reason = "a descriptor that comes as a number cannot be taken over safely")]
    // SAFETY: whoever starts the guard hands this descriptor over, and nothing else here refers to it.
    let channel = unsafe { OwnedFd::from_raw_fd(channel) };
    UnixStream::from(channel)
}

/// Only the channel ends the guard. A handler that does nothing, not `SIG_IGN`, which the server would inherit.
fn ignore_termination_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGQUIT] {
        #[expect(unsafe_code, reason = "no safe way to set a signal handler without another dependency")]
        // SAFETY: the handler does nothing, so it is safe in a signal context.
        unsafe {
            libc::signal(signal, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t);
        }
    }
}
