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
    level: usize,
    watched: BTreeSet<String>,
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
        self.all().entry(request.peer.id).or_default().level = level;
        empty()
    }

    /// Whether logs are for this client at all: in the newest version each request says so, and how much.
    pub(super) fn hears_logs(&self, peer: &Peer, meta: Option<&RawValue>) -> bool {
        match peer.era {
            Era::Legacy(_) => true,
            Era::Modern => {
                let asked: Option<Meta> = meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
                let level = asked.and_then(|meta| rank(&meta.level?));
                if let Some(level) = level {
                    self.all().entry(peer.id).or_default().level = level;
                }
                level.is_some()
            }
        }
    }

    /// Whether a client wants to hear what a source says. A level that is none passes.
    pub(super) fn wants(&self, peer: &Peer, said: &Said) -> bool {
        let wanted: Option<Wanted> =
            said.params.as_deref().and_then(|raw| serde_json::from_str(RawValue::get(raw)).ok());
        let level = wanted.and_then(|wanted| rank(&wanted.level));
        let least = self.all().get(&peer.id).map_or(0, |visitor| visitor.level);
        level.is_none_or(|level| level >= least)
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
