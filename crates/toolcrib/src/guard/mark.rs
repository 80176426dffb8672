//! A mark on everything below a guard, by which it is found when the guard itself was killed.
//!
//! The mark is a random number in a resource limit (`RLIMIT_LOCKS`) that Linux has not enforced since 2.4.25 but still
//! hands down: across `fork`, `exec` and `setsid`, and whatever becomes of the environment. So it needs neither a
//! variable that servers would see nor a change to the process that starts them (a child-subreaper would have to reap
//! every orphan below it, of whatever origin). The hard limit is lowered too, which only a process with privileges can
//! raise again: one that lowers it further is not found by its mark, and still seen to be below a guard.
//! Systems other than Linux have no such mark.

use std::ffi::OsStr;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuardMark(u64);

impl GuardMark {
    /// A mark for what this process starts.
    pub(super) fn random() -> GuardMark {
        #[cfg(target_os = "linux")]
        let limit = linux::own_hard_limit();
        #[cfg(not(target_os = "linux"))]
        let limit = None;
        GuardMark::random_below(limit)
    }

    /// Below what means "unlimited", and above every limit in use. Where this process has a limit, which below a guard of
    /// another Toolcrib is that one's mark, it is less than that, for the limit can only be lowered. Only a limit of 0
    /// leaves no room for a mark.
    fn random_below(limit: Option<u64>) -> GuardMark {
        const MIN_MARK: u64 = 1 << 40;
        const MAX_MARK: u64 = 1 << 62;
        let max = limit.map_or(MAX_MARK, |limit| limit.clamp(1, MAX_MARK));
        GuardMark(rand::random_range(MIN_MARK.min(max / 2)..max))
    }

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
    use crate::guard::tree;

    /// How long killed processes may take to end. One in uninterruptible sleep ends when it wakes.
    const KILL_TIMEOUT: Duration = Duration::from_secs(10);
    const KILL_INTERVAL: Duration = Duration::from_millis(10);
    /// Up to here processes that have nothing to do with Toolcrib may have the same limit, and two servers the same mark.
    const MAX_COMMON_LIMIT: u64 = u32::MAX as u64;

    impl GuardMark {
        /// Marks this process and all that it starts from now on. It fails where a hard limit leaves no room for the
        /// mark, and in sandboxes that let no limit be set.
        pub(in crate::guard) fn apply_to_current_process(self) -> io::Result<()> {
            if own_hard_limit() == Some(self.0) {
                return Err(io::Errno::INVAL);
            }
            setrlimit(Resource::Locks, Rlimit { current: Some(self.0), maximum: Some(self.0) })
        }

        /// Kills every process with this mark, again and again, for one may fork meanwhile. Blocks; false when some are
        /// still there after [`KILL_TIMEOUT`]. A mark that other processes may have by chance kills none.
        pub(in crate::guard) fn kill_marked(self) -> bool {
            if self.0 <= MAX_COMMON_LIMIT {
                return false;
            }
            let deadline = Instant::now() + KILL_TIMEOUT;
            while tree::process_ids().filter(|&pid| self.kill_if_marked(pid)).count() > 0 {
                if Instant::now() > deadline {
                    return false;
                }
                thread::sleep(KILL_INTERVAL);
            }
            true
        }

        /// Kills a process if it runs and has this mark; false if not.
        fn kill_if_marked(self, pid: i32) -> bool {
            let Some(process) = Pid::from_raw(pid).filter(|_| self.is_on_process(pid)) else { return false };
            // Looked at again once it is held, for its number may have become that of another process.
            let held = pidfd_open(process, PidfdFlags::empty());
            if !self.is_on_process(pid) || !tree::is_running(pid) {
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

        fn is_on_process(self, pid: i32) -> bool {
            hard_limit(pid) == Some(HardLimit::Limited(self.0))
        }
    }

    /// Whether a process carries a mark, or what one became, that this process does not carry itself. `None` for one that
    /// has ended.
    pub(in crate::guard) fn is_marked(pid: i32) -> Option<bool> {
        match hard_limit(pid)? {
            HardLimit::Unlimited => Some(false),
            HardLimit::Limited(limit) => Some(own_hard_limit() != Some(limit)),
        }
    }

    pub(super) fn own_hard_limit() -> Option<u64> {
        getrlimit(Resource::Locks).maximum
    }

    #[derive(PartialEq, Eq)]
    enum HardLimit {
        Unlimited,
        Limited(u64),
    }

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
    pub(super) fn put_on_this_process(self) -> rustix::io::Result<()> {
        Ok(())
    }

    /// Nothing is marked here.
    pub(super) fn kill_all(self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_below_the_limit_of_the_process_that_makes_it() {
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
    fn a_mark_that_others_may_have_kills_none() {
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
