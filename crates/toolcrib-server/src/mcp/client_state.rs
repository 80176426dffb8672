//! What is remembered of a client while it is there: the list it has seen, how much of a log it wants, what it watches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib::call::CallNotification;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib_mcp::Era;
use toolcrib_mcp::server::{McpPeer, McpRequest};

use super::response::{McpResult, empty_result, invalid_params, parse_params};

/// The protocol's levels, the least first.
const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

#[derive(Debug, Default)]
pub(super) struct ClientStates(Mutex<HashMap<u64, ClientState>>);

#[derive(Debug, Default)]
struct ClientState {
    last_list: Option<Fingerprint>,
    /// A position in `LEVELS`.
    log_level: Option<usize>,
    subscriptions: BTreeSet<String>,
}

/// How much of a log a client wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogFilter {
    Off,
    /// It did not say; so what the source finds worth saying.
    All,
    /// A position in `LEVELS`, and what is above it.
    AtLeast(usize),
}

impl LogFilter {
    pub(super) fn level_name(self) -> Option<String> {
        match self {
            LogFilter::Off | LogFilter::All => None,
            LogFilter::AtLeast(level) => LOG_LEVELS.get(level).map(|level| (*level).to_owned()),
        }
    }

    /// Whether what a source says is among it. A level that is none passes.
    pub(super) fn includes(self, said: &CallNotification) -> bool {
        let wanted = || -> Option<LevelParams> { serde_json::from_str(said.params.as_deref()?.get()).ok() };
        match self {
            LogFilter::Off => false,
            LogFilter::All => true,
            LogFilter::AtLeast(least) => {
                wanted().and_then(|said| level_rank(&said.level)).is_none_or(|level| level >= least)
            }
        }
    }
}

#[derive(Deserialize)]
struct LevelParams {
    level: String,
}

#[derive(Deserialize)]
struct LogLevelMeta {
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<String>,
}

impl ClientStates {
    /// Whether it watched anything.
    pub(super) fn remove(&self, id: u64) -> bool {
        self.lock().remove(&id).is_some_and(|principal| !principal.subscriptions.is_empty())
    }

    pub(super) fn record_list(&self, peer: &McpPeer, listed: Fingerprint) {
        self.lock().entry(peer.id).or_default().last_list = Some(listed);
    }

    /// The same for one that is still there.
    pub(super) fn update_list(&self, peer: &McpPeer, listed: Fingerprint) {
        if let Some(principal) = self.lock().get_mut(&peer.id) {
            principal.last_list = Some(listed);
        }
    }

    pub(super) fn last_list(&self, peer: &McpPeer) -> Option<Fingerprint> {
        self.lock().get(&peer.id).and_then(|principal| principal.last_list)
    }

    pub(super) fn set_log_level(&self, request: &McpRequest) -> McpResult {
        let LevelParams { level } = parse_params(request.params.as_deref())?;
        let level = level_rank(&level)
            .ok_or_else(|| invalid_params(&format!("`level` is one of {}", LOG_LEVELS.join(", "))))?;
        self.lock().entry(request.peer.id).or_default().log_level = Some(level);
        empty_result()
    }

    /// What a client hears of a log during a request. In the newest version each request says it; so does one that such
    /// a client makes through a bridge.
    pub(super) fn log_filter(&self, peer: &McpPeer, meta: Option<&RawValue>) -> LogFilter {
        let asked: Option<LogLevelMeta> = meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
        let now = asked.and_then(|meta| level_rank(&meta.level?));
        match (now, peer.era) {
            (Some(level), _) => LogFilter::AtLeast(level),
            (None, Era::Modern) => LogFilter::Off,
            (None, Era::Legacy(_)) => {
                let once = self.lock().get(&peer.id).and_then(|principal| principal.log_level);
                once.map_or(LogFilter::All, LogFilter::AtLeast)
            }
        }
    }

    /// Whether it did not watch this before.
    pub(super) fn subscribe(&self, peer: &McpPeer, uri: &str) -> bool {
        self.lock().entry(peer.id).or_default().subscriptions.insert(uri.to_owned())
    }

    pub(super) fn unsubscribe(&self, peer: &McpPeer, uri: &str) {
        if let Some(principal) = self.lock().get_mut(&peer.id) {
            principal.subscriptions.remove(uri);
        }
    }

    pub(super) fn is_subscribed(&self, peer: &McpPeer, uri: &str) -> bool {
        self.lock().get(&peer.id).is_some_and(|principal| principal.subscriptions.contains(uri))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, ClientState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn level_rank(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}
