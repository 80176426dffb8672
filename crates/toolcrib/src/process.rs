//! The identity of a process on this machine: its id alone is not enough, for ids are used again.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// A process, told apart from every other that had or will have its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    /// In clock ticks since the machine was started; 0 where that cannot be found out.
    started: u64,
    /// Which namespace the id belongs to; containers have their own.
    namespace: String,
}

impl Process {
    pub(crate) fn current() -> &'static Process {
        static CURRENT: LazyLock<Process> = LazyLock::new(|| {
            let pid = std::process::id();
            let started = match start_of(pid) {
                Start::At(started) => started,
                Start::Ended | Start::Unknown => 0,
            };
            Process { pid, started, namespace: namespace() }
        });
        &CURRENT
    }

    /// Whether it is known to have ended. Of a process in another container nothing is known.
    pub(crate) fn has_ended(&self) -> bool {
        let current = Process::current();
        if self.started == 0 || self.namespace != current.namespace || self == current {
            return false;
        }
        match start_of(self.pid) {
            Start::At(started) => started != self.started,
            Start::Ended => true,
            Start::Unknown => false,
        }
    }
}

/// When a process was started.
enum Start {
    At(u64),
    /// There is none, or it has ended and its parent has not heard of it yet.
    Ended,
    /// That cannot be found out, for want of a file descriptor say.
    Unknown,
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

#[cfg(target_os = "linux")]
fn start_of(pid: u32) -> Start {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Start::Ended,
        // It ended while its file was read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Start::Ended,
        Err(_) => return Start::Unknown,
    };
    // The second field is the name of the program in parentheses, which may hold spaces and parentheses itself.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    // The start time is field 22, and the state is field 3.
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    match started {
        _ if matches!(state, Some("Z" | "X" | "x")) => Start::Ended,
        Some(started) => Start::At(started),
        None => Start::Unknown,
    }
}

#[cfg(not(target_os = "linux"))]
fn start_of(_pid: u32) -> Start {
    Start::Unknown
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
        assert_eq!(process.to_string().parse().as_ref(), Ok(process));
        assert!(!process.has_ended());
        assert!("".parse::<Process>().is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn one_that_was_killed_has_ended_and_one_of_another_namespace_is_unknown() {
        let current = Process::current();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let Start::At(started) = start_of(child.id()) else { panic!("it runs") };
        let process = Process { pid: child.id(), started, ..current.clone() };
        assert!(!process.has_ended());
        assert!(Process { started: started + 1, ..process.clone() }.has_ended(), "an id that is used again");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(!Process { namespace: "pid:[1]".into(), ..process }.has_ended());
    }
}
