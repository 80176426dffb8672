//! The identity of a process on this machine: its id alone is not enough, for ids are used again.

use std::fmt;
use std::str::FromStr;

/// A process, told apart from every other that had or will have its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    /// In clock ticks since the machine was started; 0 where that cannot be found out.
    started: u64,
    /// Which name space the id belongs to; containers have their own.
    namespace: String,
}

impl Process {
    pub(crate) fn current() -> Process {
        let pid = std::process::id();
        Process::of(pid).unwrap_or(Process { pid, started: 0, namespace: String::new() })
    }

    /// A process that runs now, in this name space.
    pub(crate) fn of(pid: u32) -> Option<Process> {
        Some(Process { pid, started: started(pid)?, namespace: namespace() })
    }

    /// Whether it is known to have ended. Of a process in another container nothing is known.
    pub(crate) fn has_ended(self) -> bool {
        self.started != 0 && self.namespace == namespace() && Process::of(self.pid) != Some(self)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.started, self.namespace)
    }
}

impl FromStr for Process {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Process, &'static str> {
        let mut words = text.splitn(3, ' ');
        let pid = words.next().and_then(|word| word.parse().ok()).ok_or("no process id")?;
        let started = words.next().and_then(|word| word.parse().ok()).ok_or("no start time")?;
        Ok(Process { pid, started, namespace: words.next().unwrap_or_default().to_owned() })
    }
}

/// When a process was started; nothing for one that has ended, also when its parent has not heard of it yet.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name of the program in parentheses, which may hold spaces and parentheses itself.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    // The start time is field 22, and the state is field 3.
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(started)
}

#[cfg(not(target_os = "linux"))]
fn started(_pid: u32) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn namespace() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_written_and_read() {
        let process = Process::current();
        assert_eq!(process.to_string().parse(), Ok(process.clone()));
        assert!(!process.has_ended());
        assert!("".parse::<Process>().is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let process = Process::current();
        assert!(Process { started: process.started + 1, ..process.clone() }.has_ended());
        assert!(!Process { namespace: "pid:[1]".into(), started: 1, ..process }.has_ended());
    }
}
