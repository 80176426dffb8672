//! CPU time and memory of processes, from `/proc`.

use std::fs;
use std::time::Duration;

use toolcrib_testkit::postgres::run_sql;

use crate::Result;

/// Unit of the times in `/proc/PID/stat`; the same on all Linux machines.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of a process, in clock ticks.
struct CpuTicks {
    /// Its own.
    own: u64,
    /// That of its children that have ended.
    ended_children: u64,
}

impl CpuTicks {
    fn read(pid: u32) -> Result<CpuTicks> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name of the program, in parentheses, may contain spaces.
        let (_, fields) = stat.rsplit_once(") ").ok_or("unexpected content of /proc/PID/stat")?;
        let ticks: Vec<u64> =
            fields.split(' ').skip(11).take(4).map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [user, system, children_user, children_system] = ticks[..] else {
            return Err("unexpected content of /proc/PID/stat".into());
        };
        Ok(CpuTicks { own: user + system, ended_children: children_user + children_system })
    }
}

/// Returns the CPU time of a process.
pub(super) fn cpu_time(pid: u32) -> Result<Duration> {
    Ok(to_duration(CpuTicks::read(pid)?.own))
}

/// Returns the resident memory of a process in bytes.
pub(super) fn resident_memory(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    read_kilobytes(&status, "VmRSS:").ok_or_else(|| "no `VmRSS` in /proc/PID/status".into())
}

/// Processes of a PostgreSQL server.
pub(super) struct DatabaseProcesses {
    /// The one that has started all others.
    main_pid: u32,
}

impl DatabaseProcesses {
    /// Finds the processes of the server with this database.
    pub(super) fn find(url: &str) -> Result<DatabaseProcesses> {
        let main_pid = run_sql(url, "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)");
        Ok(DatabaseProcesses { main_pid: main_pid.parse()? })
    }

    /// Returns the CPU time of all of them, also of those that have ended.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let main = CpuTicks::read(self.main_pid)?;
        // One that ends meanwhile is counted by the main process the next time.
        let children = children_of(self.main_pid)?.into_iter().filter_map(|pid| CpuTicks::read(pid).ok());
        Ok(to_duration(main.own + main.ended_children + children.map(|ticks| ticks.own).sum::<u64>()))
    }
}

/// Returns the memory of the processes that serve connections of nodes, and their number. Memory that they share is
/// divided between them.
pub(super) fn connection_memory(url: &str) -> Result<(u64, u64)> {
    let pids = run_sql(url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'toolcrib'");
    let mut memory = 0;
    let mut count = 0;
    for pid in pids.lines() {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        memory += read_kilobytes(&rollup, "Pss:").ok_or("no `Pss` in /proc/PID/smaps_rollup")?;
        count += 1;
    }
    Ok((memory, count))
}

fn children_of(parent: u32) -> Result<Vec<u32>> {
    let parent_line = format!("PPid:\t{parent}");
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if status.lines().any(|line| line == parent_line) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// Reads a line such as `VmRSS:  1024 kB`, and returns bytes.
fn read_kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn to_duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
}
