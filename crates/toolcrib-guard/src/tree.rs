//! Finds and signals the processes below a guard. Linux finds all descendants; other systems only the process group.

#[cfg(target_os = "linux")]
pub(super) use linux::{become_subreaper, is_running, kill_remaining, kill_with_parent, signal_tree};
#[cfg(target_os = "linux")]
pub use linux::{is_below_guard, parent_pid, process_ids};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{become_subreaper, kill_remaining, kill_with_parent, signal_tree};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Pid, Signal};

    use crate::mark;

    /// Process name of a guard. Different from Toolcrib's, so that `pkill -9 toolcrib` leaves the guard to clean up.
    const GUARD_NAME: &std::ffi::CStr = c"crib-guard";

    /// Makes this process the parent of all orphans among its descendants. Without this they would become children of
    /// `init`, and the guard would lose sight of every process that daemonises.
    pub(crate) fn become_subreaper() -> io::Result<()> {
        let _ = rustix::thread::set_name(GUARD_NAME);
        Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
    }

    /// Makes the kernel kill the child when this process dies. Covers only the child itself, for the case that the
    /// guard is killed together with Toolcrib, when no process is left that could find the rest.
    pub(crate) fn kill_with_parent(command: &mut Command) {
        let request_death_signal = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        #[expect(unsafe_code, reason = "only the new process can request this, between `fork` and `exec`")]
        // SAFETY: one system call, no allocation, no lock.
        unsafe {
            command.pre_exec(request_death_signal);
        }
    }

    /// Signals all descendants of this process.
    pub(crate) fn signal_tree(_server: Pid, signal: Signal) {
        for pid in descendants() {
            // A failure for one process (gone, or not permitted) must not spare the others.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Does nothing: on Linux no child left means no descendant left.
    pub(crate) fn kill_remaining(_server: Pid) {}

    /// All descendants of this process, from a snapshot of `/proc`.
    fn descendants() -> Vec<Pid> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, parent) in process_parents() {
            children.entry(parent).or_default().push(pid);
        }
        // From this process down the tree. Zombies are included; signals to them do no harm.
        let mut found = Vec::new();
        let mut unvisited = vec![rustix::process::getpid().as_raw_nonzero().get()];
        while let Some(parent) = unvisited.pop() {
            // Entries are removed as they are visited, so that a reused pid in an inconsistent snapshot cannot form a
            // cycle.
            for pid in children.remove(&parent).unwrap_or_default() {
                found.extend(Pid::from_raw(pid));
                unvisited.push(pid);
            }
        }
        found
    }

    /// All processes with their parents.
    fn process_parents() -> impl Iterator<Item = (i32, i32)> {
        process_ids().filter_map(|pid| Some((pid, read_stat(pid)?.parent)))
    }

    /// Ids of all visible processes, read from `/proc` as the iterator advances: a snapshot with gaps, in which a
    /// process that is started meanwhile may be missing.
    pub fn process_ids() -> impl Iterator<Item = i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// Parent of a process; `None` if the process has ended or is hidden.
    pub fn parent_pid(pid: i32) -> Option<i32> {
        read_stat(pid).map(|stat| stat.parent)
    }

    /// Whether a process exists and is no zombie.
    pub(crate) fn is_running(pid: i32) -> bool {
        read_stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    /// Whether a process was started, directly or indirectly, by a Toolcrib that did not start this process as well: it
    /// has the mark of a guard, or a guard among its ancestors. Orphans and processes in sessions of their own keep
    /// both. A process that has ended counts as below a guard, to be on the safe side.
    pub fn is_below_guard(pid: i32) -> bool {
        // The mark first: it costs one file and survives the guard. The ancestors cover servers without a mark.
        if mark::is_marked(pid).unwrap_or(true) {
            return true;
        }
        match nearest_guard(pid) {
            Ok(None) => false,
            // A Toolcrib that itself runs below a guard trusts its siblings below the same guard.
            Ok(guard) => nearest_guard(rustix::process::getpid().as_raw_nonzero().get()) != Ok(guard),
            Err(ProcessEnded) => true,
        }
    }

    /// The process ended while it was examined.
    #[derive(PartialEq, Eq)]
    struct ProcessEnded;

    /// Nearest guard among a process and its ancestors.
    fn nearest_guard(pid: i32) -> Result<Option<i32>, ProcessEnded> {
        let mut current = pid;
        let mut process = read_stat(current).ok_or(ProcessEnded)?;
        for _ in 0..MAX_ANCESTORS {
            if process.name == GUARD_NAME.to_bytes() {
                return Ok(Some(current));
            }
            if process.parent <= 1 {
                return Ok(None);
            }
            if let Some(parent) = read_stat(process.parent) {
                current = process.parent;
                process = parent;
                continue;
            }
            // The parent has ended and another process has adopted this one; or the parent is of another user and
            // hidden (`hidepid`), which a guard of this user would not be.
            let reread = read_stat(current).ok_or(ProcessEnded)?;
            if reread.parent == process.parent {
                return Ok(None);
            }
            process = reread;
        }
        Err(ProcessEnded)
    }

    /// Bound against endless loops; no process tree is this deep.
    const MAX_ANCESTORS: usize = 4_096;

    /// Fields of `/proc/PID/stat`.
    struct ProcStat {
        /// `comm`, at most 15 bytes; a process can change it.
        name: Vec<u8>,
        /// `Z` for a zombie, `X` for a dead process.
        state: char,
        /// 0 if the parent is outside of this PID namespace.
        parent: i32,
    }

    /// Reads `/proc/PID/stat`.
    fn read_stat(pid: i32) -> Option<ProcStat> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // Format: `PID (NAME) STATE PARENT …`. The name may contain anything, including parentheses.
        let name_start = stat.iter().position(|&byte| byte == b'(')? + 1;
        let name_end = stat.iter().rposition(|&byte| byte == b')')?;
        let name = stat.get(name_start..name_end)?.to_vec();
        let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
        Some(ProcStat { name, state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;
    use std::process::Command;

    use rustix::process::{Pid, Signal};

    pub(crate) fn become_subreaper() -> io::Result<()> {
        Ok(())
    }

    /// Not available on this system.
    pub(crate) fn kill_with_parent(_command: &mut Command) {}

    /// Signals the server's process group; processes that left it are not found.
    pub(crate) fn signal_tree(server: Pid, signal: Signal) {
        let _ = rustix::process::kill_process_group(server, signal);
    }

    /// Kills the rest of the group, which may outlive the server: orphans do not become children of the guard here.
    pub(crate) fn kill_remaining(server: Pid) {
        signal_tree(server, Signal::KILL);
    }
}
