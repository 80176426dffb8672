//! What is remembered of a client while it is there: the list it has seen, how much of a log it wants, what it watches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib::call::Said;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib_mcp::Era;
use toolcrib_mcp::server::{Peer, Request};

use super::answer::{Answer, empty, invalid, parameters};

/// The protocol's levels, the least first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

#[derive(Debug, Default)]
pub(super) struct Visitors(Mutex<HashMap<u64, Visitor>>);

#[derive(Debug, Default)]
struct Visitor {
    listed: Option<Fingerprint>,
    /// A position in `LEVELS`.
    level: Option<usize>,
    watched: BTreeSet<String>,
}

/// How much of a log a client wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    Nothing,
    /// It did not say; so what the source finds worth saying.
    Anything,
    /// A position in `LEVELS`, and what is above it.
    From(usize),
}

impl Logs {
    pub(super) fn level(self) -> Option<String> {
        match self {
            Logs::Nothing | Logs::Anything => None,
            Logs::From(level) => LEVELS.get(level).map(|level| (*level).to_owned()),
        }
    }

    /// Whether what a source says is among it. A level that is none passes.
    pub(super) fn include(self, said: &Said) -> bool {
        let wanted = || -> Option<Wanted> { serde_json::from_str(said.params.as_deref()?.get()).ok() };
        match self {
            Logs::Nothing => false,
            Logs::Anything => true,
            Logs::From(least) => wanted().and_then(|said| rank(&said.level)).is_none_or(|level| level >= least),
        }
    }
}

#[derive(Deserialize)]
struct Wanted {
    level: String,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<String>,
}

impl Visitors {
    /// Whether it watched anything.
    pub(super) fn forget(&self, id: u64) -> bool {
        self.all().remove(&id).is_some_and(|visitor| !visitor.watched.is_empty())
    }

    pub(super) fn has_listed(&self, peer: &Peer, listed: Fingerprint) {
        self.all().entry(peer.id).or_default().listed = Some(listed);
    }

    /// The same for one that is still there.
    pub(super) fn was_told(&self, peer: &Peer, listed: Fingerprint) {
        if let Some(visitor) = self.all().get_mut(&peer.id) {
            visitor.listed = Some(listed);
        }
    }

    pub(super) fn listed(&self, peer: &Peer) -> Option<Fingerprint> {
        self.all().get(&peer.id).and_then(|visitor| visitor.listed)
    }

    pub(super) fn set_level(&self, request: &Request) -> Answer {
        let Wanted { level } = parameters(request.params.as_deref())?;
        let level = rank(&level).ok_or_else(|| invalid(&format!("`level` is one of {}", LEVELS.join(", "))))?;
        self.all().entry(request.peer.id).or_default().level = Some(level);
        empty()
    }

    /// What a client hears of a log during a request. In the newest version each request says it; so does one that such
    /// a client makes through a bridge.
    pub(super) fn logs(&self, peer: &Peer, meta: Option<&RawValue>) -> Logs {
        let asked: Option<Meta> = meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
        let now = asked.and_then(|meta| rank(&meta.level?));
        match (now, peer.era) {
            (Some(level), _) => Logs::From(level),
            (None, Era::Modern) => Logs::Nothing,
            (None, Era::Legacy(_)) => {
                let once = self.all().get(&peer.id).and_then(|visitor| visitor.level);
                once.map_or(Logs::Anything, Logs::From)
            }
        }
    }

    /// Whether it did not watch this before.
    pub(super) fn watch(&self, peer: &Peer, uri: &str) -> bool {
        self.all().entry(peer.id).or_default().watched.insert(uri.to_owned())
    }

    pub(super) fn unwatch(&self, peer: &Peer, uri: &str) {
        if let Some(visitor) = self.all().get_mut(&peer.id) {
            visitor.watched.remove(uri);
        }
    }

    pub(super) fn watches(&self, peer: &Peer, uri: &str) -> bool {
        self.all().get(&peer.id).is_some_and(|visitor| visitor.watched.contains(uri))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Visitor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rank(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == level)
}
