//! Refreshing tool lists: a bounded number of discoveries at once, each source at most once at a time (other requests
//! wait for the same run), each with its own timeout.
//!
//! A failed discovery keeps the last good list; an unchanged list writes no event. Which sources must be discovered for
//! a request is decided in `due_sources`, one discovery is carried out in `discovery`.
//!
//! A discovery is shared in two ways: within this process, requests for the same source join the running one
//! (`InFlightDiscoveries`); between processes, a lease in the store lets one discover while the others wait for its
//! result. A discovery belongs to the registry, so it continues when the request that started it is dropped.

mod discovery;
mod due_sources;
mod features;
mod recording;
mod telemetry;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::inventory::Actor;
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use tracing::field::display;

use crate::connectors::Connectors;
use crate::monitoring::Monitoring;
use crate::notice::FeatureOutcome;
use crate::options::RegistryOptions;
use crate::registry::Registry;
use crate::state::{Snapshot, State};
use crate::store::ErrorSummary;
use crate::tasks::Tasks;
use crate::trace::Trace;
use discovery::{Discoverer, DiscoveryPermits};
use features::PendingLists;

pub(crate) use recording::RecordCondition;

pub use crate::notice::{RefreshOutcome, RefreshStatus, RefreshTotals};
pub use due_sources::{BackoffPolicy, ConnectionAfterDiscovery, PendingDiscovery, PendingSource, RequiredFreshness};

/// Which sources to refresh, and how. The default refreshes all sources that are not fresh.
#[derive(Debug, Clone, Default)]
pub struct Refresh {
    /// Sources to refresh; `None` for all of them. One that this node may not start fails if it is named here, and is
    /// left to the other nodes in a refresh of all.
    pub sources: Option<Vec<SourceId>>,
    /// Limits a refresh of all sources to those that the caller may know of; `None` for no limit.
    pub known_sources: Option<Vec<SourceId>>,
    /// Contact a source even if its list is fresh.
    pub force: bool,
    /// Keep the connection of the discovery open, because a call follows.
    pub keep_connection: bool,
    /// End of the wait.
    pub wait_for: RefreshWait,
    /// Client that asked for it, and the trace that it belongs to.
    pub requester: Requester,
}

impl Refresh {
    /// Refreshes all sources that are not fresh, and returns with their tools. Waits briefly for prompts and resources:
    /// those of most servers follow at once, and those of the others in the background.
    pub fn brief() -> Refresh {
        Refresh { wait_for: RefreshWait::Lists(BRIEF_LIST_WAIT), ..Refresh::default() }
    }
}

/// Lists that a refresh waits for. Tools never wait for other lists, which follow in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshWait {
    /// The tools.
    Tools,
    /// The tools, and then at most this long for prompts and resources of MCP servers.
    Lists(Duration),
}

/// All lists, each until its timeout.
impl Default for RefreshWait {
    fn default() -> RefreshWait {
        RefreshWait::Lists(Duration::MAX)
    }
}

/// On whose behalf sources are discovered: actor of the records that follow, and trace of the log events and spans.
#[derive(Debug, Clone, Default)]
pub struct Requester {
    /// Client that asked; `None` for the actor in the options of the registry, or else `system`.
    pub actor: Option<Actor>,
    /// Trace of the request; `None` for that in the options of the registry, or else a new one.
    pub trace: Option<Trace>,
}

/// Time for which [`Refresh::brief`] waits for prompts and resources.
const BRIEF_LIST_WAIT: Duration = Duration::from_secs(2);
/// Wait after an announced change, so that a burst of announcements leads to one refresh.
const ANNOUNCEMENT_DEBOUNCE: Duration = Duration::from_millis(100);
/// Minimum time between refreshes of a source that keeps announcing changes. Bounds the work that a server can cause by
/// announcing changes in a loop.
const MIN_ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);
/// Time that an announced change leaves to prompts and resources that are being read, before another discovery reads
/// them. Doubled when it was too short, so that a server that keeps announcing changes gets enough time in the end.
const MIN_READING_TIME: Duration = Duration::from_secs(1);
/// Upper bound of that time. Longer than the discovery timeout of most sources, which ends the reading itself.
const MAX_READING_TIME: Duration = Duration::from_secs(10 * 60);

/// Keeps the tool lists of sources fresh: decides which are due, and lets requests wait for the same discoveries.
#[derive(Debug)]
pub struct Refresher {
    state: Arc<State>,
    monitoring: Arc<Monitoring>,
    /// Runs one discovery.
    pub(crate) discoverer: Discoverer,
    tasks: Tasks,
    in_flight: InFlightDiscoveries,
}

/// Discoveries that are running in this process. Requests for the same source wait for the same run.
#[derive(Debug, Default)]
struct InFlightDiscoveries {
    /// Running discovery of each source, with the declaration it was started for.
    running: Mutex<HashMap<SourceId, (Arc<Source>, OutcomeReceiver)>>,
    /// Prompts and resources that are being read, of discoveries whose tools are recorded.
    reading_lists: Mutex<HashMap<SourceId, ListReading>>,
    /// Sources with announced changes that a task is handling; `true` if there is an announcement it has not handled
    /// yet.
    announced: Mutex<HashMap<SourceId, bool>>,
    /// A background refresh of missing and stale sources is running.
    background_refresh: AtomicBool,
}

/// Receives the outcome of a discovery; the sender is dropped without one when the registry closes.
type OutcomeReceiver = watch::Receiver<Option<RunOutcome>>;

/// Receives the changes of prompts and resources; the sender is dropped without any when reading them ends early.
type ListReceiver = watch::Receiver<Option<Option<FeatureOutcome>>>;

/// Outcome of a discovery whose tools are recorded.
#[derive(Debug, Clone)]
struct RunOutcome {
    outcome: RefreshOutcome,
    /// `None` if there are no lists besides the tools, or if they are recorded too.
    lists: Option<ListReceiver>,
}

/// Prompts and resources of a source that are being read.
#[derive(Debug)]
struct ListReading {
    changes: ListReceiver,
    began_at: tokio::time::Instant,
    /// Age before which an announced change does not end the reading.
    min_time: Duration,
    /// Ends the reading, because another discovery of the source reads the lists.
    superseded: CancellationToken,
}

impl RunOutcome {
    /// Waits for prompts and resources as long as the request wants, and adds their changes to the outcome.
    async fn wait_for_lists(self, wait_for: RefreshWait) -> RefreshOutcome {
        let RunOutcome { mut outcome, lists } = self;
        let (Some(mut lists), RefreshWait::Lists(limit)) = (lists, wait_for) else { return outcome };
        let began = tokio::time::Instant::now();
        let changes = tokio::time::timeout(limit, lists.wait_for(Option::is_some)).await;
        let changes = changes.ok().and_then(std::result::Result::ok).and_then(|changes| changes.clone().flatten());
        if changes.is_some() && outcome.status == RefreshStatus::Unchanged {
            outcome.status = RefreshStatus::Success;
        }
        let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        outcome.elapsed_ms = outcome.elapsed_ms.saturating_add(waited_ms);
        RefreshOutcome { features: changes.or(outcome.features.take()), ..outcome }
    }
}

impl InFlightDiscoveries {
    /// Registers that the lists of a source are being read. Ends an earlier reading of the same source, which may hang.
    fn begin_reading(&self, id: &SourceId) -> (watch::Sender<Option<Option<FeatureOutcome>>>, CancellationToken) {
        let (sender, changes) = watch::channel(None);
        let superseded = CancellationToken::new();
        let began_at = tokio::time::Instant::now();
        let mut readings = self.reading_lists.lock();
        let min_time = match readings.get(id) {
            Some(earlier) => {
                earlier.superseded.cancel();
                earlier.min_time.saturating_mul(2).min(MAX_READING_TIME)
            }
            None => MIN_READING_TIME,
        };
        readings.insert(id.clone(), ListReading { changes, began_at, min_time, superseded: superseded.clone() });
        (sender, superseded)
    }

    /// Waits until the lists of a source are not being read, or have been for long enough to be read anew.
    async fn wait_for_reading(&self, id: &SourceId) {
        let reading = {
            let readings = self.reading_lists.lock();
            readings.get(id).map(|reading| (reading.changes.clone(), reading.began_at + reading.min_time))
        };
        if let Some((mut changes, deadline)) = reading {
            // Ends without a value when the reading is superseded, and at the deadline.
            let _ = tokio::time::timeout_at(deadline, changes.wait_for(Option::is_some)).await;
        }
    }

    /// Removes a reading that has ended, unless another one has taken its place.
    fn end_reading(&self, id: &SourceId, superseded: &CancellationToken) {
        let mut readings = self.reading_lists.lock();
        // Under the lock, because `begin_reading` cancels and replaces under it.
        if !superseded.is_cancelled() {
            readings.remove(id);
        }
    }

    /// Whether there is an announcement that the task has not handled yet; if not, removes the source, and the task
    /// ends. Check and removal happen under one lock, so an announcement in between starts a new task instead of being
    /// lost.
    fn take_announcement(&self, id: &SourceId) -> bool {
        let mut announced = self.announced.lock();
        let again = announced.get(id).copied().unwrap_or_default();
        if !again {
            announced.remove(id);
        }
        again
    }
}

impl Registry {
    /// Refreshes sources now. Returns one outcome per source, ordered by id. A source that fails does not affect the
    /// others; its outcome holds the error.
    pub async fn refresh(&self, refresh: Refresh) -> Vec<RefreshOutcome> {
        self.refresher.refresh(refresh).await
    }
}

impl Refresher {
    pub(crate) fn new(
        state: Arc<State>,
        connectors: Arc<Connectors>,
        monitoring: Arc<Monitoring>,
        options: Arc<RegistryOptions>,
        tasks: Tasks,
    ) -> Refresher {
        let permits = DiscoveryPermits::new(options.max_parallel_discoveries);
        let in_flight = InFlightDiscoveries::default();
        let discoverer = Discoverer {
            state: state.clone(),
            connectors,
            monitoring: monitoring.clone(),
            options,
            tokenizer_preload: std::sync::Once::new(),
            permits,
            held_leases: Mutex::default(),
            recording: tokio::sync::Mutex::default(),
        };
        Refresher { state, monitoring, discoverer, tasks, in_flight }
    }

    /// See [`Registry::refresh`].
    pub(crate) async fn refresh(self: &Arc<Self>, mut refresh: Refresh) -> Vec<RefreshOutcome> {
        refresh.requester = self.complete(refresh.requester);
        // The trace id is in the span too, for events further down that know no trace, such as a changed catalogue.
        let span = tracing::info_span!(
            "refresh",
            trace_id = refresh.requester.trace.as_ref().map(|trace| display(trace.id()))
        );
        tracing::Instrument::instrument(self.refresh_sources(refresh), span).await
    }

    /// The steps of `refresh`, for a complete requester.
    async fn refresh_sources(self: &Arc<Self>, refresh: Refresh) -> Vec<RefreshOutcome> {
        if refresh.force
            && let Err(error) = self.state.catch_up().await
        {
            // Only an optimisation: without the records of other processes, a source may be contacted once too often.
            tracing::debug!(%error, "records of other processes cannot be read before a refresh");
        }
        let snapshot = self.state.snapshot();
        let mut ids = match refresh.sources.as_ref().or(refresh.known_sources.as_ref()) {
            Some(ids) => ids.clone(),
            None => {
                snapshot.inventory.sources().map(|(id, _)| id).chain(snapshot.invalid_sources.keys()).cloned().collect()
            }
        };
        // Each source once, and outcomes in the order of the ids, whatever the order of the request.
        ids.sort();
        ids.dedup();
        self.log_discovery_start(&ids, refresh.force, refresh.requester.trace.as_ref());
        let mut outcomes = join_all(ids.into_iter().map(|id| self.clone().refresh_source(id, refresh.clone()))).await;
        outcomes.sort_by(|a, b| a.source.cmp(&b.source));
        outcomes
    }

    /// Refreshes one source now; `refresh.sources` is ignored. An unknown or failing source is an `Ok` outcome with an
    /// error, not an `Err`.
    pub async fn refresh_one(self: &Arc<Self>, id: &SourceId, refresh: Refresh) -> Result<RefreshOutcome> {
        let outcomes = self.refresh(Refresh { sources: Some(vec![id.clone()]), ..refresh }).await;
        let none = || Error::new(Code::Internal, format!("the refresh of `{id}` returned no outcome"));
        outcomes.into_iter().next().ok_or_else(none)
    }

    /// Returns the enabled sources of this node that are not fresh. Both stale and missing ones; whether they are in a
    /// backoff period is not considered.
    pub fn due_sources(&self) -> Vec<SourceId> {
        let snapshot = self.state.snapshot();
        let now = self.state.now();
        let ids = snapshot.enabled_sources().map(|(id, _)| id).filter(|id| snapshot.ensure_may_start(id).is_ok());
        ids.filter(|id| snapshot.freshness(id, now) != Freshness::Fresh).cloned().collect()
    }

    /// Fills in what a requester leaves out: all discoveries and log events of one request share a trace.
    fn complete(&self, requester: Requester) -> Requester {
        let Requester { actor, trace } = requester;
        let trace = self.monitoring.parent_trace(trace.as_ref()).cloned().unwrap_or_else(Trace::log_only);
        let actor = actor.or_else(|| self.discoverer.options.actor.clone()).unwrap_or_else(Actor::system);
        Requester { actor: Some(actor), trace: Some(trace) }
    }

    /// Logs the number of servers that a refresh is about to contact.
    fn log_discovery_start(&self, ids: &[SourceId], force: bool, trace: Option<&Trace>) {
        let snapshot = self.state.snapshot();
        let servers = ids.iter().filter(|id| self.will_contact(&snapshot, id, force)).count();
        if servers > 0 {
            let trace_id = trace.map(|trace| display(trace.id()));
            tracing::info!(trace_id, server_count = servers, "tools.discovery.started");
        }
    }

    /// Handles an announced change of a source's tools: refreshes it after a short delay, once for all announcements
    /// until then.
    pub(crate) fn on_tools_changed(self: &Arc<Self>, id: SourceId) {
        // `true` tells the task of an earlier announcement to run once more.
        let is_handled = self.in_flight.announced.lock().insert(id.clone(), true).is_some();
        if is_handled {
            return;
        }
        let refresher = self.clone();
        self.tasks.spawn_until_shutdown(async move { refresher.coalesce_announcements(id).await });
    }

    /// Refreshes a source until it has no further announcements, at most once per [`MIN_ANNOUNCEMENT_INTERVAL`].
    async fn coalesce_announcements(self: &Arc<Self>, id: SourceId) {
        let discoveries = &self.in_flight;
        while discoveries.take_announcement(&id) {
            tokio::time::sleep(ANNOUNCEMENT_DEBOUNCE).await;
            // Announcements until here are covered by the refresh that follows; later ones set it to `true` again.
            discoveries.announced.lock().insert(id.clone(), false);
            // A running discovery may have read the list before it changed: a new one must follow it, not join it.
            let running = discoveries.running.lock().get(&id).cloned();
            if let Some((_, mut running)) = running {
                // An error means that the run was dropped, which is an end too.
                let _ = running.wait_for(Option::is_some).await;
            }
            // Another discovery ends the reading: without this wait, a server that announces changes faster than it
            // lists its prompts would have none.
            discoveries.wait_for_reading(&id).await;
            // A list that hangs must not delay the handling of later announcements.
            let wait_for = RefreshWait::Tools;
            self.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, wait_for, ..Refresh::default() })
                .await;
            tokio::time::sleep(MIN_ANNOUNCEMENT_INTERVAL).await;
        }
    }

    /// Whether a refresh contacts a source. Built-in tools are part of this process: reading them contacts nothing.
    fn will_contact(&self, snapshot: &Snapshot, id: &SourceId, force: bool) -> bool {
        let is_server = snapshot.effective_sources.get(id).is_some_and(|source| !source.kind.is_builtin());
        let may_contact = snapshot.is_enabled(id) && snapshot.ensure_may_start(id).is_ok();
        may_contact && is_server && (force || snapshot.is_due(id, self.state.now()))
    }

    /// Counts a request for a source's tools as cache hit or miss.
    fn count_cache_lookup(&self, id: &SourceId, freshness: Freshness, trace: Option<&Trace>) {
        let hit = freshness == Freshness::Fresh;
        self.monitoring.usage.count_lookup(id, hit);
        self.monitoring.metrics.record_lookup(id, hit);
        let trace_id = trace.map(|trace| display(trace.id()));
        if hit {
            tracing::info!(trace_id, server_name = %id, "tools.cache.hit");
        } else {
            tracing::info!(trace_id, server_name = %id, "tools.cache.miss");
        }
    }

    /// Joins the running discovery of a source, or starts one. The run belongs to the registry, so that a caller that
    /// disconnects does not cancel it for the others.
    async fn refresh_source(self: Arc<Self>, id: SourceId, refresh: Refresh) -> RefreshOutcome {
        let snapshot = self.state.snapshot();
        let Some(source) = snapshot.effective_sources.get(&id).cloned() else {
            let error = match snapshot.invalid_sources.get(&id) {
                Some(error) => error.clone(),
                None => ErrorSummary::from_error(&snapshot.unknown_source_error(id.as_str(), |_| true)),
            };
            return RefreshOutcome { error: Some(error), ..RefreshOutcome::new(id, RefreshStatus::Failed) };
        };
        // A disabled source is not contacted, even by a forced refresh.
        if !snapshot.is_enabled(&id) {
            // Unknown whether it is disabled on purpose, as for an `enabled` that refers to a missing variable.
            return match snapshot.invalid_sources.get(&id) {
                Some(error) => {
                    let error = Some(error.clone());
                    RefreshOutcome { error, ..RefreshOutcome::new(id, RefreshStatus::Failed) }
                }
                None => RefreshOutcome::new(id, RefreshStatus::Disabled),
            };
        }
        if let Err(elsewhere) = snapshot.ensure_may_start(&id) {
            // A refresh of all sources leaves those of other nodes to them.
            let error = refresh.sources.is_some().then(|| ErrorSummary::from_error(&elsewhere));
            return self.discoverer.current_outcome(&id, error);
        }
        if !refresh.force && !snapshot.is_due(&id, self.state.now()) {
            let outcome = RefreshOutcome { status: RefreshStatus::Fresh, ..self.discoverer.current_outcome(&id, None) };
            self.discoverer.record_fresh_span(&source, &outcome, refresh.requester.trace.as_ref());
            return outcome;
        }
        // The receiver fails only if the registry closes before the discovery ends.
        let wait_for = refresh.wait_for;
        let mut run = self.clone().join_or_start(&id, source, refresh);
        let run = run.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        match run {
            Some(run) => run.wait_for_lists(wait_for).await,
            None => {
                let error = ErrorSummary::new(Code::ToolUnavailable, "the registry was closed");
                RefreshOutcome { error: Some(error), ..RefreshOutcome::new(id, RefreshStatus::Failed) }
            }
        }
    }

    /// Waits for prompts and resources that are being read, each at most `limit` since its tools were recorded. For a
    /// process that is about to end.
    pub async fn wait_for_pending_lists(&self, limit: Duration) {
        self.wait_for_matching_lists(|_| true, limit).await;
    }

    /// As [`Refresher::wait_for_pending_lists`], for the sources of which no list is known yet. For the first list that a
    /// client requests.
    pub async fn wait_for_first_lists(&self, limit: Duration) {
        let snapshot = self.state.snapshot();
        let has_none = |id: &SourceId| snapshot.catalog.source(id).is_some_and(|source| source.features.is_none());
        self.wait_for_matching_lists(has_none, limit).await;
    }

    /// Waits for the lists of some sources that are being read.
    async fn wait_for_matching_lists(&self, is_wanted: impl Fn(&SourceId) -> bool, limit: Duration) {
        let pending: Vec<(ListReceiver, tokio::time::Instant)> = {
            let reading = self.in_flight.reading_lists.lock();
            let wanted = reading.iter().filter(|(id, _)| is_wanted(id));
            wanted.map(|(_, reading)| (reading.changes.clone(), reading.began_at)).collect()
        };
        let waits = pending.into_iter().map(async |(mut changes, began_at)| {
            // Ends without a value when the reading is superseded, and at the limit.
            let remaining = limit.saturating_sub(began_at.elapsed());
            let _ = tokio::time::timeout(remaining, changes.wait_for(Option::is_some)).await;
        });
        join_all(waits).await;
    }

    /// Releases the leases of discoveries that ended with the registry.
    pub(crate) async fn release_leases(&self) {
        self.discoverer.release_held_leases().await;
    }

    /// Returns a receiver for the outcome of the running discovery, or of a new one.
    fn join_or_start(self: Arc<Self>, id: &SourceId, source: Arc<Source>, refresh: Refresh) -> OutcomeReceiver {
        let mut running = self.in_flight.running.lock();
        // Do not join a run that was dropped without an outcome, or was started for another declaration.
        let joined = running.get(id).filter(|(declaration, run)| *declaration == source && run.has_changed().is_ok());
        if let Some((_, run)) = joined {
            return run.clone();
        }
        let (done, run) = watch::channel(None);
        // Read before the task waits for its permit: until then another process may discover the source, and this run
        // can then be skipped.
        let before = self.state.snapshot().source_status(id);
        running.insert(id.clone(), (source.clone(), run.clone()));
        let running = running.len();
        let refresher = self.clone();
        let shutdown = self.tasks.shutdown().clone();
        let span = tracing::Span::current();
        let task = async move {
            // Dropping the discovery when the registry closes ends its connection and child process.
            let discovery = async {
                refresher.discoverer.wait_for_turn(running).await;
                refresher.discoverer.discover(&source, &refresh, &before).await
            };
            let discovered = shutdown.run_until_cancelled(discovery).await;
            let (outcome, pending) = discovered.unzip();
            let pending = pending.flatten();
            let pending =
                pending.map(|(pending, permit)| (pending, refresher.in_flight.begin_reading(&source.id), permit));
            {
                let mut running = refresher.in_flight.running.lock();
                // The source may have been declared anew meanwhile, and another discovery started for it: leave that one.
                if running.get(&source.id).is_some_and(|(declaration, _)| Arc::ptr_eq(declaration, &source)) {
                    running.remove(&source.id);
                }
            }
            let lists = pending.as_ref().map(|(_, (changes, _), _)| changes.subscribe());
            // Fails only if every waiting caller has disconnected.
            let _ = done.send(outcome.map(|outcome| RunOutcome { outcome, lists }));
            if let Some((pending, (changes, superseded), _permit)) = pending {
                refresher.read_lists(&source, pending, changes, superseded).await;
            }
        };
        self.tasks.spawn(tracing::Instrument::instrument(task, span));
        run
    }

    /// Reads and records prompts and resources after the tools of a discovery. When the registry closes first, that is
    /// noted for the next process.
    async fn read_lists(
        &self,
        source: &Source,
        pending: PendingLists,
        changes: watch::Sender<Option<Option<FeatureOutcome>>>,
        superseded: CancellationToken,
    ) {
        let started_at = pending.origin.started_at;
        let reading = self.discoverer.record_pending(source, pending);
        let reading = superseded.run_until_cancelled(reading);
        match self.tasks.shutdown().run_until_cancelled(reading).await {
            Some(read) => {
                // Without changes, the sender is dropped: another discovery reads the lists.
                if let Some(outcome) = read {
                    changes.send_replace(Some(outcome));
                }
                self.in_flight.end_reading(&source.id, &superseded);
            }
            None => self.discoverer.abandon_lists(&source.id, started_at).await,
        }
    }
}
