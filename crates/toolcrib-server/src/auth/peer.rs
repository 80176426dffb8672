//! Identifies the process at the other end of a local TCP connection: its user, and whether it was started by a
//! Toolcrib. Linux only; elsewhere a peer is never identified.
//!
//! ```text
//! accepted connection ▶ query the kernel for the client's socket ▶ user id, inode ▶ search /proc/PID/fd for the inode
//!                     ▶ process ▶ below a guard? ▶ SocketOwner
//! ```
//!
//! One search finds the owners of any number of sockets.
//!
//! A process that runs below a guard is a server that Toolcrib started, with whatever an agent makes it do; it must not
//! get the rights of the local user. Every doubt is an error, and the caller then asks for a token.

#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod socket_owner;

#[cfg(target_os = "linux")]
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;

#[cfg(target_os = "linux")]
use socket_owner::SocketOwnerSearch;

/// Client socket of a connection, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSocket {
    /// User that the kernel records for the socket.
    uid: u32,
    /// Inode of the socket in `/proc/PID/fd`, by which the owning process is found.
    inode: u32,
}

/// Process that owns a client socket, classified by the trust it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketOwner {
    /// This process itself: a request by one of its own tools.
    ThisProcess,
    /// A process below the guard of any Toolcrib on this machine, unless this process is below the same guard.
    StartedByToolcrib,
    /// Any other process.
    Other,
}

/// Finds the processes that own sockets. Remembers the last ones, because a client usually connects more than once.
#[derive(Debug, Default)]
pub(super) struct PeerSearch {
    #[cfg(target_os = "linux")]
    /// Process ids, most recent first.
    recent: Vec<i32>,
}

#[cfg(target_os = "linux")]
impl PeerSocket {
    /// Queries the kernel for the socket of `client`, which is connected to `server` on this machine. Does not block.
    /// An error means that the peer cannot be identified: its socket must be established and open.
    pub(super) fn from_connection(client: SocketAddr, server: SocketAddr) -> io::Result<PeerSocket> {
        let peer = socket::query_socket(client, server)?;
        if is_overflow_uid(peer.uid) {
            return Err(io::Error::other("the user of this connection has no number in this user namespace"));
        }
        Ok(peer)
    }

    /// Whether the socket belongs to the user that this process runs as, or to root.
    pub(super) fn is_same_user_or_root(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

#[cfg(target_os = "linux")]
impl PeerSearch {
    /// Finds the processes that own these sockets, in their order. Blocks while it searches `/proc`, at most two seconds;
    /// the error of a socket that was not found until then is `TimedOut`. Any other error means that no visible process
    /// owns the socket.
    pub(super) fn find_owners(&mut self, peers: &[PeerSocket]) -> Vec<io::Result<SocketOwner>> {
        // File descriptors of root's processes are not readable, and a guard's children run as the guard's own user.
        let is_root = rustix::process::geteuid().is_root();
        let (unreadable, readable): (Vec<&PeerSocket>, Vec<&PeerSocket>) =
            peers.iter().partition(|peer| peer.uid == 0 && !is_root);
        let mut owners: HashMap<u32, SocketOwner> =
            unreadable.into_iter().map(|peer| (peer.inode, SocketOwner::Other)).collect();
        let mut unknown: HashSet<u32> = readable.into_iter().map(|peer| peer.inode).collect();
        let search = SocketOwnerSearch::start();
        for _ in 0..MAX_SEARCH_ATTEMPTS {
            let found = search.find_processes(unknown, &self.recent);
            for (pid, sockets) in &found {
                // Fails at the deadline only.
                let classified = classify_owners(&search, *pid, sockets).unwrap_or_default();
                if !classified.is_empty() {
                    self.remember(*pid);
                }
                owners.extend(classified);
            }
            // A socket may have moved to another process between finding and classifying, so try again.
            unknown = found.into_values().flatten().filter(|inode| !owners.contains_key(inode)).collect();
            if unknown.is_empty() {
                break;
            }
        }
        peers.iter().map(|peer| owners.get(&peer.inode).copied().ok_or_else(|| search.not_found_error())).collect()
    }

    /// Moves a process to the front of the recent ones.
    fn remember(&mut self, pid: i32) {
        self.recent.retain(|recent| *recent != pid);
        self.recent.insert(0, pid);
        self.recent.truncate(MAX_RECENT_PROCESSES);
    }
}

/// Classifies the process `pid`, which owned these sockets a moment ago. Leaves out those that it does not own any more.
#[cfg(target_os = "linux")]
fn classify_owners(
    search: &SocketOwnerSearch,
    pid: i32,
    sockets: &HashSet<u32>,
) -> io::Result<HashMap<u32, SocketOwner>> {
    let own_pid = rustix::process::getpid().as_raw_nonzero().get();
    if pid == own_pid {
        return Ok(sockets.iter().map(|inode| (*inode, SocketOwner::ThisProcess)).collect());
    }
    if toolcrib::guard::is_below_guard(pid) {
        return Ok(sockets.iter().map(|inode| (*inode, SocketOwner::StartedByToolcrib)).collect());
    }
    // The pid may have been reused meanwhile, so check again.
    let owned = search.owned_sockets(pid, sockets)?;
    let mut owners: HashMap<u32, SocketOwner> = owned.into_iter().map(|inode| (inode, SocketOwner::Other)).collect();
    // A child that this process is about to start shares its descriptors until `exec`.
    if toolcrib::guard::parent_pid(pid) == Some(own_pid) {
        let shared = search.owned_sockets(own_pid, sockets)?;
        owners.extend(shared.into_iter().map(|inode| (inode, SocketOwner::ThisProcess)));
    }
    Ok(owners)
}

/// Maximum number of searches for one socket. A client that starts a program shares its sockets with it for a moment.
#[cfg(target_os = "linux")]
const MAX_SEARCH_ATTEMPTS: usize = 3;

/// Number of processes that are searched first. Each costs a directory listing when another process connects.
#[cfg(target_os = "linux")]
const MAX_RECENT_PROCESSES: usize = 8;

/// Whether a user id is the overflow uid, which the kernel shows for every user that is not mapped in this user
/// namespace. It may stand for any of them, including this process's own user.
#[cfg(target_os = "linux")]
fn is_overflow_uid(uid: u32) -> bool {
    use std::sync::LazyLock;

    static OVERFLOW_UID: LazyLock<Option<u32>> = LazyLock::new(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        // The initial namespace maps all ids to themselves; there the overflow uid is an ordinary user.
        let is_whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
        (!is_whole).then_some(overflow)
    });
    *OVERFLOW_UID == Some(uid)
}

#[cfg(not(target_os = "linux"))]
impl PeerSocket {
    /// Not available on this system.
    pub(super) fn from_connection(_client: SocketAddr, _server: SocketAddr) -> io::Result<PeerSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Always false: the owner of a connection is unknown on this system.
    pub(super) fn is_same_user_or_root(self) -> bool {
        false
    }
}

#[cfg(not(target_os = "linux"))]
impl PeerSearch {
    /// Not available on this system.
    pub(super) fn find_owners(&mut self, peers: &[PeerSocket]) -> Vec<io::Result<SocketOwner>> {
        peers.iter().map(|_| Err(io::ErrorKind::Unsupported.into())).collect()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
