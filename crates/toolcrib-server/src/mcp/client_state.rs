//! State kept per connected client: the lists it last saw, its log level, and its resource subscriptions.
//!
//! An entry is made when there is something to remember and removed when the client disconnects. A stateless client has
//! a peer of its own for each request, or for the stream that it listens on.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib_mcp::Era;
use toolcrib_mcp::server::{McpPeer, McpRequest};

use super::response::{McpResult, empty_result, invalid_params, parse_params};

/// Log levels of the protocol, least severe first.
const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// States of all connected clients, by the id of the peer.
#[derive(Debug, Default)]
pub(super) struct ClientStates(Mutex<HashMap<u64, ClientState>>);

/// State of one client. Everything is optional, because clients use different parts of the protocol.
#[derive(Debug, Default)]
struct ClientState {
    /// Fingerprint of each list that the client last got or was notified about, by [`ClientList`].
    last_lists: KnownLists,
    /// Index into [`LOG_LEVELS`], set by `logging/setLevel`.
    log_level: Option<usize>,
    /// URIs of subscribed resources, as the client knows them.
    subscriptions: BTreeSet<String>,
}

/// A list whose changes a client is notified about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientList {
    Tools,
    Prompts,
    /// Resources and resource templates, which have one notification.
    Resources,
}

/// Fingerprints of the lists that a client knows, by [`ClientList`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownLists([Option<Fingerprint>; 3]);

impl KnownLists {
    /// Returns the fingerprint of a list.
    pub(super) fn get(&self, list: ClientList) -> Option<Fingerprint> {
        self.0[list as usize]
    }

    /// Replaces the fingerprint of a list.
    pub(super) fn set(&mut self, list: ClientList, fingerprint: Fingerprint) {
        self.0[list as usize] = Some(fingerprint);
    }
}

/// Which log messages a client gets during a call. Computed once per call from the request and the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogFilter {
    /// No messages: a modern client that named no level.
    Off,
    /// The client set no level: everything that the source sends.
    All,
    /// Messages of this level and above, as an index into [`LOG_LEVELS`].
    AtLeast(usize),
}

impl LogFilter {
    /// Name of the level, for sources that expect it with each request.
    pub(super) fn level_name(self) -> Option<String> {
        match self {
            LogFilter::Off | LogFilter::All => None,
            LogFilter::AtLeast(level) => LOG_LEVELS.get(level).map(|level| (*level).to_owned()),
        }
    }

    /// True when a notification with these parameters passes the filter. One without a valid level passes.
    pub(super) fn includes(self, params: Option<&RawValue>) -> bool {
        let parse = || -> Option<LevelParams> { serde_json::from_str(params?.get()).ok() };
        match self {
            LogFilter::Off => false,
            LogFilter::All => true,
            LogFilter::AtLeast(min_level) => {
                parse().and_then(|params| level_rank(&params.level)).is_none_or(|level| level >= min_level)
            }
        }
    }
}

/// The `level` of `logging/setLevel` and of `notifications/message`.
#[derive(Deserialize)]
struct LevelParams {
    level: String,
}

/// The log level in the `_meta` of a request (protocol 2026-07-28).
#[derive(Deserialize)]
struct LogLevelMeta {
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<String>,
}

impl ClientStates {
    /// Forgets a client. Returns true when it had subscriptions.
    pub(super) fn remove(&self, id: u64) -> bool {
        self.0.lock().remove(&id).is_some_and(|client| !client.subscriptions.is_empty())
    }

    /// Records the list that a client got.
    pub(super) fn record_list(&self, peer: &McpPeer, list: ClientList, fingerprint: Fingerprint) {
        self.0.lock().entry(peer.id).or_default().last_lists.set(list, fingerprint);
    }

    /// Records the list that a client was notified about, unless the client has disconnected meanwhile.
    pub(super) fn update_list(&self, peer: &McpPeer, list: ClientList, fingerprint: Fingerprint) {
        if let Some(client) = self.0.lock().get_mut(&peer.id) {
            client.last_lists.set(list, fingerprint);
        }
    }

    /// Returns the lists that a client knows.
    pub(super) fn last_lists(&self, peer: &McpPeer) -> KnownLists {
        self.0.lock().get(&peer.id).map(|client| client.last_lists).unwrap_or_default()
    }

    /// Handles `logging/setLevel`.
    pub(super) fn set_log_level(&self, request: &McpRequest) -> McpResult {
        let LevelParams { level } = parse_params(request.params.as_deref())?;
        let level = level_rank(&level)
            .ok_or_else(|| invalid_params(&format!("`level` is one of {}", LOG_LEVELS.join(", "))))?;
        self.0.lock().entry(request.peer.id).or_default().log_level = Some(level);
        empty_result()
    }

    /// Returns the log filter of one request. A level in `_meta` takes precedence, also on a legacy connection: a bridge
    /// forwards requests of modern clients over one. Without it modern clients get no logs, and legacy clients what they
    /// set with `logging/setLevel`.
    pub(super) fn log_filter(&self, peer: &McpPeer, meta: Option<&RawValue>) -> LogFilter {
        let meta: Option<LogLevelMeta> = meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
        let request_level = meta.and_then(|meta| level_rank(&meta.level?));
        match (request_level, peer.era) {
            (Some(level), _) => LogFilter::AtLeast(level),
            (None, Era::Modern) => LogFilter::Off,
            (None, Era::Legacy(_)) => {
                let session_level = self.0.lock().get(&peer.id).and_then(|client| client.log_level);
                session_level.map_or(LogFilter::All, LogFilter::AtLeast)
            }
        }
    }

    /// Adds a subscription. Returns false when the client had it already.
    pub(super) fn subscribe(&self, peer: &McpPeer, uri: &str) -> bool {
        self.0.lock().entry(peer.id).or_default().subscriptions.insert(uri.to_owned())
    }

    /// Removes a subscription, if the client has it.
    pub(super) fn unsubscribe(&self, peer: &McpPeer, uri: &str) {
        if let Some(client) = self.0.lock().get_mut(&peer.id) {
            client.subscriptions.remove(uri);
        }
    }

    /// True when a client subscribed to a resource, by its public URI.
    pub(super) fn is_subscribed(&self, peer: &McpPeer, uri: &str) -> bool {
        self.0.lock().get(&peer.id).is_some_and(|client| client.subscriptions.contains(uri))
    }
}

/// Returns the index of a level in [`LOG_LEVELS`].
fn level_rank(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}
