//! The identity of a process on this machine: its id alone is not enough, for ids are used again.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// A process, told apart from every other that had or will have its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pid: u32,
    /// In clock ticks since the machine was started; 0 where that cannot be found out.
    start_ticks: u64,
    /// Which namespace the id belongs to; containers have their own.
    namespace: String,
}

impl ProcessIdentity {
    pub(crate) fn current() -> &'static ProcessIdentity {
        static CURRENT: LazyLock<ProcessIdentity> = LazyLock::new(|| {
            let pid = std::process::id();
            let started = match read_start_time(pid) {
                StartTime::Ticks(started) => started,
                StartTime::Ended | StartTime::Unknown => 0,
            };
            ProcessIdentity { pid, start_ticks: started, namespace: pid_namespace() }
        });
        &CURRENT
    }

    /// Whether it is known to have ended. Of a process in another container nothing is known.
    pub(crate) fn has_ended(&self) -> bool {
        let current = ProcessIdentity::current();
        if self.start_ticks == 0 || self.namespace != current.namespace || self == current {
            return false;
        }
        match read_start_time(self.pid) {
            StartTime::Ticks(started) => started != self.start_ticks,
            StartTime::Ended => true,
            StartTime::Unknown => false,
        }
    }
}

/// When a process was started.
enum StartTime {
    Ticks(u64),
    /// There is none, or it has ended and its parent has not heard of it yet.
    Ended,
    /// That cannot be found out, for want of a file descriptor say.
    Unknown,
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.start_ticks, self.namespace)
    }
}

impl FromStr for ProcessIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ProcessIdentity, &'static str> {
        let mut words = text.splitn(3, ' ');
        let pid = words.next().and_then(|word| word.parse().ok()).ok_or("no process id")?;
        let started = words.next().and_then(|word| word.parse().ok()).ok_or("no start time")?;
        Ok(ProcessIdentity { pid, start_ticks: started, namespace: words.next().unwrap_or_default().to_owned() })
    }
}

#[cfg(target_os = "linux")]
fn read_start_time(pid: u32) -> StartTime {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return StartTime::Ended,
        // It ended while its file was read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return StartTime::Ended,
        Err(_) => return StartTime::Unknown,
    };
    // The second field is the name of the program in parentheses, which may hold spaces and parentheses itself.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    // The start time is field 22, and the state is field 3.
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    match started {
        _ if matches!(state, Some("Z" | "X" | "x")) => StartTime::Ended,
        Some(started) => StartTime::Ticks(started),
        None => StartTime::Unknown,
    }
}

#[cfg(not(target_os = "linux"))]
fn start_of(_pid: u32) -> StartTime {
    StartTime::Unknown
}

#[cfg(target_os = "linux")]
fn pid_namespace() -> String {
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
        let process = ProcessIdentity::current();
        assert_eq!(process.to_string().parse().as_ref(), Ok(process));
        assert!(!process.has_ended());
        assert!("".parse::<ProcessIdentity>().is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn one_that_was_killed_has_ended_and_one_of_another_namespace_is_unknown() {
        let current = ProcessIdentity::current();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let StartTime::Ticks(started) = read_start_time(child.id()) else { panic!("it runs") };
        let process = ProcessIdentity { pid: child.id(), start_ticks: started, ..current.clone() };
        assert!(!process.has_ended());
        assert!(
            ProcessIdentity { start_ticks: started + 1, ..process.clone() }.has_ended(),
            "an id that is used again"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(!ProcessIdentity { namespace: "pid:[1]".into(), ..process }.has_ended());
    }
}
