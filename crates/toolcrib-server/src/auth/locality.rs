//! Whether a request comes from a process on this machine that needs no token (`identity.loopback`). Every other request
//! is treated like one from another machine.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use toolcrib::core::config::LoopbackAccess;
use toolcrib::peer::{PeerSearch, PeerSocket, SocketOwner};

use super::Authenticator;

/// Searches through the processes of this machine at once.
const MAX_CONCURRENT_SEARCHES: usize = 4;
/// How long a request waits for the search, the wait for its turn included.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a request comes from, as far as that decides whether it needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locality {
    /// A process on this machine that needs no token.
    Local,
    /// This server is for other machines too, or asks every client for a token.
    Network,
    /// A proxy passed it on.
    Forwarded,
    /// `identity.loopback` is `token`.
    TokenRequired,
    /// A process of another user than Toolcrib's own.
    OtherUser,
    /// A process that a Toolcrib started.
    StartedByToolcrib,
    /// This process itself, where that is refused.
    OwnProcess,
    /// The process could not be found.
    Unidentified,
}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPeer {
    /// `None` where it was not looked up, or could not be identified.
    peer: Option<PeerSocket>,
    /// Found out before the first request is answered, and kept for the life of the connection.
    owner: OnceCell<SocketOwner>,
}

/// What identifying the peers of all connections shares.
#[derive(Debug)]
pub(super) struct PeerIdentifier {
    search: Arc<PeerSearch>,
    search_permits: Arc<Semaphore>,
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
    /// Looks up the client's end of a connection that was just accepted. Asks the kernel, which answers at once.
    pub(crate) fn identify_peer(&self, stream: &tokio::net::TcpStream) -> ConnectionPeer {
        if !self.is_on_loopback() {
            return ConnectionPeer::default();
        }
        let found = stream.peer_addr().and_then(|client| PeerSocket::from_connection(client, stream.local_addr()?));
        if let Err(error) = &found {
            self.peer_identifier.warn_once(error);
        }
        ConnectionPeer { peer: found.ok(), owner: OnceCell::new() }
    }

    /// Decided for every request, for the configuration may have changed since the last one. Only the first request of a
    /// connection may have to wait.
    pub(crate) async fn locality(&self, connection: &ConnectionPeer, headers: &HeaderMap) -> Locality {
        if !self.is_on_loopback() {
            return Locality::Network;
        }
        if is_forwarded(headers) {
            return Locality::Forwarded;
        }
        match self.loopback() {
            LoopbackAccess::Open => return Locality::Local,
            LoopbackAccess::Token => return Locality::TokenRequired,
            LoopbackAccess::Owner => {}
        }
        let Some(peer) = connection.peer else { return Locality::Unidentified };
        if !peer.is_same_user_or_root() {
            return Locality::OtherUser;
        }
        match connection.owner.get_or_try_init(|| self.peer_identifier.find_owner(peer)).await {
            Ok(SocketOwner::ThisProcess) if self.refuse_own_process => Locality::OwnProcess,
            Ok(SocketOwner::ThisProcess | SocketOwner::Other) => Locality::Local,
            Ok(SocketOwner::BelowGuard) => Locality::StartedByToolcrib,
            Err(PeerSearchFailed) => Locality::Unidentified,
        }
    }

    /// Looks a connection of this process to itself up, so that a system where that cannot be done is known at the start.
    pub(super) fn probe_peer_identification(&self) {
        if !self.is_on_loopback() || self.loopback() != LoopbackAccess::Owner {
            return;
        }
        let tried = TcpListener::bind((self.address.ip(), 0)).and_then(|listener| {
            let server = listener.local_addr()?;
            let client = TcpStream::connect_timeout(&server, SEARCH_TIMEOUT)?;
            PeerSocket::from_connection(client.local_addr()?, server)
        });
        if let Err(error) = tried {
            self.peer_identifier.warn_once(&error);
        }
    }
}

/// The search failed, which the next request may try again.
struct PeerSearchFailed;

impl PeerIdentifier {
    async fn find_owner(&self, peer: PeerSocket) -> Result<SocketOwner, PeerSearchFailed> {
        let search = Arc::clone(&self.search);
        let turns = Arc::clone(&self.search_permits);
        let searching = async {
            let turn = turns.acquire_owned().await.map_err(std::io::Error::other)?;
            let searched = tokio::task::spawn_blocking(move || {
                // Given back when the search ends, though the request may not have waited for it.
                let _turn = turn;
                search.find_owner(peer)
            });
            searched.await.map_err(std::io::Error::other)?
        };
        let found = timeout(SEARCH_TIMEOUT, searching).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        found.map_err(|error| {
            self.warn_once(&error);
            PeerSearchFailed
        })
    }

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
    /// Why a request without a token is refused: the beginning of a sentence that goes on with what to send.
    pub(super) fn token_reason(self) -> &'static str {
        match self {
            Locality::Local | Locality::Network => "this needs",
            Locality::Forwarded => "a request that a proxy passed on needs",
            Locality::TokenRequired => "`identity.loopback` is `token`, so this needs",
            Locality::OtherUser => {
                "`identity.loopback` is `owner`, and this process belongs to another user, so this needs"
            }
            Locality::StartedByToolcrib => {
                "`identity.loopback` is `owner`, and this process, or one above it, was started by Toolcrib or has a \
                 limit on file locks, by which Toolcrib marks what it starts, so this needs"
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

/// Whether a proxy passed a request on: what it passes on comes from anywhere, however near the proxy is.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(is_proxy_header)
}

fn is_proxy_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    let named = matches!(
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
    named || name.starts_with("x-forwarded")
}

/// Whether `address` is one that only this machine reaches.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
