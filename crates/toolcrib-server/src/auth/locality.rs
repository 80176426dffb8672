//! Decides whether a request comes from a process on this machine that needs no token (`identity.loopback`). Every
//! other request is treated like one from another machine. The process is found through the socket of its connection.
//!
//! The threat is an MCP server, or an agent that makes one fetch a URL: it runs on this machine, as the same user, and
//! must not get the rights of a person at the keyboard. So with `owner` a client is admitted only if its process was
//! found and is not below a guard; everything uncertain needs a token.
//!
//! The kernel is asked for the socket when the connection is accepted, which is cheap. The search for the process in
//! `/proc` runs on a blocking thread, once per connection, and only when a request arrives. Connections that arrive
//! together share a search.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;
use toolcrib::config::LoopbackAccess;

use super::Authenticator;
use super::peer::{PeerSearch, PeerSocket, SocketOwner};

/// How long a request waits for the search: the rest of the search that runs when it arrives, then its own. Each takes
/// two seconds at most.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Origin of a request, as far as it decides whether the request needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locality {
    /// A process on this machine that needs no token.
    Local,
    /// The server is reachable from other machines, or requires a token from every client. Its clients always need a
    /// token, so their processes are not looked up.
    Network,
    /// A proxy forwarded the request, so its true origin is unknown. Recognised by headers that proxies add, or by the
    /// host of `public_url`.
    Forwarded,
    /// `identity.loopback` is `token`.
    TokenRequired,
    /// A process of another user than the one Toolcrib runs as.
    OtherUser,
    /// A process that Toolcrib started, such as an MCP server, or a descendant of one.
    StartedByToolcrib,
    /// This process itself, where `refuse_own_process` is set.
    OwnProcess,
    /// The process was not found.
    Unidentified,
    /// The search for the process took too long. A later request may find it.
    SearchTimedOut,
}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPeer {
    /// `None` if the connection is gone.
    address: Option<IpAddr>,
    /// `None` when it was not looked up (not on loopback) or could not be identified.
    peer: Option<PeerSocket>,
    /// The process that owns the socket. Determined by the first request and cached for the life of the connection.
    owner: OnceCell<SocketOwner>,
}

/// Searches for the owners of client sockets; shared by all connections.
#[derive(Debug, Default)]
pub(super) struct PeerIdentifier {
    /// Sockets for the next search.
    waiting: Mutex<Vec<WaitingPeer>>,
    /// Remembers the last processes, which usually connect again. Locked while a search runs: it reads the descriptors of
    /// many processes, so a burst of connections must not occupy all blocking threads.
    search: Arc<tokio::sync::Mutex<PeerSearch>>,
    /// Set after the first warning in the log; later failures are logged at debug level.
    has_warned: AtomicBool,
}

/// A socket whose owner is wanted, and the request that waits for it.
#[derive(Debug)]
struct WaitingPeer {
    peer: PeerSocket,
    owner: oneshot::Sender<io::Result<SocketOwner>>,
}

impl ConnectionPeer {
    /// Address of the client, or of the proxy in front of it.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

impl Authenticator {
    /// Looks up the client's socket of a connection that was just accepted. Queries the kernel without blocking.
    pub(crate) fn identify_peer(&self, stream: &tokio::net::TcpStream) -> ConnectionPeer {
        let address = stream.peer_addr().ok().map(|address| address.ip());
        if !self.is_on_loopback() {
            return ConnectionPeer { address, ..ConnectionPeer::default() };
        }
        let peer = stream.peer_addr().and_then(|client| PeerSocket::from_connection(client, stream.local_addr()?));
        if let Err(error) = &peer {
            self.peer_identifier.warn_once(error);
        }
        ConnectionPeer { address, peer: peer.ok(), owner: OnceCell::new() }
    }

    /// Determines the locality of a request. Evaluated for each request, because the configuration may have been
    /// reloaded; only the first request of a connection may wait for a process search.
    pub(crate) async fn locality(&self, connection: &ConnectionPeer, headers: &HeaderMap) -> Locality {
        if !self.is_on_loopback() {
            return Locality::Network;
        }
        // Before the setting is looked at: even `open` admits local processes only, and a proxy forwards for others.
        if is_forwarded(headers) || self.is_for_public_host(headers) {
            return Locality::Forwarded;
        }
        match self.loopback() {
            // Neither setting depends on the process, so none is searched for.
            LoopbackAccess::Open => return Locality::Local,
            LoopbackAccess::Token => return Locality::TokenRequired,
            LoopbackAccess::Owner => {}
        }
        let Some(peer) = connection.peer else { return Locality::Unidentified };
        if !peer.is_same_user_or_root() {
            return Locality::OtherUser;
        }
        // Concurrent requests of one connection share the search. A failure is not stored, so that the next request
        // tries again.
        match connection.owner.get_or_try_init(|| self.peer_identifier.find_owner(peer)).await {
            Ok(SocketOwner::ThisProcess) if self.refuse_own_process => Locality::OwnProcess,
            Ok(SocketOwner::ThisProcess | SocketOwner::Other) => Locality::Local,
            Ok(SocketOwner::StartedByToolcrib) => Locality::StartedByToolcrib,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Locality::SearchTimedOut,
            Err(_) => Locality::Unidentified,
        }
    }

    /// Identifies a connection of this process to itself, so that a system without support is reported at startup.
    pub(super) fn probe_peer_identification(&self) {
        if !self.is_on_loopback() || self.loopback() != LoopbackAccess::Owner {
            return;
        }
        let probe = TcpListener::bind((self.address.ip(), 0)).and_then(|listener| {
            let server = listener.local_addr()?;
            let client = TcpStream::connect_timeout(&server, SEARCH_TIMEOUT)?;
            PeerSocket::from_connection(client.local_addr()?, server)
        });
        if let Err(error) = probe {
            self.peer_identifier.warn_once(&error);
        }
    }
}

impl PeerIdentifier {
    /// Searches for the process that owns `peer`, on a blocking thread. One search runs at a time and finds the owners
    /// of all sockets that wait when it begins.
    async fn find_owner(&self, peer: PeerSocket) -> io::Result<SocketOwner> {
        let (sender, mut receiver) = oneshot::channel();
        self.waiting.lock().push(WaitingPeer { peer, owner: sender });
        let searching = async {
            let mut search = tokio::select! {
                biased;
                owner = &mut receiver => return owner.map_err(io::Error::other)?,
                search = self.search.clone().lock_owned() => search,
            };
            let mut waiting = std::mem::take(&mut *self.waiting.lock());
            // The search stays locked until it ends, even if this request gives up on it.
            tokio::task::spawn_blocking(move || {
                // Those of requests that have given up.
                waiting.retain(|waiting| !waiting.owner.is_closed());
                let peers: Vec<PeerSocket> = waiting.iter().map(|waiting| waiting.peer).collect();
                for (waiting, owner) in waiting.into_iter().zip(search.find_owners(&peers)) {
                    // Fails if the request has given up meanwhile.
                    let _ = waiting.owner.send(owner);
                }
            });
            receiver.await.map_err(io::Error::other)?
        };
        let owner = timeout(SEARCH_TIMEOUT, searching).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        owner.inspect_err(|error| self.warn_once(error))
    }

    /// Logs the first failure as a warning and all others at debug level.
    fn warn_once(&self, error: &io::Error) {
        let message = "a local client could not be identified, so it needs a token (`identity.loopback: owner`)";
        if self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "{message}");
        } else {
            tracing::warn!(%error, "{message}; further ones are logged as debug");
        }
    }
}

impl Locality {
    /// Returns why a request without a token is rejected, as the beginning of a sentence that continues with what to
    /// send.
    pub(super) fn token_reason(self) -> &'static str {
        match self {
            Locality::Local | Locality::Network => "this needs",
            Locality::Forwarded => "a request that a proxy forwarded needs",
            Locality::TokenRequired => "`identity.loopback` is `token`, so this needs",
            Locality::OtherUser => {
                "`identity.loopback` is `owner`, and this process belongs to another user, so this needs"
            }
            Locality::StartedByToolcrib => {
                "`identity.loopback` is `owner`, and this process counts as started by Toolcrib (it has a guard among its \
                 ancestors, or the limit on file locks with which Toolcrib marks them), so this needs"
            }
            Locality::OwnProcess => {
                "`identity.loopback` is `owner`, and this request was made by Toolcrib itself for one of its tools, so \
                 this needs"
            }
            Locality::Unidentified => {
                "`identity.loopback` is `owner`, and this process could not be identified, so this needs"
            }
            Locality::SearchTimedOut => {
                "`identity.loopback` is `owner`, and this process was not identified in time; try again, or send"
            }
        }
    }
}

/// True when a proxy forwarded the request. Its client may be anywhere, even if the proxy runs on this machine.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(is_proxy_header)
}

/// True for the headers by which common proxies and CDNs report the client. Clients do not send them by themselves. A
/// proxy that adds none of them is not recognised; then `require_token` is the setting for it.
fn is_proxy_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    let is_listed = matches!(
        name,
        "forwarded"
            | "via"
            | "cdn-loop"
            | "client-ip"
            | "true-client-ip"
            | "cf-connecting-ip"
            | "cf-connecting-ipv6"
            | "fly-client-ip"
            | "fastly-client-ip"
            | "x-real-ip"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "x-remote-ip"
            | "x-remote-addr"
            | "x-original-forwarded-for"
            | "x-originating-ip"
            | "x-azure-clientip"
            | "x-appengine-user-ip"
            | "x-envoy-external-address"
    );
    is_listed || name.starts_with("x-forwarded")
}

/// True when only this machine can reach `address`. An IPv4-mapped IPv6 address counts as its IPv4 address.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use futures_util::future::join_all;
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn connections_that_arrive_together_share_the_next_search() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |_| (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap());
        let connections: Vec<_> = (0..64).map(connect).collect();
        let peers = connections.iter().map(|(client, _)| {
            PeerSocket::from_connection(client.local_addr().unwrap(), client.peer_addr().unwrap()).unwrap()
        });
        let identifier = PeerIdentifier::default();
        let running_search = identifier.search.clone().lock_owned().await;
        let mut owners = join_all(peers.map(|peer| identifier.find_owner(peer)));
        assert!(poll!(&mut owners).is_pending());
        assert_eq!(identifier.waiting.lock().len(), connections.len());
        drop(running_search);
        assert!(owners.await.into_iter().all(|owner| matches!(owner, Ok(SocketOwner::ThisProcess))));
        assert!(identifier.waiting.lock().is_empty());
    }
}
