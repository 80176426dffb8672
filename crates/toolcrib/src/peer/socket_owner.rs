//! Which process holds a socket, by the links in `/proc/PID/fd`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::guard::process_ids;

/// A machine with very many processes and open files; the search ends without a result.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Links between two looks at the clock.
const LINKS_PER_DEADLINE_CHECK: usize = 256;

/// The search for the holder of one socket, which has a deadline.
pub(super) struct SocketOwnerSearch {
    link: String,
    deadline: Instant,
}

impl SocketOwnerSearch {
    pub(super) fn new(inode: u32) -> SocketOwnerSearch {
        SocketOwnerSearch { link: format!("socket:[{inode}]"), deadline: Instant::now() + SEARCH_TIMEOUT }
    }

    /// The process that holds the socket: first of those that held one lately, then from the newest to the oldest, for a
    /// client that was just started is among the newest.
    pub(super) fn find_process(&self, recent: &[i32]) -> io::Result<i32> {
        for &pid in recent {
            if self.holds_socket(pid)? {
                return Ok(pid);
            }
        }
        let mut all: Vec<i32> = process_ids().collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        for pid in all {
            if !recent.contains(&pid) && self.holds_socket(pid)? {
                return Ok(pid);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no process that can be seen holds the client's end"))
    }

    /// False too for a process that has ended or may not be looked into.
    pub(super) fn holds_socket(&self, pid: i32) -> io::Result<bool> {
        has_socket_link(pid, &self.link, self.deadline)
    }
}

fn has_socket_link(pid: i32, link: &str, deadline: Instant) -> io::Result<bool> {
    let directory = format!("/proc/{pid}/fd");
    let Ok(entries) = fs::read_dir(&directory) else { return Ok(false) };
    let mut descriptors: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // A connection that is new tends to have a high number.
    descriptors.reverse();
    for some in descriptors.chunks(LINKS_PER_DEADLINE_CHECK) {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let is_it = |descriptor: &u32| {
            let target = fs::read_link(Path::new(&directory).join(descriptor.to_string()));
            target.is_ok_and(|target| target.as_os_str().as_bytes() == link.as_bytes())
        };
        if some.iter().any(is_it) {
            return Ok(true);
        }
    }
    Ok(false)
}
