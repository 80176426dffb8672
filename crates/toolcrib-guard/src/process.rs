//! Main program of the guard process: starts the server, reaps its processes, and ends the tree when Toolcrib or the
//! server ends.
//!
//! Two threads and no async runtime. The main thread reaps until no child is left; the other waits for EOF on the
//! channel and then kills. When the server exits, the main thread shuts the channel down itself, so there is one
//! cleanup path.
//!
//! The order of the end: TERM to the whole tree, half a second, then KILL every 5 ms for ten seconds at most. A line on
//! the channel tells Toolcrib the outcome of the start (`started PID`, `unmarked PID`, `failed ERRNO`) and the end
//! (`ended`). The guard's exit code is that of the server.

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

/// Time between SIGTERM and SIGKILL for a server.
const TERM_TO_KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for killed processes to end. A process in uninterruptible sleep ends only when it wakes, so waiting longer is
/// useless.
const SERVER_KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Exit code for invalid arguments.
const USAGE_EXIT_CODE: i32 = 2;
/// Exit code if the server was not started, as shells use it.
const NOT_STARTED_EXIT_CODE: i32 = 127;

/// Runs the guard with the arguments after `__guard` and returns its exit code.
pub(super) fn run(command_line: impl Iterator<Item = OsString>) -> i32 {
    let Some(arguments) = GuardArguments::parse(command_line) else {
        let _ = writeln!(io::stderr(), "`{}` is started by Toolcrib itself, never by hand", super::GUARD_ARGUMENT);
        return USAGE_EXIT_CODE;
    };
    // Before the channel is taken over and before any thread: nothing in this process owns a descriptor yet.
    close_all_but(arguments.channel);
    // Without a mark the server runs all the same, and Toolcrib warns: some container sandboxes (gVisor) do not let a
    // process set this limit. While the guard lives, its descendants are recognised by the guard among their ancestors.
    let is_marked = arguments.mark.apply_to_current_process().is_ok();
    supervise(take_channel(arguments.channel), &arguments, is_marked).unwrap_or(NOT_STARTED_EXIT_CODE)
}

/// Command line of the guard.
struct GuardArguments {
    /// File descriptor of the channel to Toolcrib.
    channel: RawFd,
    /// Chosen by Toolcrib, which must know it to find the tree without the guard.
    mark: GuardMark,
    /// Name or path of the server.
    program: OsString,
    /// Arguments of the server.
    arguments: Vec<OsString>,
}

impl GuardArguments {
    /// Parses `FD MARK -- COMMAND ARGS…`.
    fn parse(mut command_line: impl Iterator<Item = OsString>) -> Option<GuardArguments> {
        let channel = command_line.next()?.to_str()?.parse().ok().filter(|&fd: &RawFd| fd > 2)?;
        let mark = GuardMark::parse(&command_line.next()?)?;
        command_line.next().filter(|argument| argument == "--")?;
        Some(GuardArguments { channel, mark, program: command_line.next()?, arguments: command_line.collect() })
    }
}

/// Starts the server and waits until its whole tree has ended. Returns the server's exit code.
fn supervise(channel: UnixStream, arguments: &GuardArguments, is_marked: bool) -> io::Result<i32> {
    // The server must not inherit the channel: Toolcrib would see no EOF while any of its processes lives.
    rustix::io::fcntl_setfd(&channel, FdFlags::CLOEXEC)?;
    ignore_termination_signals();
    tree::become_subreaper()?;

    // Start the killer first: Toolcrib may end while the server is being started.
    let server = Arc::new(OnceLock::new());
    let killer = Killer { channel: channel.try_clone()?, server: Arc::clone(&server) };
    thread::Builder::new().spawn(move || killer.run())?;

    // In its own process group: Ctrl-C in a terminal is for Toolcrib, which ends its servers in order.
    let mut command = Command::new(&arguments.program);
    command.args(&arguments.arguments).process_group(0);
    tree::kill_with_parent(&mut command);
    // Report a failed start with its error number, from which Toolcrib builds the message.
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            send_line(&channel, format!("failed {}\n", error.raw_os_error().unwrap_or(0)));
            return Ok(NOT_STARTED_EXIT_CODE);
        }
    };
    // From here on the killer signals the tree; before, there was nothing to signal.
    let pid = Pid::from_child(&child);
    let _ = server.set(pid);
    // Failing to open `/dev/null` only delays the EOF that Toolcrib sees.
    let _ = release_stdio();
    let status_word = if is_marked { "started" } else { "unmarked" };
    send_line(&channel, format!("{status_word} {}\n", child.id()));

    // Blocks until no child is left. Then report the end, so that Toolcrib knows that nothing has to be killed.
    let code = reap(pid, &channel);
    tree::kill_remaining(pid);
    send_line(&channel, super::TREE_ENDED_MESSAGE.to_owned());
    Ok(code)
}

/// Sends a line. A closed channel is ignored: the killer has noticed it, too.
fn send_line(mut channel: &UnixStream, line: String) {
    let _ = channel.write_all(line.as_bytes());
}

/// Reaps the server and all orphans of its tree until no child is left. Returns the server's exit code.
fn reap(server: Pid, channel: &UnixStream) -> i32 {
    let mut code = NOT_STARTED_EXIT_CODE;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == server => {
                code = exit_code(status);
                // EOF on our own end starts the killer for the rest of the tree.
                let _ = channel.shutdown(Shutdown::Read);
            }
            Ok(_) | Err(Errno::INTR) => {}
            // No child left. Orphans become our children, so there is no descendant either.
            Err(_) => return code,
        }
    }
}

/// Exit code of a process, 128 + n after signal n, as shells report it.
fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(NOT_STARTED_EXIT_CODE)
}

/// Waits for EOF on the channel, then ends the tree.
struct Killer {
    channel: UnixStream,
    /// Set once the server was started.
    server: Arc<OnceLock<Pid>>,
}

impl Killer {
    fn run(mut self) {
        self.wait_for_channel_end();
        // Servers that exit by themselves on EOF or TERM can write their state; the others get no more time than this.
        self.signal(Signal::TERM);
        thread::sleep(TERM_TO_KILL_TIMEOUT);
        // Repeatedly, because a process may fork meanwhile. The main thread exits when no process is left.
        let interval = Duration::from_millis(5);
        for _ in 0..SERVER_KILL_TIMEOUT.as_millis() / interval.as_millis() {
            self.signal(Signal::KILL);
            thread::sleep(interval);
        }
        // Processes that KILL does not end are in uninterruptible sleep. Without the final line Toolcrib tries once
        // more.
        std::process::exit(NOT_STARTED_EXIT_CODE);
    }

    /// Blocks until the channel is closed by either side.
    fn wait_for_channel_end(&mut self) {
        let mut byte = [0];
        loop {
            match self.channel.read(&mut byte) {
                Ok(0) => return,
                // Toolcrib sends nothing; anything else is ignored.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Signals the whole tree, if the server was started.
    fn signal(&self, signal: Signal) {
        if let Some(&server) = self.server.get() {
            tree::signal_tree(server, signal);
        }
    }
}

/// Replaces stdin, stdout and stderr by `/dev/null`. The server owns them now; open copies would hide its EOF.
fn release_stdio() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Closes inherited descriptors, which may belong to the parent of Toolcrib or leak from a concurrent fork: servers
/// must not get them.
fn close_all_but(channel: RawFd) {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let open_fds: Vec<RawFd> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open_fds.into_iter().filter(|&fd| fd > 2 && fd != channel) {
        #[expect(
            unsafe_code,
            reason = "first thing in `main`, nothing owns these yet; one belongs to the closed directory listing"
        )]
        // SAFETY: no value in this process refers to `fd`.
        unsafe {
            libc::close(fd);
        }
    }
}

/// Takes ownership of the inherited channel descriptor.
fn take_channel(channel: RawFd) -> UnixStream {
    #[expect(unsafe_code, reason = "there is no safe way to take over a descriptor passed as a number")]
    // SAFETY: the parent passes this descriptor to the guard alone, and nothing else in this process refers to it.
    let channel = unsafe { OwnedFd::from_raw_fd(channel) };
    UnixStream::from(channel)
}

/// Installs empty handlers, so that only the channel ends the guard. Not `SIG_IGN`, which the server would inherit.
fn ignore_termination_signals() {
    extern "C" fn ignore_signal(_: libc::c_int) {}
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGQUIT] {
        #[expect(unsafe_code, reason = "no safe way to set a signal handler without another dependency")]
        // SAFETY: the handler does nothing, so it is safe in a signal context.
        unsafe {
            libc::signal(signal, ignore_signal as extern "C" fn(libc::c_int) as libc::sighandler_t);
        }
    }
}
