//! Decides whether a request comes from a process on this machine that needs no token (`identity.loopback`). Every
//! other request is treated like one from another machine. The process is found through the socket of its connection.
//!
//! The threat is an MCP server, or an agent that makes one fetch a URL: it runs on this machine, as the same user, and
//! must not get the rights of a person at the keyboard. So with `owner` a client is admitted only if its process was
//! found and is not below a guard; everything uncertain needs a token.
//!
//! The kernel is asked for the socket when the connection is accepted, which is cheap. The search for the process in
//! `/proc` runs on a blocking thread, once per connection, and only when a request arrives.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use toolcrib::config::LoopbackAccess;

use super::Authenticator;
use super::peer::{PeerSearch, PeerSocket, SocketOwner};

/// Maximum number of concurrent searches through the processes of this machine. A search reads the descriptors of many
/// processes, so a burst of connections must not occupy all blocking threads.
const MAX_CONCURRENT_SEARCHES: usize = 4;
/// How long a request waits for the search, including the wait for a permit. One search takes a second at most; the
/// rest is for those before it in the queue.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Origin of a request, as far as it decides whether the request needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locality {
    /// A process on this machine that needs no token.
    Local,
    /// The server is reachable from other machines, or requires a token from every client. Its clients always need a
    /// token, so their processes are not looked up.
    Network,
    /// A proxy forwarded the request, so its true origin is unknown.
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
}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPeer {
    /// `None` when it was not looked up (not on loopback) or could not be identified.
    peer: Option<PeerSocket>,
    /// The process that owns the socket. Determined by the first request and cached for the life of the connection.
    owner: OnceCell<SocketOwner>,
}

/// Searches for the owners of client sockets; shared by all connections.
#[derive(Debug)]
pub(super) struct PeerIdentifier {
    /// Remembers the last processes, which usually connect again.
    search: Arc<PeerSearch>,
    /// [`MAX_CONCURRENT_SEARCHES`] permits.
    search_permits: Arc<Semaphore>,
    /// Set after the first warning in the log; later failures are logged at debug level.
    has_warned: AtomicBool,
}

impl Default for PeerIdentifier {
    fn default() -> PeerIdentifier {
        PeerIdentifier {
            search: Arc::default(),
            search_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_SEARCHES)),
            has_warned: AtomicBool::new(false),
        }
    }
}

impl Authenticator {
    /// Looks up the client's socket of a connection that was just accepted. Queries the kernel without blocking.
    pub(crate) fn identify_peer(&self, stream: &tokio::net::TcpStream) -> ConnectionPeer {
        if !self.is_on_loopback() {
            return ConnectionPeer::default();
        }
        let peer = stream.peer_addr().and_then(|client| PeerSocket::from_connection(client, stream.local_addr()?));
        if let Err(error) = &peer {
            self.peer_identifier.warn_once(error);
        }
        ConnectionPeer { peer: peer.ok(), owner: OnceCell::new() }
    }

    /// Determines the locality of a request. Evaluated for each request, because the configuration may have been reloaded;
    /// only the first request of a connection may wait for a process search.
    pub(crate) async fn locality(&self, connection: &ConnectionPeer, headers: &HeaderMap) -> Locality {
        if !self.is_on_loopback() {
            return Locality::Network;
        }
        // Before the setting is looked at: even `open` admits local processes only, and a proxy forwards for others.
        if is_forwarded(headers) {
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
            Err(PeerSearchFailed) => Locality::Unidentified,
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

/// The search failed or timed out. Not cached: the next request tries again.
struct PeerSearchFailed;

impl PeerIdentifier {
    /// Searches for the process that owns `peer`, on a blocking thread.
    async fn find_owner(&self, peer: PeerSocket) -> Result<SocketOwner, PeerSearchFailed> {
        let search = Arc::clone(&self.search);
        let permits = Arc::clone(&self.search_permits);
        let searching = async {
            let permit = permits.acquire_owned().await.map_err(std::io::Error::other)?;
            let search_task = tokio::task::spawn_blocking(move || {
                // Released when the search ends, even if the request has given up on it.
                let _permit = permit;
                search.find_owner(peer)
            });
            search_task.await.map_err(std::io::Error::other)?
        };
        let peer = timeout(SEARCH_TIMEOUT, searching).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        peer.map_err(|error| {
            self.warn_once(&error);
            PeerSearchFailed
        })
    }

    /// Logs the first failure as a warning and all others at debug level.
    fn warn_once(&self, error: &std::io::Error) {
        let message = "a local client could not be identified, so it needs a token (`identity.loopback: owner`)";
        if self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "{message}");
        } else {
            tracing::warn!(%error, "{message}; further ones are logged as debug");
        }
    }
}

impl Locality {
    /// Returns why a request without a token is rejected, as the beginning of a sentence that continues with what to send.
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
