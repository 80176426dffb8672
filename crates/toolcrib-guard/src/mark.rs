//! A mark on all processes below a guard, by which they are found if the guard itself was killed.
//!
//! The mark is a random number in a resource limit (`RLIMIT_LOCKS`) that Linux has not enforced since 2.4.25 but still
//! inherits across `fork`, `exec` and `setsid`, independent of the environment. So it needs no variable that servers
//! would see, and no subreaper in Toolcrib itself, which would have to reap every orphan of the embedding program. The
//! hard limit is lowered too, which only a privileged process can undo. A process that lowers it further is not found
//! by its mark, but still recognised as being below a guard. Other systems have no such mark.

use std::ffi::OsStr;
use std::fmt;

/// Random number that identifies the process tree of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuardMark(u64);

impl GuardMark {
    /// New mark for a server started by this process.
    pub(super) fn random() -> GuardMark {
        #[cfg(target_os = "linux")]
        let limit = linux::own_hard_limit();
        #[cfg(not(target_os = "linux"))]
        let limit = None;
        GuardMark::random_below(limit)
    }

    /// Random mark below `limit`, the current hard limit of this process, since a limit can only be lowered. If this
    /// process is itself below the guard of another Toolcrib, that limit is the other mark. The range lies above limits
    /// in practical use and below "unlimited"; only a limit of 0 leaves no room.
    fn random_below(limit: Option<u64>) -> GuardMark {
        const MIN_MARK: u64 = 1 << 40;
        const MAX_MARK: u64 = 1 << 62;
        // At least 1, so that the range below is not empty. With a limit of 0 the mark equals the limit, which
        // `apply_to_current_process` refuses.
        let max = limit.map_or(MAX_MARK, |limit| limit.clamp(1, MAX_MARK));
        GuardMark(rand::random_range(MIN_MARK.min(max / 2)..max))
    }

    /// Parses the command line argument of the guard.
    pub(super) fn parse(text: &OsStr) -> Option<GuardMark> {
        text.to_str()?.parse().ok().map(GuardMark)
    }
}

impl fmt::Display for GuardMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::is_marked;

#[cfg(target_os = "linux")]
mod linux {
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::io;
    use rustix::process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, pidfd_send_signal, setrlimit,
    };

    use super::GuardMark;
    use crate::tree;

    /// Time for killed processes to end. A process in uninterruptible sleep ends only when it wakes.
    const MARKED_PROCESSES_KILL_TIMEOUT: Duration = Duration::from_secs(10);
    /// Interval between kill rounds. Each round reads `/proc` once per process of the machine.
    const KILL_INTERVAL: Duration = Duration::from_millis(10);
    /// Limits up to this value may be in use by unrelated processes, so a mark in this range must not kill anything.
    const MAX_COMMON_LIMIT: u64 = u32::MAX as u64;

    impl GuardMark {
        /// Marks this process and all its future children. Fails if the hard limit leaves no room for the mark, and in
        /// sandboxes that forbid changing limits.
        pub(crate) fn apply_to_current_process(self) -> io::Result<()> {
            // The limit is 0, and so is the mark: it would not tell this tree from its parent's.
            if own_hard_limit() == Some(self.0) {
                return Err(io::Errno::INVAL);
            }
            setrlimit(Resource::Locks, Rlimit { current: Some(self.0), maximum: Some(self.0) })
        }

        /// Kills all processes with this mark, repeatedly, because one may fork meanwhile. Blocks. Returns false if
        /// some are left after [`MARKED_PROCESSES_KILL_TIMEOUT`], or if unrelated processes may have the same limit.
        pub(crate) fn kill_marked(self) -> bool {
            if self.0 <= MAX_COMMON_LIMIT {
                return false;
            }
            let deadline = Instant::now() + MARKED_PROCESSES_KILL_TIMEOUT;
            while tree::process_ids().filter(|&pid| self.kill_if_marked(pid)).count() > 0 {
                if Instant::now() > deadline {
                    return false;
                }
                thread::sleep(KILL_INTERVAL);
            }
            true
        }

        /// Kills a process if it is running and has this mark. Returns whether it was.
        fn kill_if_marked(self, pid: i32) -> bool {
            let Some(process) = Pid::from_raw(pid).filter(|_| self.is_on_process(pid)) else { return false };
            // Open a pidfd, then check again: the pid may have been reused before.
            let pidfd = pidfd_open(process, PidfdFlags::empty());
            if !self.is_on_process(pid) || !tree::is_running(pid) {
                return false;
            }
            // The signal goes to the process that the pidfd was opened for, even if its pid is reused now.
            // A failure for one process (gone, or not permitted) must not spare the others.
            let _ = match pidfd {
                Ok(pidfd) => pidfd_send_signal(pidfd, Signal::KILL),
                // Linux before 5.3.
                Err(io::Errno::NOSYS) => kill_process(process, Signal::KILL),
                Err(error) => Err(error),
            };
            true
        }

        /// Whether a process has this mark.
        fn is_on_process(self, pid: i32) -> bool {
            hard_limit(pid) == Some(HardLimit::Limited(self.0))
        }
    }

    /// Whether a process has a mark, or a lowered remainder of one, that this process does not have itself. `None` if
    /// the process has ended.
    pub(crate) fn is_marked(pid: i32) -> Option<bool> {
        match hard_limit(pid)? {
            HardLimit::Unlimited => Some(false),
            HardLimit::Limited(limit) => Some(own_hard_limit() != Some(limit)),
        }
    }

    /// Hard limit of this process; `None` if unlimited.
    pub(super) fn own_hard_limit() -> Option<u64> {
        getrlimit(Resource::Locks).maximum
    }

    /// Hard limit on file locks of another process.
    #[derive(PartialEq, Eq)]
    enum HardLimit {
        Unlimited,
        Limited(u64),
    }

    /// Reads the hard limit of a process. `None` if the process has ended or its limits are not readable.
    fn hard_limit(pid: i32) -> Option<HardLimit> {
        // `Max file locks            SOFT                 HARD                 locks`
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
        match locks.split_ascii_whitespace().nth(1)? {
            "unlimited" => Some(HardLimit::Unlimited),
            limit => limit.parse().ok().map(HardLimit::Limited),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl GuardMark {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(super) fn apply_to_current_process(self) -> rustix::io::Result<()> {
        Ok(())
    }

    /// No process has a mark on this system.
    pub(super) fn kill_marked(self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_below_the_limit_of_its_process() {
        for limit in [1, 2, 7, 1_024, u64::from(u32::MAX), 1 << 40, (1 << 40) + 1, 1 << 50, 1 << 62, u64::MAX - 1] {
            for _ in 0..100 {
                let GuardMark(mark) = GuardMark::random_below(Some(limit));
                assert!(mark < limit, "{mark} {limit}");
            }
        }
        assert!(GuardMark::random_below(None).0 >= 1 << 40);
        assert_eq!(GuardMark::random_below(Some(0)), GuardMark(0), "which no process is marked with");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_mark_that_may_be_a_common_limit_kills_nothing() {
        let limited = "ulimit -x 1000; exec sleep 600";
        let mut other = std::process::Command::new("bash").args(["-c", limited]).spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        while is_marked(pid) != Some(true) {
            std::thread::yield_now();
        }
        assert!(!GuardMark(1_000).kill_marked());
        assert!(other.try_wait().unwrap().is_none(), "it runs");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
