//! The process at the other end of a TCP connection within this machine: which user it runs as, and whether a guard of
//! Toolcrib is above it. Linux only; elsewhere a peer is never identified.

#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod socket_owner;

use std::io;
use std::net::SocketAddr;

/// The client's socket of a connection, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSocket {
    uid: u32,
    /// By which the process is found that holds the socket.
    inode: u32,
}

/// The process that holds a socket, as far as that decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOwner {
    /// This process itself: what one of its tools asked for.
    ThisProcess,
    /// A process below a guard of any Toolcrib on this machine that this process is not itself below.
    BelowGuard,
    Other,
}

/// Finds the processes that hold sockets. Remembers where it found the last ones, for a client connects more than once.
#[derive(Debug, Default)]
pub struct PeerSearch {
    #[cfg(target_os = "linux")]
    recent: std::sync::Mutex<Vec<i32>>,
}

#[cfg(target_os = "linux")]
impl PeerSocket {
    /// Looks up the socket of `client`, which is connected to `server` on this machine. One exchange with the kernel, which
    /// answers at once. An error means that the peer cannot be identified: its socket must be established and open.
    pub fn from_connection(client: SocketAddr, server: SocketAddr) -> io::Result<PeerSocket> {
        let peer = socket::query_socket(client, server)?;
        if is_overflow_uid(peer.uid) {
            return Err(io::Error::other("the user of this connection has no number in this user namespace"));
        }
        Ok(peer)
    }

    /// Whether the socket belongs to the user that this process runs as, or to root.
    pub fn is_same_user_or_root(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

#[cfg(target_os = "linux")]
impl PeerSearch {
    /// The process that holds the socket. Blocks for as long as it takes to look through `/proc`, at most a second; an
    /// error where no process that can be seen holds the socket.
    pub fn find_owner(&self, peer: PeerSocket) -> io::Result<SocketOwner> {
        // Processes of root cannot be looked into from here, and what a guard starts runs as its own user.
        if peer.uid == 0 && !rustix::process::geteuid().is_root() {
            return Ok(SocketOwner::Other);
        }
        let search = socket_owner::SocketOwnerSearch::new(peer.inode);
        for _ in 0..MAX_SEARCH_ATTEMPTS {
            let recent = self.lock_recent().clone();
            let pid = search.find_process(&recent)?;
            if let Some(holder) = classify_owner(&search, pid)? {
                self.remember(pid);
                return Ok(holder);
            }
        }
        Err(io::Error::other("the client's end is handed from one process to another"))
    }

    fn remember(&self, pid: i32) {
        let mut recent = self.lock_recent();
        recent.retain(|known| *known != pid);
        recent.insert(0, pid);
        recent.truncate(MAX_RECENT_PROCESSES);
    }

    fn lock_recent(&self) -> std::sync::MutexGuard<'_, Vec<i32>> {
        self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What the process `pid` is, which held the socket a moment ago. `None` where it does not any more.
#[cfg(target_os = "linux")]
fn classify_owner(search: &socket_owner::SocketOwnerSearch, pid: i32) -> io::Result<Option<SocketOwner>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if pid == own {
        return Ok(Some(SocketOwner::ThisProcess));
    }
    if crate::guard::is_below_guard(pid) {
        return Ok(Some(SocketOwner::BelowGuard));
    }
    // A process that this one is about to start has all of its descriptors until it becomes another program.
    if crate::guard::parent_pid(pid) == Some(own) && search.holds_socket(own)? {
        return Ok(Some(SocketOwner::ThisProcess));
    }
    // The number may have become that of another process before it was looked at.
    Ok(search.holds_socket(pid)?.then_some(SocketOwner::Other))
}

/// Searches for one socket. A client that starts a program shares its sockets with that one for a moment.
#[cfg(target_os = "linux")]
const MAX_SEARCH_ATTEMPTS: usize = 3;

/// Processes that are looked at first.
#[cfg(target_os = "linux")]
const MAX_RECENT_PROCESSES: usize = 8;

/// Whether a user id is the one that the kernel shows for every user without a number in this user namespace: it may be
/// any of them, this process's own user included.
#[cfg(target_os = "linux")]
fn is_overflow_uid(uid: u32) -> bool {
    use std::sync::LazyLock;

    static OVERFLOW_UID: LazyLock<Option<u32>> = LazyLock::new(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let is_whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
        (!is_whole).then_some(overflow)
    });
    *OVERFLOW_UID == Some(uid)
}

#[cfg(not(target_os = "linux"))]
impl PeerSocket {
    /// There is no way to look it up here.
    pub fn of_connection(_client: SocketAddr, _server: SocketAddr) -> io::Result<PeerSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn is_same_user_or_root(self) -> bool {
        false
    }
}

#[cfg(not(target_os = "linux"))]
impl PeerSearch {
    pub fn holder(&self, _peer: PeerSocket) -> io::Result<SocketOwner> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
