//! Finds the processes that own sockets by the links in `/proc/PID/fd`.
//!
//! The links read `socket:[INODE]`. Those of other users' processes are not readable unless this process is root, so
//! their sockets are not found, which the caller treats as an unknown peer.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use toolcrib::guard::process_ids;

/// Limit of a search, for machines with very many processes and open files, or under heavy load.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Links read between two checks of the deadline.
const LINKS_PER_DEADLINE_CHECK: usize = 256;

/// Search for the owners of sockets.
pub(super) struct SocketOwnerSearch {
    /// Shared by all attempts of the search.
    deadline: Instant,
}

impl SocketOwnerSearch {
    pub(super) fn start() -> SocketOwnerSearch {
        SocketOwnerSearch { deadline: Instant::now() + SEARCH_TIMEOUT }
    }

    /// Returns the processes that own these sockets, as far as they are found in time. Looks at recent owners first, then
    /// from the newest process to the oldest, because a client that was just started is among the newest.
    pub(super) fn find_processes(&self, mut sockets: HashSet<u32>, recent: &[i32]) -> HashMap<i32, HashSet<u32>> {
        let mut processes = HashMap::new();
        // Listed only if a socket is not owned by a recent process.
        let others = std::iter::once_with(|| {
            let mut others: Vec<i32> = process_ids().filter(|pid| !recent.contains(pid)).collect();
            others.sort_unstable_by(|a, b| b.cmp(a));
            others
        });
        for pid in recent.iter().copied().chain(others.flatten()) {
            if sockets.is_empty() {
                break;
            }
            let Ok(owned) = self.owned_sockets(pid, &sockets) else { break };
            if !owned.is_empty() {
                sockets.retain(|inode| !owned.contains(inode));
                processes.insert(pid, owned);
            }
        }
        processes
    }

    /// Returns those of the sockets that a process owns; none for a process that has ended or is not readable. Fails at the
    /// deadline.
    pub(super) fn owned_sockets(&self, pid: i32, sockets: &HashSet<u32>) -> io::Result<HashSet<u32>> {
        let mut owned = HashSet::new();
        let directory = format!("/proc/{pid}/fd");
        let Ok(entries) = fs::read_dir(&directory) else { return Ok(owned) };
        let mut descriptors: Vec<u32> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        // New connections tend to have high descriptor numbers.
        descriptors.reverse();
        for chunk in descriptors.chunks(LINKS_PER_DEADLINE_CHECK) {
            if Instant::now() > self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let links =
                chunk.iter().map(|descriptor| fs::read_link(Path::new(&directory).join(descriptor.to_string())));
            let inodes = links.filter_map(|link| parse_socket_link(&link.ok()?));
            owned.extend(inodes.filter(|inode| sockets.contains(inode)));
            if owned.len() == sockets.len() {
                break;
            }
        }
        Ok(owned)
    }

    /// The error for a socket without a known owner.
    pub(super) fn not_found_error(&self) -> io::Error {
        if Instant::now() > self.deadline {
            return io::ErrorKind::TimedOut.into();
        }
        io::Error::new(io::ErrorKind::NotFound, "no visible process owns the client's socket")
    }
}

/// Returns the inode of a link `socket:[INODE]`.
fn parse_socket_link(link: &Path) -> Option<u32> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
