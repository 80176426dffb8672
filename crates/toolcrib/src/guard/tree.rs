//! Finding and signalling the processes under the guard. Linux finds all of them; other systems know the group only.

#[cfg(target_os = "linux")]
pub(super) use linux::{become_subreaper, is_running, kill_remaining, kill_with_parent, signal_tree};
#[cfg(target_os = "linux")]
pub(crate) use linux::{is_below_guard, parent_pid, process_ids};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{die_with_this_process, finish, gather, signal};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Pid, Signal};

    use crate::guard::mark;

    /// The name of a guard's process. Not Toolcrib's: `pkill -9 toolcrib` should leave the one that cleans up.
    const GUARD_NAME: &std::ffi::CStr = c"crib-guard";

    /// From here on every orphan below us becomes our child.
    pub(in crate::guard) fn become_subreaper() -> io::Result<()> {
        let _ = rustix::thread::set_name(GUARD_NAME);
        Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
    }

    /// Has the kernel kill the child with this process. Its own children are not killed by that: it is for a guard that
    /// is killed together with Toolcrib, when nothing is left that could find them.
    pub(in crate::guard) fn kill_with_parent(command: &mut Command) {
        let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        #[expect(unsafe_code, reason = "only the new process can ask for this, between `fork` and `exec`")]
        // SAFETY: one system call, no allocation, no lock.
        unsafe {
            command.pre_exec(ask);
        }
    }

    /// Signals every descendant.
    pub(in crate::guard) fn signal_tree(_server: Pid, signal: Signal) {
        for pid in descendants() {
            // One that is gone already, or is not ours to signal, must not save the others.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Nothing to do: no child left means no descendant left.
    pub(in crate::guard) fn kill_remaining(_server: Pid) {}

    fn descendants() -> Vec<Pid> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, parent) in process_parents() {
            children.entry(parent).or_default().push(pid);
        }
        let mut found = Vec::new();
        let mut unvisited = vec![rustix::process::getpid().as_raw_nonzero().get()];
        while let Some(parent) = unvisited.pop() {
            // Removed as it is visited, so that a listing torn by a reused pid cannot make a circle.
            for pid in children.remove(&parent).unwrap_or_default() {
                found.extend(Pid::from_raw(pid));
                unvisited.push(pid);
            }
        }
        found
    }

    /// Each process and its parent.
    fn process_parents() -> impl Iterator<Item = (i32, i32)> {
        process_ids().filter_map(|pid| Some((pid, read_stat(pid)?.parent)))
    }

    pub(crate) fn process_ids() -> impl Iterator<Item = i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// `None` for a process that has ended, or may not be seen.
    pub(crate) fn parent_pid(pid: i32) -> Option<i32> {
        read_stat(pid).map(|stat| stat.parent)
    }

    /// Whether a process is there and has not ended; one that has may still wait to be reaped.
    pub(in crate::guard) fn is_running(pid: i32) -> bool {
        read_stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    /// Whether a process was started by a Toolcrib, directly or not, that did not start this process too: it carries the
    /// mark of a guard, or has a guard above it. A process that starts orphans or sessions of its own keeps both. One that
    /// has ended counts as below a guard.
    pub(crate) fn is_below_guard(pid: i32) -> bool {
        if mark::is_marked(pid).unwrap_or(true) {
            return true;
        }
        match nearest_guard(pid) {
            Ok(None) => false,
            Ok(guard) => nearest_guard(rustix::process::getpid().as_raw_nonzero().get()) != Ok(guard),
            Err(ProcessEnded) => true,
        }
    }

    #[derive(PartialEq, Eq)]
    struct ProcessEnded;

    /// The nearest guard among a process and its ancestors.
    fn nearest_guard(pid: i32) -> Result<Option<i32>, ProcessEnded> {
        let mut at = pid;
        let mut process = read_stat(at).ok_or(ProcessEnded)?;
        for _ in 0..MAX_ANCESTORS {
            if process.name == GUARD_NAME.to_bytes() {
                return Ok(Some(at));
            }
            if process.parent <= 1 {
                return Ok(None);
            }
            if let Some(parent) = read_stat(process.parent) {
                at = process.parent;
                process = parent;
                continue;
            }
            // The parent ended meanwhile, and another process has adopted this one; or the parent belongs to another user
            // and is hidden (`hidepid`), which a guard of ours would not be.
            let again = read_stat(at).ok_or(ProcessEnded)?;
            if again.parent == process.parent {
                return Ok(None);
            }
            process = again;
        }
        Err(ProcessEnded)
    }

    /// No tree of processes is this deep.
    const MAX_ANCESTORS: usize = 4_096;

    struct ProcStat {
        name: Vec<u8>,
        state: char,
        parent: i32,
    }

    fn read_stat(pid: i32) -> Option<ProcStat> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // `PID (NAME) STATE PARENT …`, and the name may hold anything, parentheses too.
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

    pub(in crate::guard) fn gather() -> io::Result<()> {
        Ok(())
    }

    /// There is no such thing here.
    pub(in crate::guard) fn die_with_this_process(_command: &mut Command) {}

    /// Signals the server's group; who left it is not found.
    pub(in crate::guard) fn signal(server: Pid, signal: Signal) {
        let _ = rustix::process::kill_process_group(server, signal_tree);
    }

    /// Orphans do not come to us, so the rest of the group may outlive the server.
    pub(in crate::guard) fn finish(server: Pid) {
        signal_tree(server, Signal::KILL);
    }
}
