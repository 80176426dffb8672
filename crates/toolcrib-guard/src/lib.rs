//! The guard: a small process between Toolcrib and a server that it started. It ends the server's whole process tree
//! when Toolcrib ends, even by SIGKILL.
//!
//! The guard is the same binary with a hidden first argument, so [`run_if_requested`] must be the first line of `main`.
//! On Linux it is a child subreaper: processes that daemonise (double fork, `setsid`) become its children and are
//! found. A socket pair connects both: the guard reports whether the server started and when the tree has ended, and it
//! ends the tree when its end of the channel reads EOF.
//!
//! A guard that is killed or stopped cannot clean up. Toolcrib detects that through the channel and kills the tree,
//! which it finds by a mark on its processes (`mark.rs`). If Toolcrib and the guard are killed together, the kernel
//! kills only the server process itself.
//!
//! ```text
//! toolcrib ──socket pair──▶ crib-guard (subreaper) ──▶ server ──▶ its children, also after a double fork
//!          ◀── "started PID", "ended" ──┘
//! ```
//!
//! Pipes do not pass through the guard: the server inherits stdin, stdout and stderr, and the guard gives up its
//! copies. Tried with servers that fork, double fork and call `setsid`, and with SIGKILL for Toolcrib: a process group
//! alone leaves all of them, the kernel's parent-death signal all but the child, a guard that is no subreaper leaves
//! the daemons; the subreaper leaves none.

mod server_process;

#[cfg(unix)]
mod mark;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod tree;

mod environment;

pub use environment::{XDG_DIRECTORIES, clean_env};
pub use server_process::{GuardExe, Launch, ServerProcess};
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_os = "linux")]
pub use tree::{is_below_guard, parent_pid, process_ids};

/// First argument that makes a binary the guard: `__guard FD MARK -- COMMAND ARGS…`.
#[cfg(unix)]
const GUARD_ARGUMENT: &str = "__guard";

/// Last message of the guard, sent when no process of the tree is left. If it is missing, the guard was killed.
#[cfg(unix)]
const TREE_ENDED_MESSAGE: &str = "ended\n";

/// Set by [`run_if_requested`]: this binary becomes a guard when started with the hidden argument.
static CAN_GUARD: AtomicBool = AtomicBool::new(false);

/// Becomes the guard and never returns if this process was started as one; otherwise returns at once.
///
/// Call it first thing in `main`, before any thread or runtime exists. A binary that never calls it starts its servers
/// without a guard ([`GuardExe::None`]).
pub fn run_if_requested() {
    CAN_GUARD.store(true, Ordering::Relaxed);
    #[cfg(unix)]
    if std::env::args_os().nth(1).is_some_and(|argument| argument == GUARD_ARGUMENT) {
        std::process::exit(process::run(std::env::args_os().skip(2)));
    }
}

/// Whether this binary can act as its own guard.
fn can_guard() -> bool {
    CAN_GUARD.load(Ordering::Relaxed)
}
