//! Finding and signalling the processes under the guard. Linux finds all of them; other systems know the group only.

#[cfg(target_os = "linux")]
pub(super) use linux::{die_with_this_process, finish, gather, is_running, process_ids, signal};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{die_with_this_process, finish, gather, signal};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Pid, Signal};

    /// From here on every orphan below us becomes our child.
    pub(in crate::guard) fn gather() -> io::Result<()> {
        // Not named after Toolcrib: `pkill -9 toolcrib` should leave the one that cleans up.
        let _ = rustix::thread::set_name(c"crib-guard");
        Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
    }

    /// Has the kernel kill the child with this process. Its own children are not killed by that: it is for a guard that
    /// is killed together with Toolcrib, when nothing is left that could find them.
    pub(in crate::guard) fn die_with_this_process(command: &mut Command) {
        let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        #[expect(unsafe_code, reason = "only the new process can ask for this, between `fork` and `exec`")]
        // SAFETY: one system call, no allocation, no lock.
        unsafe {
            command.pre_exec(ask);
        }
    }

    /// Signals every descendant.
    pub(in crate::guard) fn signal(_server: Pid, signal: Signal) {
        for pid in descendants() {
            // One that is gone already, or is not ours to signal, must not save the others.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Nothing to do: no child left means no descendant left.
    pub(in crate::guard) fn finish(_server: Pid) {}

    fn descendants() -> Vec<Pid> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, parent) in processes() {
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
    fn processes() -> impl Iterator<Item = (i32, i32)> {
        process_ids().filter_map(|pid| Some((pid, stat(pid)?.1)))
    }

    pub(in crate::guard) fn process_ids() -> impl Iterator<Item = i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// Whether a process is there and has not ended; one that has may still wait to be reaped.
    pub(in crate::guard) fn is_running(pid: i32) -> bool {
        stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
    }

    /// The state of a process, and its parent.
    fn stat(pid: i32) -> Option<(char, i32)> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // `PID (NAME) STATE PARENT …`, and the name may hold anything, parentheses too.
        let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
        let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
        Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
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
        let _ = rustix::process::kill_process_group(server, signal);
    }

    /// Orphans do not come to us, so the rest of the group may outlive the server.
    pub(in crate::guard) fn finish(server: Pid) {
        signal(server, Signal::KILL);
    }
}
