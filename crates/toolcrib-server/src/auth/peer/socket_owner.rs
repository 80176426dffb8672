//! Finds the process that owns a socket by the links in `/proc/PID/fd`.
//!
//! The links read `socket:[INODE]`. Those of other users' processes are not readable unless this process is root, so
//! their sockets are not found, which the caller treats as an unknown peer.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use toolcrib::guard::process_ids;

/// Limit of a search, for machines with very many processes and open files.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Links read between two checks of the deadline.
const LINKS_PER_DEADLINE_CHECK: usize = 256;

/// Search for the owner of one socket.
pub(super) struct SocketOwnerSearch {
    /// Target of the links to the socket: `socket:[INODE]`.
    link: String,
    /// Shared by all attempts of the search.
    deadline: Instant,
}

impl SocketOwnerSearch {
    pub(super) fn new(inode: u32) -> SocketOwnerSearch {
        SocketOwnerSearch { link: format!("socket:[{inode}]"), deadline: Instant::now() + SEARCH_TIMEOUT }
    }

    /// Returns the process that owns the socket. Looks at recent owners first, then from the newest process to the
    /// oldest, because a client that was just started is among the newest.
    pub(super) fn find_process(&self, recent: &[i32]) -> io::Result<i32> {
        for &pid in recent {
            if self.holds_socket(pid)? {
                return Ok(pid);
            }
        }
        // Then all processes, the highest ids first.
        let mut all: Vec<i32> = process_ids().collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        for pid in all {
            if !recent.contains(&pid) && self.holds_socket(pid)? {
                return Ok(pid);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no visible process owns the client's socket"))
    }

    /// Whether a process owns the socket. False for a process that has ended or is not readable.
    pub(super) fn holds_socket(&self, pid: i32) -> io::Result<bool> {
        let directory = format!("/proc/{pid}/fd");
        let Ok(entries) = fs::read_dir(&directory) else { return Ok(false) };
        let mut descriptors: Vec<u32> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        // New connections tend to have high descriptor numbers.
        descriptors.reverse();
        for chunk in descriptors.chunks(LINKS_PER_DEADLINE_CHECK) {
            if Instant::now() > self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let is_socket = |descriptor: &u32| {
                let target = fs::read_link(Path::new(&directory).join(descriptor.to_string()));
                target.is_ok_and(|target| target.as_os_str().as_bytes() == self.link.as_bytes())
            };
            if chunk.iter().any(is_socket) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
