//! Whether a request comes from a process on this machine that needs no token (`identity.loopback`). Every other request
//! is treated like one from another machine.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use toolcrib::core::config::Loopback;
use toolcrib::peer::{Holder, Peer, PeerSearch};

use super::Access;

/// Searches through the processes of this machine at once.
const MAX_SEARCHES: usize = 4;
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
    BelowGuard,
    /// This process itself, where that is refused.
    OwnProcess,
    /// The process could not be found.
    Unidentified,
}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPeer {
    /// `None` where it was not looked up, or could not be identified.
    peer: Option<Peer>,
    /// Found out before the first request is answered, and kept for the life of the connection.
    holder: OnceCell<Holder>,
}

/// What identifying the peers of all connections shares.
#[derive(Debug)]
pub(super) struct Peers {
    search: Arc<PeerSearch>,
    turns: Arc<Semaphore>,
    has_warned: AtomicBool,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers {
            search: Arc::default(),
            turns: Arc::new(Semaphore::new(MAX_SEARCHES)),
            has_warned: AtomicBool::new(false),
        }
    }
}

impl Access {
    /// Looks up the client's end of a connection that was just accepted. Asks the kernel, which answers at once.
    pub(crate) fn identify(&self, stream: &tokio::net::TcpStream) -> ConnectionPeer {
        if !self.is_on_loopback() {
            return ConnectionPeer::default();
        }
        let found = stream.peer_addr().and_then(|client| Peer::of_connection(client, stream.local_addr()?));
        if let Err(error) = &found {
            self.peers.warn_once(error);
        }
        ConnectionPeer { peer: found.ok(), holder: OnceCell::new() }
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
            Loopback::Open => return Locality::Local,
            Loopback::Token => return Locality::TokenRequired,
            Loopback::Owner => {}
        }
        let Some(peer) = connection.peer else { return Locality::Unidentified };
        if !peer.is_same_user_or_root() {
            return Locality::OtherUser;
        }
        match connection.holder.get_or_try_init(|| self.peers.holder(peer)).await {
            Ok(Holder::ThisProcess) if self.refuse_own_process => Locality::OwnProcess,
            Ok(Holder::ThisProcess | Holder::Other) => Locality::Local,
            Ok(Holder::BelowGuard) => Locality::BelowGuard,
            Err(Unknown) => Locality::Unidentified,
        }
    }

    /// Looks a connection of this process to itself up, so that a system where that cannot be done is known at the start.
    pub(super) fn try_identifying(&self) {
        if !self.is_on_loopback() || self.loopback() != Loopback::Owner {
            return;
        }
        let tried = TcpListener::bind((self.address.ip(), 0)).and_then(|listener| {
            let server = listener.local_addr()?;
            let client = TcpStream::connect_timeout(&server, SEARCH_TIMEOUT)?;
            Peer::of_connection(client.local_addr()?, server)
        });
        if let Err(error) = tried {
            self.peers.warn_once(&error);
        }
    }
}

/// The search failed, which the next request may try again.
struct Unknown;

impl Peers {
    async fn holder(&self, peer: Peer) -> Result<Holder, Unknown> {
        let search = Arc::clone(&self.search);
        let turns = Arc::clone(&self.turns);
        let searching = async {
            let turn = turns.acquire_owned().await.map_err(std::io::Error::other)?;
            let searched = tokio::task::spawn_blocking(move || {
                // Given back when the search ends, though the request may not have waited for it.
                let _turn = turn;
                search.holder(peer)
            });
            searched.await.map_err(std::io::Error::other)?
        };
        let found = timeout(SEARCH_TIMEOUT, searching).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        found.map_err(|error| {
            self.warn_once(&error);
            Unknown
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
    pub(super) fn reason(self) -> &'static str {
        match self {
            Locality::Local | Locality::Network => "this needs",
            Locality::Forwarded => "a request that a proxy passed on needs",
            Locality::TokenRequired => "`identity.loopback` is `token`, so this needs",
            Locality::OtherUser => {
                "`identity.loopback` is `owner`, and this process belongs to another user, so this needs"
            }
            Locality::BelowGuard => {
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
    headers.keys().any(is_added_by_proxies)
}

fn is_added_by_proxies(name: &HeaderName) -> bool {
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
