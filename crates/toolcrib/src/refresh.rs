//! Discovery: who is due, at most so many at once, each source once at a time, each within its own deadline.
//! A failure keeps the last good list; an unchanged list writes no event.

mod ensure;
mod run;
mod told;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolcrib_core::compare::Renamed;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::{Freshness, MAX_BACKOFF};
use toolcrib_core::manifest::{Change, Delta};
use toolcrib_core::source::Kind;
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use tracing::field::display;

use crate::registry::{Registry, Shared, Snapshot};
use crate::store::Failure;
use crate::trace::Trace;

pub use ensure::{Need, Pauses, Pending, PendingSource};

/// Which sources to look at, and how hard.
#[derive(Debug, Clone, Default)]
pub struct Refresh {
    /// All enabled ones when none are named.
    pub sources: Option<Vec<SourceId>>,
    /// Contact a source even when it is fresh.
    pub force: bool,
    /// A call follows: the connection made for discovery is worth keeping.
    pub keep: bool,
    /// What it is part of.
    pub trace: Option<Trace>,
}

/// What came of one source: its delta, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub source: SourceId,
    pub status: Refreshed,
    pub contacted: bool,
    pub added: Vec<String>,
    pub changed: Vec<Change>,
    pub removed: Vec<String>,
    /// Likely renames; both names stand in `removed` and `added` as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    pub unchanged: usize,
    pub inventory_hash: Option<Fingerprint>,
    pub elapsed_ms: u64,
    pub error: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Refreshed {
    /// The source answered and its list is new or changed.
    Success,
    /// The source answered with the list we had.
    Unchanged,
    /// The list is recent enough; nobody was contacted.
    Fresh,
    Failed,
    Disabled,
}

impl Refreshed {
    pub fn name(self) -> &'static str {
        match self {
            Refreshed::Success => "success",
            Refreshed::Unchanged => "unchanged",
            Refreshed::Fresh => "fresh",
            Refreshed::Failed => "failed",
            Refreshed::Disabled => "disabled",
        }
    }
}

/// What comes in a burst of announcements leads to one refresh.
const GATHER: Duration = Duration::from_millis(100);
/// A source that announces for ever is asked now and then.
const PAUSE: Duration = Duration::from_secs(1);

/// Discoveries under way in this process: whoever wants the same source waits for the same run.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    running: Mutex<HashMap<SourceId, (Arc<Source>, Run)>>,
    /// Sources that announced a change and are being looked after; true when they did so again meanwhile.
    announced: Mutex<HashMap<SourceId, bool>>,
    /// Whether what is missing or stale is being looked after behind the scenes.
    soon: AtomicBool,
}

type Run = watch::Receiver<Option<Outcome>>;

impl Runs {
    fn running(&self) -> MutexGuard<'_, HashMap<SourceId, (Arc<Source>, Run)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announced(&self) -> MutexGuard<'_, HashMap<SourceId, bool>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a source has announced more than was looked at; if not, it is looked after no longer.
    fn announced_again(&self, id: &SourceId) -> bool {
        let mut announced = self.announced();
        let again = announced.get(id).copied().unwrap_or_default();
        if !again {
            announced.remove(id);
        }
        again
    }
}

impl Registry {
    /// Looks at sources now and says what changed, one outcome for each, in the order of their ids.
    pub async fn refresh(&self, refresh: Refresh) -> Vec<Outcome> {
        self.shared.refresh(refresh).await
    }

    /// Looks at one source now, whichever sources `refresh` names.
    pub async fn refresh_source(&self, id: &SourceId, refresh: Refresh) -> Result<Outcome> {
        let outcomes = self.refresh(Refresh { sources: Some(vec![id.clone()]), ..refresh }).await;
        let none = || Error::new(Code::Internal, format!("the discovery of `{id}` gave no outcome"));
        outcomes.into_iter().next().ok_or_else(none)
    }

    /// The enabled sources that are not fresh.
    pub fn due(&self) -> Vec<SourceId> {
        let now = self.shared.now.load_full();
        let enabled = now.inventory.sources().filter(|(id, state)| self.shared.enabled_here(id, state.enabled));
        enabled.map(|(id, _)| id.clone()).filter(|id| self.shared.freshness(&now, id) != Freshness::Fresh).collect()
    }
}

impl Shared {
    pub(crate) async fn refresh(self: &Arc<Self>, refresh: Refresh) -> Vec<Outcome> {
        if refresh.force
            && let Err(error) = self.catch_up().await
        {
            // What others found before now does not meet this need; without their news one may be contacted for nothing.
            tracing::debug!(%error, "cannot take in what others wrote before a refresh");
        }
        let now = self.now.load_full();
        let mut ids = match &refresh.sources {
            Some(ids) => ids.clone(),
            None => now.inventory.sources().map(|(id, _)| id).chain(now.invalid.keys()).cloned().collect(),
        };
        ids.sort();
        ids.dedup();
        self.announce_discovery(&ids, refresh.force, refresh.trace.as_ref());
        let mut outcomes = join_all(ids.into_iter().map(|id| self.clone().refresh_one(id, refresh.clone()))).await;
        outcomes.sort_by(|one, other| one.source.cmp(&other.source));
        outcomes
    }

    fn announce_discovery(&self, ids: &[SourceId], force: bool, trace: Option<&Trace>) {
        let now = self.now.load();
        let servers = ids.iter().filter(|id| self.asks(&now, id, force)).count();
        if servers > 0 {
            let trace_id = self.parent(trace).map(|trace| display(trace.id()));
            tracing::info!(trace_id, server_count = servers, "tools.discovery.started");
        }
    }

    /// A source says that its tools changed: it is asked for them, soon, and once for all it says until then.
    pub(crate) fn heed(self: Arc<Self>, id: SourceId) {
        let looked_after = self.runs.announced().insert(id.clone(), true).is_some();
        if looked_after {
            return;
        }
        let (tasks, ended) = (self.tasks.clone(), self.ended.clone());
        tasks.spawn(async move {
            ended.run_until_cancelled(self.look_after(id)).await;
        });
    }

    async fn look_after(self: Arc<Self>, id: SourceId) {
        let runs = &self.runs;
        while runs.announced_again(&id) {
            tokio::time::sleep(GATHER).await;
            runs.announced().insert(id.clone(), false);
            // A discovery under way may have read the list before it changed.
            let running = runs.running().get(&id).cloned();
            if let Some((_, mut running)) = running {
                let _either_way = running.wait_for(Option::is_some).await;
            }
            self.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, ..Refresh::default() }).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A discovery under way may have read the list before it was invalidated, and its end says that all is well.
    pub(crate) fn invalidate_after_run(self: Arc<Self>, id: SourceId) {
        let running = self.runs.running().get(&id).cloned();
        let Some((_, mut running)) = running else { return };
        let (tasks, ended) = (self.tasks.clone(), self.ended.clone());
        tasks.spawn(ended.run_until_cancelled_owned(async move {
            drop(running.wait_for(Option::is_some).await);
            let again = async {
                self.store.invalidate(&id).await?;
                self.catch_up().await
            };
            if let Err(error) = again.await {
                tracing::warn!(%error, server_name = %id, "what was invalidated during its discovery counts as fresh");
            }
        }));
    }

    /// Whether a refresh contacts a source. Built-in tools are at hand: to read them is no discovery.
    fn asks(&self, now: &Snapshot, id: &SourceId, force: bool) -> bool {
        let enabled = now.inventory.source(id).is_some_and(|state| self.enabled_here(id, state.enabled));
        let server = now.sources.get(id).is_some_and(|source| !source.kind.is_builtin());
        enabled && server && (force || self.freshness(now, id) != Freshness::Fresh)
    }

    fn count_need(&self, id: &SourceId, freshness: Freshness, trace: Option<&Trace>) {
        let hit = freshness == Freshness::Fresh;
        self.counters.needed(id, hit);
        self.meters.needed(id, hit);
        let trace_id = self.parent(trace).map(|trace| display(trace.id()));
        match hit {
            true => tracing::info!(trace_id, server_name = %id, "tools.cache.hit"),
            false => tracing::info!(trace_id, server_name = %id, "tools.cache.miss"),
        }
    }

    /// Whether a source that failed is left alone for now.
    pub(crate) fn backing_off(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        let now = self.options.clock.now();
        let not_before = snapshot.standings.get(id).and_then(|standing| standing.not_before);
        // A pause that is longer than any was written before the clock was set back.
        let pause = not_before.filter(|not_before| *not_before <= now.plus(MAX_BACKOFF));
        self.failed_before(snapshot, id) && pause.is_some_and(|not_before| not_before > now)
    }

    /// Whether the last attempt to discover a source failed. One that connects to something else now deserves a try.
    fn failed_before(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        let Some(standing) = snapshot.standings.get(id) else { return false };
        let here = snapshot.connects_to.get(id).copied().flatten();
        standing.failures > 0 && here.is_none_or(|here| standing.tried == Some(here))
    }

    /// Joins the discovery of a source that is under way in this process, or starts one. The run belongs to the
    /// registry, so that a caller who leaves does not end it for the others.
    async fn refresh_one(self: Arc<Self>, id: SourceId, refresh: Refresh) -> Outcome {
        let now = self.now.load_full();
        let Some(source) = now.sources.get(&id).cloned() else {
            let error = match now.invalid.get(&id) {
                Some(failure) => failure.clone(),
                None => Failure::of(&self.unknown_source(id.as_str())),
            };
            return Outcome { error: Some(error), ..Outcome::new(id, Refreshed::Failed) };
        };
        if !now.inventory.source(&id).is_some_and(|state| self.enabled_here(&id, state.enabled)) {
            return Outcome::new(id, Refreshed::Disabled);
        }
        if !refresh.force && self.freshness(&now, &id) == Freshness::Fresh {
            let inventory_hash = now.inventory.source(&id).and_then(|state| state.manifest);
            let unchanged = now.catalog.tool_count(&id);
            let outcome = Outcome { inventory_hash, unchanged, ..Outcome::new(id, Refreshed::Fresh) };
            self.tell_fresh(&source, &outcome, refresh.trace.as_ref());
            return outcome;
        }
        let mut run = self.clone().join_or_start(&id, source, refresh);
        let outcome = run.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            let error = Failure::new(Code::ToolUnavailable, "the registry was closed");
            Outcome { error: Some(error), ..Outcome::new(id, Refreshed::Failed) }
        })
    }

    fn join_or_start(self: Arc<Self>, id: &SourceId, source: Arc<Source>, refresh: Refresh) -> Run {
        let mut running = self.runs.running();
        // A run that ended without a word, or is of another declaration, is not worth waiting for.
        let joined = running.get(id).filter(|(of, run)| *of == source && run.has_changed().is_ok());
        if let Some((_, run)) = joined {
            return run.clone();
        }
        let (done, run) = watch::channel(None);
        // Taken now: until its turn comes, this process may have heard that another one has met the need.
        let before = self.standing(id);
        running.insert(id.clone(), (source.clone(), run.clone()));
        let shared = self.clone();
        let ended: CancellationToken = self.ended.clone();
        let span = tracing::Span::current();
        let task = async move {
            // When the registry ends, dropping the run ends its connection and its process.
            let in_turn = async {
                let _turn = shared.turns.acquire().await;
                shared.discover(&source, &refresh, &before).await
            };
            let outcome = ended.run_until_cancelled(in_turn).await;
            let mut running = shared.runs.running();
            if running.get(&source.id).is_some_and(|(of, _)| Arc::ptr_eq(of, &source)) {
                running.remove(&source.id);
            }
            drop(running);
            let _nobody_waits = done.send(outcome);
        };
        self.tasks.spawn(tracing::Instrument::instrument(task, span));
        run
    }

    /// A first discovery of a server that we start may have to install it.
    fn discovery_timeout(&self, source: &Source, known: bool) -> Duration {
        let is_first_start = matches!(source.kind, Kind::Stdio(_)) && !known;
        if is_first_start { source.settings.first_start_timeout() } else { source.settings.discovery_timeout() }
    }
}

impl Outcome {
    fn new(source: SourceId, status: Refreshed) -> Outcome {
        let Delta { added, changed, removed, renamed, unchanged } = Delta::default();
        let (inventory_hash, error) = (None, None);
        Outcome {
            source,
            status,
            contacted: false,
            added,
            changed,
            removed,
            renamed,
            unchanged,
            inventory_hash,
            elapsed_ms: 0,
            error,
        }
    }
}
