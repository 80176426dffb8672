//! The guard: a small process between Toolcrib and a server it started, so that the server's whole tree ends when
//! Toolcrib ends, however it ends.
//!
//! It is the same binary under a hidden first argument, so [`run_if_asked`] must be the first line of `main`. On Linux
//! the guard is a child-subreaper: whatever the server's processes do (double forks, `setsid`), orphans become the
//! guard's children and are found. The channel between the two is a socket pair: the guard says whether the server
//! started and when the tree has ended, and when its end reads EOF it ends the tree.
//!
//! A guard that is itself killed, or stopped, ends nothing. Toolcrib sees that by the channel and kills the tree, which
//! it finds by a mark (`mark.rs`). When Toolcrib and the guard are killed at once, the kernel kills the server alone.

pub(crate) mod environment;
mod server_process;

#[cfg(unix)]
mod mark;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod tree;

use std::sync::atomic::{AtomicBool, Ordering};

pub use environment::clean_env;
pub use server_process::{GuardExe, Launch, ServerProcess};

#[cfg(target_os = "linux")]
pub(crate) use tree::{is_below_guard, parent_pid, process_ids};

/// The first argument that makes a binary the guard: `__guard FD MARK -- COMMAND ARGS…`.
#[cfg(unix)]
const GUARD_ARGUMENT: &str = "__guard";

/// The guard's last word, once nothing is left of the tree. An end without it is that of a guard that was killed.
#[cfg(unix)]
const TREE_ENDED_MESSAGE: &str = "ended\n";

static CAN_GUARD: AtomicBool = AtomicBool::new(false);

/// Becomes the guard and never returns when this process was started as one; otherwise returns at once.
///
/// Call it first thing in `main`, before any thread or runtime exists. A binary that never calls it starts its servers
/// without a guard ([`GuardExe::None`]).
pub fn run_if_asked() {
    CAN_GUARD.store(true, Ordering::Relaxed);
    #[cfg(unix)]
    if std::env::args_os().nth(1).is_some_and(|argument| argument == GUARD_ARGUMENT) {
        std::process::exit(process::run(std::env::args_os().skip(2)));
    }
}

/// Whether this binary can be its own guard.
fn can_guard() -> bool {
    CAN_GUARD.load(Ordering::Relaxed)
}
