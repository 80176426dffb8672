//! A mark on everything below a guard, by which it is found when the guard itself was killed.
//!
//! The mark is a random number in a resource limit (`RLIMIT_LOCKS`) that Linux has not enforced since 2.4.25 but still
//! hands down: across `fork`, `exec` and `setsid`, and whatever becomes of the environment. So it needs neither a
//! variable that servers would see nor a change to the process that starts them (a child-subreaper would have to reap
//! every orphan below it, of whatever origin). Only a process that resets this limit on purpose is not found.
//! Systems other than Linux have no such mark.

use std::ffi::OsStr;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    pub(super) fn random() -> Mark {
        // Below what means "unlimited", and above every limit in use.
        Mark(rand::random_range(1 << 40..1 << 62))
    }

    pub(super) fn parse(text: &OsStr) -> Option<Mark> {
        text.to_str()?.parse().ok().map(Mark)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::io;
    use rustix::process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, pidfd_send_signal, setrlimit,
    };

    use super::Mark;
    use crate::guard::tree;

    /// How long killed processes may take to end. One in uninterruptible sleep ends when it wakes.
    const KILL_TIMEOUT: Duration = Duration::from_secs(10);
    const KILL_INTERVAL: Duration = Duration::from_millis(10);

    impl Mark {
        /// Marks this process and all that it starts from now on. It fails where a hard limit is below the mark.
        pub(in crate::guard) fn put_on_this_process(self) -> io::Result<()> {
            let Rlimit { maximum, .. } = getrlimit(Resource::Locks);
            setrlimit(Resource::Locks, Rlimit { current: Some(self.0), maximum })
        }

        /// Kills every process with this mark, again and again, for one may fork meanwhile. Blocks; false when some are
        /// still there after [`KILL_TIMEOUT`].
        pub(in crate::guard) fn kill_all(self) -> bool {
            let deadline = Instant::now() + KILL_TIMEOUT;
            while tree::process_ids().filter(|&pid| self.kill(pid)).count() > 0 {
                if Instant::now() > deadline {
                    return false;
                }
                thread::sleep(KILL_INTERVAL);
            }
            true
        }

        /// Kills a process if it runs and has this mark; false if not.
        fn kill(self, pid: i32) -> bool {
            let Some(process) = Pid::from_raw(pid).filter(|_| self.is_on(pid)) else { return false };
            // Looked at again once it is held, for its number may have become that of another process.
            let held = pidfd_open(process, PidfdFlags::empty());
            if !self.is_on(pid) || !tree::is_running(pid) {
                return false;
            }
            // One that is gone already, or is not ours to signal, must not save the others.
            let _ = match held {
                Ok(held) => pidfd_send_signal(held, Signal::KILL),
                // Linux before 5.3.
                Err(io::Errno::NOSYS) => kill_process(process, Signal::KILL),
                Err(error) => Err(error),
            };
            true
        }

        fn is_on(self, pid: i32) -> bool {
            // `Max file locks            SOFT                 HARD                 locks`
            let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
            let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"));
            let soft = locks.and_then(|locks| locks.split_ascii_whitespace().next());
            soft.and_then(|soft| soft.parse().ok()) == Some(self.0)
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Mark {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(super) fn put_on_this_process(self) -> rustix::io::Result<()> {
        Ok(())
    }

    /// Nothing is marked here.
    pub(super) fn kill_all(self) -> bool {
        true
    }
}
