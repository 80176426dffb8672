//! Identity of a process on this machine. The pid alone is not enough, because pids are reused.
//!
//! A lease in the store names the process that holds it, so that other processes need not wait for the lease to expire
//! when that process was killed. The text form is `PID START_TICKS NAMESPACE`, for example:
//!
//! ```text
//! 4711 8812345 pid:[4026531836]
//! ```
//!
//! Everything uncertain counts as running: a lease then ends by time, which is slower and never wrong.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// Identifies a process uniquely on one machine until it is rebooted, even after its pid is reused. Stored with leases,
/// to detect owners that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    /// As seen in `namespace`.
    pid: u32,
    /// Start time in clock ticks since boot; 0 if unknown.
    start_ticks: u64,
    /// PID namespace of the id; containers have their own.
    namespace: String,
}

impl ProcessIdentity {
    /// Identity of this process.
    pub(super) fn current() -> &'static ProcessIdentity {
        // Read once: neither value changes while a process runs.
        static CURRENT: LazyLock<ProcessIdentity> = LazyLock::new(|| {
            let pid = std::process::id();
            let start_ticks = match read_start_time(pid) {
                StartTime::Ticks(start_ticks) => start_ticks,
                StartTime::Ended | StartTime::Unknown => 0,
            };
            ProcessIdentity { pid, start_ticks, namespace: pid_namespace() }
        });
        &CURRENT
    }

    /// Whether the process is known to have ended. False for processes in other PID namespaces, which cannot be seen.
    pub(super) fn has_ended(&self) -> bool {
        let current = ProcessIdentity::current();
        if self.start_ticks == 0 || self.namespace != current.namespace || self == current {
            return false;
        }
        // Another start time means that the pid was reused, and so that the process has ended.
        match read_start_time(self.pid) {
            StartTime::Ticks(start_ticks) => start_ticks != self.start_ticks,
            StartTime::Ended => true,
            StartTime::Unknown => false,
        }
    }
}

/// Start time of a process.
enum StartTime {
    /// Clock ticks since boot.
    Ticks(u64),
    /// No such process, or a zombie.
    Ended,
    /// Cannot be determined, for example when no file descriptor is available.
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
        let mut fields = text.splitn(3, ' ');
        let pid = fields.next().and_then(|word| word.parse().ok()).ok_or("no process id")?;
        let start_ticks = fields.next().and_then(|word| word.parse().ok()).ok_or("no start time")?;
        Ok(ProcessIdentity { pid, start_ticks, namespace: fields.next().unwrap_or_default().to_owned() })
    }
}

/// Reads the start time of a process.
#[cfg(target_os = "linux")]
fn read_start_time(pid: u32) -> StartTime {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return StartTime::Ended,
        // The process ended between opening and reading the file.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return StartTime::Ended,
        Err(_) => return StartTime::Unknown,
    };
    // The second field is the program name in parentheses, which may itself contain spaces and parentheses.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    // The state is field 3, the start time field 22.
    let start_ticks = fields.nth(18).and_then(|field| field.parse().ok());
    match start_ticks {
        _ if matches!(state, Some("Z" | "X" | "x")) => StartTime::Ended,
        Some(start_ticks) => StartTime::Ticks(start_ticks),
        None => StartTime::Unknown,
    }
}

/// Without `/proc` no process is known to have ended; leases then end by time.
#[cfg(not(target_os = "linux"))]
fn read_start_time(_pid: u32) -> StartTime {
    StartTime::Unknown
}

/// PID namespace of this process.
#[cfg(target_os = "linux")]
fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Other systems have one namespace for all processes.
#[cfg(not(target_os = "linux"))]
fn pid_namespace() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_identity_round_trips() {
        let process = ProcessIdentity::current();
        assert_eq!(process.to_string().parse().as_ref(), Ok(process));
        assert!(!process.has_ended());
        assert!("".parse::<ProcessIdentity>().is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_killed_process_has_ended_and_one_of_another_namespace_is_unknown() {
        let current = ProcessIdentity::current();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let StartTime::Ticks(start_ticks) = read_start_time(child.id()) else { panic!("it runs") };
        let process = ProcessIdentity { pid: child.id(), start_ticks, ..current.clone() };
        assert!(!process.has_ended());
        assert!(
            ProcessIdentity { start_ticks: start_ticks + 1, ..process.clone() }.has_ended(),
            "an id that is used again"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(!ProcessIdentity { namespace: "pid:[1]".into(), ..process }.has_ended());
    }
}
