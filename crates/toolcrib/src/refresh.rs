//! Discovery: who is due, at most so many at once, each source once at a time, each within its own deadline.
//! A failure keeps the last good list; an unchanged list writes no event.

mod discovery;
mod ensure;
mod telemetry;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolcrib_core::compare::ToolRename;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::{Freshness, MAX_BACKOFF};
use toolcrib_core::manifest::{Delta, ToolChange};
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use tracing::field::display;

use crate::registry::{Registry, RegistryInner, Snapshot};
use crate::store::ErrorSummary;
use crate::trace::Trace;

pub use ensure::{BackoffPolicy, PendingDiscovery, PendingSource, RequiredFreshness};

/// Which sources to look at, and how hard.
#[derive(Debug, Clone, Default)]
pub struct Refresh {
    /// All enabled ones when none are named.
    pub sources: Option<Vec<SourceId>>,
    /// Contact a source even when it is fresh.
    pub force: bool,
    /// A call follows: the connection made for discovery is worth keeping.
    pub keep_connection: bool,
    /// What it is part of.
    pub trace: Option<Trace>,
}

/// What came of one source: its delta, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RefreshOutcome {
    pub source: SourceId,
    pub status: RefreshStatus,
    pub contacted: bool,
    pub added: Vec<String>,
    pub changed: Vec<ToolChange>,
    pub removed: Vec<String>,
    /// Likely renames; both names stand in `removed` and `added` as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<ToolRename>,
    pub unchanged: usize,
    pub inventory_hash: Option<Fingerprint>,
    pub elapsed_ms: u64,
    pub error: Option<ErrorSummary>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RefreshStatus {
    /// The source answered and its list is new or changed.
    Success,
    /// The source answered with the list we had.
    Unchanged,
    /// The list is recent enough; nobody was contacted.
    Fresh,
    Failed,
    Disabled,
}

impl RefreshStatus {
    pub fn name(self) -> &'static str {
        match self {
            RefreshStatus::Success => "success",
            RefreshStatus::Unchanged => "unchanged",
            RefreshStatus::Fresh => "fresh",
            RefreshStatus::Failed => "failed",
            RefreshStatus::Disabled => "disabled",
        }
    }
}

/// What comes in a burst of announcements leads to one refresh.
const ANNOUNCEMENT_DEBOUNCE: Duration = Duration::from_millis(100);
/// A source that announces for ever is asked now and then.
const MIN_ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Discoveries under way in this process: whoever wants the same source waits for the same run.
#[derive(Debug, Default)]
pub(crate) struct InFlightDiscoveries {
    running: Mutex<HashMap<SourceId, (Arc<Source>, OutcomeReceiver)>>,
    /// Sources that announced a change and are being looked after; true when they did so again meanwhile.
    announced: Mutex<HashMap<SourceId, bool>>,
    /// Whether what is missing or stale is being looked after behind the scenes.
    background_refresh: AtomicBool,
}

type OutcomeReceiver = watch::Receiver<Option<RefreshOutcome>>;

impl InFlightDiscoveries {
    fn running(&self) -> MutexGuard<'_, HashMap<SourceId, (Arc<Source>, OutcomeReceiver)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announced(&self) -> MutexGuard<'_, HashMap<SourceId, bool>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a source has announced more than was looked at; if not, it is looked after no longer.
    fn has_new_announcement(&self, id: &SourceId) -> bool {
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
    pub async fn refresh(&self, refresh: Refresh) -> Vec<RefreshOutcome> {
        self.shared.refresh(refresh).await
    }

    /// Looks at one source now, whichever sources `refresh` names.
    pub async fn refresh_source(&self, id: &SourceId, refresh: Refresh) -> Result<RefreshOutcome> {
        let outcomes = self.refresh(Refresh { sources: Some(vec![id.clone()]), ..refresh }).await;
        let none = || Error::new(Code::Internal, format!("the discovery of `{id}` gave no outcome"));
        outcomes.into_iter().next().ok_or_else(none)
    }

    /// The enabled sources that are not fresh.
    pub fn due_sources(&self) -> Vec<SourceId> {
        let now = self.shared.snapshot.load_full();
        let enabled = now.inventory.sources().filter(|(id, state)| self.shared.is_enabled(id, state.enabled));
        enabled.map(|(id, _)| id.clone()).filter(|id| self.shared.freshness(&now, id) != Freshness::Fresh).collect()
    }
}

impl RegistryInner {
    pub(crate) async fn refresh(self: &Arc<Self>, refresh: Refresh) -> Vec<RefreshOutcome> {
        if refresh.force
            && let Err(error) = self.catch_up().await
        {
            // What others found before now does not meet this need; without their news one may be contacted for nothing.
            tracing::debug!(%error, "cannot take in what others wrote before a refresh");
        }
        let now = self.snapshot.load_full();
        let mut ids = match &refresh.sources {
            Some(ids) => ids.clone(),
            None => now.inventory.sources().map(|(id, _)| id).chain(now.invalid_sources.keys()).cloned().collect(),
        };
        ids.sort();
        ids.dedup();
        self.log_discovery_start(&ids, refresh.force, refresh.trace.as_ref());
        let mut outcomes = join_all(ids.into_iter().map(|id| self.clone().refresh_source(id, refresh.clone()))).await;
        outcomes.sort_by(|one, other| one.source.cmp(&other.source));
        outcomes
    }

    fn log_discovery_start(&self, ids: &[SourceId], force: bool, trace: Option<&Trace>) {
        let now = self.snapshot.load();
        let servers = ids.iter().filter(|id| self.will_contact(&now, id, force)).count();
        if servers > 0 {
            let trace_id = self.parent_trace(trace).map(|trace| display(trace.id()));
            tracing::info!(trace_id, server_count = servers, "tools.discovery.started");
        }
    }

    /// A source says that its tools changed: it is asked for them, soon, and once for all it says until then.
    pub(crate) fn on_tools_changed(self: Arc<Self>, id: SourceId) {
        let looked_after = self.discoveries.announced().insert(id.clone(), true).is_some();
        if looked_after {
            return;
        }
        let (tasks, ended) = (self.tasks.clone(), self.shutdown.clone());
        tasks.spawn(async move {
            ended.run_until_cancelled(self.coalesce_announcements(id)).await;
        });
    }

    async fn coalesce_announcements(self: Arc<Self>, id: SourceId) {
        let runs = &self.discoveries;
        while runs.has_new_announcement(&id) {
            tokio::time::sleep(ANNOUNCEMENT_DEBOUNCE).await;
            runs.announced().insert(id.clone(), false);
            // A discovery under way may have read the list before it changed.
            let running = runs.running().get(&id).cloned();
            if let Some((_, mut running)) = running {
                let _either_way = running.wait_for(Option::is_some).await;
            }
            self.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, ..Refresh::default() }).await;
            tokio::time::sleep(MIN_ANNOUNCEMENT_INTERVAL).await;
        }
    }

    /// A discovery under way may have read the list before it was invalidated, and its end says that all is well.
    pub(crate) fn invalidate_after_run(self: Arc<Self>, id: SourceId) {
        let running = self.discoveries.running().get(&id).cloned();
        let Some((_, mut running)) = running else { return };
        let (tasks, ended) = (self.tasks.clone(), self.shutdown.clone());
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
    fn will_contact(&self, now: &Snapshot, id: &SourceId, force: bool) -> bool {
        let enabled = now.inventory.source(id).is_some_and(|state| self.is_enabled(id, state.enabled));
        let server = now.effective_sources.get(id).is_some_and(|source| !source.kind.is_builtin());
        enabled && server && (force || self.freshness(now, id) != Freshness::Fresh)
    }

    fn count_cache_lookup(&self, id: &SourceId, freshness: Freshness, trace: Option<&Trace>) {
        let hit = freshness == Freshness::Fresh;
        self.usage.count_lookup(id, hit);
        self.metrics.record_lookup(id, hit);
        let trace_id = self.parent_trace(trace).map(|trace| display(trace.id()));
        match hit {
            true => tracing::info!(trace_id, server_name = %id, "tools.cache.hit"),
            false => tracing::info!(trace_id, server_name = %id, "tools.cache.miss"),
        }
    }

    /// Whether a source that failed is left alone for now.
    pub(crate) fn is_backing_off(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        let now = self.options.clock.now();
        let not_before = snapshot.statuses.get(id).and_then(|standing| standing.not_before);
        // A pause that is longer than any was written before the clock was set back.
        let pause = not_before.filter(|not_before| *not_before <= now.plus(MAX_BACKOFF));
        self.has_failed_before(snapshot, id) && pause.is_some_and(|not_before| not_before > now)
    }

    /// Whether the last attempt to discover a source failed. One that connects to something else now deserves a try.
    fn has_failed_before(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        let Some(standing) = snapshot.statuses.get(id) else { return false };
        let here = snapshot.connection_fingerprints.get(id).copied().flatten();
        standing.failures > 0 && here.is_none_or(|here| standing.attempted_fingerprint == Some(here))
    }

    /// Joins the discovery of a source that is under way in this process, or starts one. The run belongs to the
    /// registry, so that a caller who leaves does not end it for the others.
    async fn refresh_source(self: Arc<Self>, id: SourceId, refresh: Refresh) -> RefreshOutcome {
        let now = self.snapshot.load_full();
        let Some(source) = now.effective_sources.get(&id).cloned() else {
            let error = match now.invalid_sources.get(&id) {
                Some(failure) => failure.clone(),
                None => ErrorSummary::from_error(&self.unknown_source_error(id.as_str())),
            };
            return RefreshOutcome { error: Some(error), ..RefreshOutcome::new(id, RefreshStatus::Failed) };
        };
        if !now.inventory.source(&id).is_some_and(|state| self.is_enabled(&id, state.enabled)) {
            return RefreshOutcome::new(id, RefreshStatus::Disabled);
        }
        if !refresh.force && self.freshness(&now, &id) == Freshness::Fresh {
            let inventory_hash = now.inventory.source(&id).and_then(|state| state.manifest);
            let unchanged = now.catalog.tool_count(&id);
            let outcome = RefreshOutcome { inventory_hash, unchanged, ..RefreshOutcome::new(id, RefreshStatus::Fresh) };
            self.record_fresh_span(&source, &outcome, refresh.trace.as_ref());
            return outcome;
        }
        let mut run = self.clone().join_or_start(&id, source, refresh);
        let outcome = run.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            let error = ErrorSummary::new(Code::ToolUnavailable, "the registry was closed");
            RefreshOutcome { error: Some(error), ..RefreshOutcome::new(id, RefreshStatus::Failed) }
        })
    }

    fn join_or_start(self: Arc<Self>, id: &SourceId, source: Arc<Source>, refresh: Refresh) -> OutcomeReceiver {
        let mut running = self.discoveries.running();
        // A run that ended without a word, or is of another declaration, is not worth waiting for.
        let joined = running.get(id).filter(|(of, run)| *of == source && run.has_changed().is_ok());
        if let Some((_, run)) = joined {
            return run.clone();
        }
        let (done, run) = watch::channel(None);
        // Taken now: until its turn comes, this process may have heard that another one has met the need.
        let before = self.source_status(id);
        running.insert(id.clone(), (source.clone(), run.clone()));
        let shared = self.clone();
        let ended: CancellationToken = self.shutdown.clone();
        let span = tracing::Span::current();
        let task = async move {
            // When the registry ends, dropping the run ends its connection and its process.
            let in_turn = async {
                let _turn = shared.discovery_permits.acquire().await;
                shared.discover(&source, &refresh, &before).await
            };
            let outcome = ended.run_until_cancelled(in_turn).await;
            let mut running = shared.discoveries.running();
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
        let is_first_start = matches!(source.kind, SourceKind::Stdio(_)) && !known;
        if is_first_start { source.settings.first_start_timeout() } else { source.settings.discovery_timeout() }
    }
}

impl RefreshOutcome {
    fn new(source: SourceId, status: RefreshStatus) -> RefreshOutcome {
        let Delta { added, changed, removed, renamed, unchanged } = Delta::default();
        let (inventory_hash, error) = (None, None);
        RefreshOutcome {
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
