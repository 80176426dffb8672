//! Ensures that tool lists are fresh enough before they are read: which sources must be discovered first, and how long
//! to wait for them.
//!
//! Three answers for each source: fresh enough, serve the list and refresh it in the background (stale), or discover
//! first (missing, or its connection data changed). A source that failed is left alone until its backoff ends, so that
//! a reader does not wait for it again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Result, Source, SourceId, Timestamp};

use super::{BRIEF_LIST_WAIT, Refresh, RefreshOutcome, RefreshWait, Refresher, Requester};
use crate::secret::SourceReferences;

/// Time after which another background refresh may start, although discoveries of the last one may still be running.
/// Requests in between start none: they would join the same discoveries.
const BACKGROUND_REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// Freshness of the tool lists that a reader requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredFreshness {
    /// Use the lists as they are; make no requests.
    Cached,
    /// Discover sources that were never discovered or whose connection data changed; serve stale lists.
    Discovered,
    /// Discover stale sources too.
    Fresh,
}

/// Whether sources whose last discovery failed are skipped during their backoff period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffPolicy {
    /// Skip them.
    Respect,
    /// Discover them all the same.
    Ignore,
}

/// Whether the connection of a discovery stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionAfterDiscovery {
    /// Close it: the next call may be a long time off.
    Close,
    /// Keep it, because a call follows.
    Keep,
}

/// A discovery that a reader can wait for. It starts when first polled, belongs to the registry, and continues when
/// this is dropped. The command line waits for several of them with a limit of its own for each.
pub struct PendingDiscovery {
    /// Identifies the discovery.
    pub source: PendingSource,
    /// Runs the discovery, or waits for one that is running.
    pub outcome: BoxFuture<'static, RefreshOutcome>,
}

/// Identifies a discovery that a reader waits for.
#[derive(Debug, Clone)]
pub struct PendingSource {
    /// The source to discover.
    pub source: SourceId,
    /// Whether the last discovery failed, or a reader stopped waiting for it.
    pub failed_before: bool,
    /// Start of the newest discovery that had ended; tells whether another one has ended since.
    pub(super) started_at: Timestamp,
}

impl fmt::Debug for PendingDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDiscovery").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Refresher {
    /// Returns the discoveries that `required` demands, for a reader that decides how long to wait for each. `among`
    /// limits them to some sources, and `connection` decides about their connections afterwards. Nothing is contacted
    /// before the futures are polled. Reads no file: a secret that was rewritten since the registry was opened or
    /// [`Refresher::ensure_freshness`] last ran is noticed by the discovery itself.
    pub fn pending_discoveries(
        self: &Arc<Self>,
        required: RequiredFreshness,
        among: Option<&[SourceId]>,
        backoff: BackoffPolicy,
        connection: ConnectionAfterDiscovery,
    ) -> Vec<PendingDiscovery> {
        let keep_connection = connection == ConnectionAfterDiscovery::Keep;
        let requester = self.complete(Requester::default());
        let due = self.sources_to_discover(required, among, backoff, connection, &requester);
        self.log_discovery_start(&due, false, requester.trace.as_ref());
        let snapshot = self.state.snapshot();
        let pending = |id: SourceId| {
            let failed_before = snapshot.has_failed_before(&id);
            let started_at = snapshot.statuses.get(&id).map(|status| status.started_at).unwrap_or_default();
            let wait_for = self.wait_for(&id, connection);
            let requester = requester.clone();
            let refresh = Refresh { keep_connection, wait_for, requester, ..Refresh::default() };
            let outcome = self.clone().refresh_source(id.clone(), refresh).boxed();
            PendingDiscovery { source: PendingSource { source: id, failed_before, started_at }, outcome }
        };
        due.into_iter().map(pending).collect()
    }

    /// Discovers missing and stale sources in the background, unless that is running already. Returns at once.
    pub fn refresh_in_background(self: &Arc<Self>, requester: Requester) {
        if self.tasks.shutdown().is_cancelled() || self.in_flight.background_refresh.swap(true, Ordering::SeqCst) {
            return;
        }
        let refresher = self.clone();
        self.tasks.spawn(async move {
            // A source that hangs must not block the next background refresh; discoveries that were started continue.
            let refresh = tokio::time::timeout(
                BACKGROUND_REFRESH_TIMEOUT,
                refresher.ensure_freshness(RequiredFreshness::Fresh, None, requester),
            );
            refresher.tasks.shutdown().run_until_cancelled(refresh).await;
            refresher.in_flight.background_refresh.store(false, Ordering::SeqCst);
        });
    }

    /// Discovers sources until `required` is satisfied; `among` limits this to some sources. Returns the outcomes of the
    /// discoveries.
    pub async fn ensure_freshness(
        self: &Arc<Self>,
        required: RequiredFreshness,
        among: Option<&[SourceId]>,
        requester: Requester,
    ) -> Vec<RefreshOutcome> {
        if required != RequiredFreshness::Cached {
            // A rewritten secret file changes the connection data, which makes a list outdated whatever its age.
            self.state.check_references(among).await;
        }
        self.discover_due(required, among, ConnectionAfterDiscovery::Close, requester).await
    }

    /// Discovers the source of a call if it was never discovered, and keeps its connection open. `requester` is the
    /// call.
    pub(crate) async fn ensure_discovered_for_call(self: &Arc<Self>, id: &SourceId, requester: Requester) {
        let among = Some(std::slice::from_ref(id));
        if self.state.snapshot().freshness(id, self.state.now()) == Freshness::Missing {
            // A rewritten secret file ends the backoff period of a source that failed. With a list, the call reads no
            // file here: it uses an open connection, or opens one with the current values (`compare_values`).
            self.state.check_references(among).await;
        }
        self.discover_due(RequiredFreshness::Discovered, among, ConnectionAfterDiscovery::Keep, requester).await;
    }

    /// Compares the values with which a call has connected with those of the source's tool list. A list of other
    /// credentials is stale, and is refreshed in the background.
    pub(crate) fn compare_values(self: &Arc<Self>, source: &Source, references: &SourceReferences) {
        let Some(values) = references.take_new_values() else { return };
        self.state.publish_values(source, &values);
        if self.state.snapshot().has_connection_changed(&source.id) {
            self.revalidate(vec![source.id.clone()], ConnectionAfterDiscovery::Close, &Requester::default());
        }
    }

    /// Runs the discoveries that `required` demands, and waits for them.
    async fn discover_due(
        self: &Arc<Self>,
        required: RequiredFreshness,
        among: Option<&[SourceId]>,
        connection: ConnectionAfterDiscovery,
        requester: Requester,
    ) -> Vec<RefreshOutcome> {
        let requester = self.complete(requester);
        let due = self.sources_to_discover(required, among, BackoffPolicy::Respect, connection, &requester);
        if due.is_empty() {
            return Vec::new();
        }
        let keep_connection = connection == ConnectionAfterDiscovery::Keep;
        let wait_for = match due.as_slice() {
            [id] => self.wait_for(id, connection),
            _ => RefreshWait::Tools,
        };
        self.refresh(Refresh { sources: Some(due), keep_connection, wait_for, requester, ..Refresh::default() }).await
    }

    /// Returns what a reader of a source waits for. Readers need its tools; only a call that starts a server of its own
    /// waits for the end of the discovery, because there may be servers of which only one instance can run.
    fn wait_for(&self, id: &SourceId, connection: ConnectionAfterDiscovery) -> RefreshWait {
        let snapshot = self.state.snapshot();
        let lifecycle = snapshot.effective_sources.get(id).map(|source| source.settings.lifecycle());
        match (connection, lifecycle) {
            (ConnectionAfterDiscovery::Keep, Some(Lifecycle::PerClient | Lifecycle::Transient)) => {
                RefreshWait::Lists(BRIEF_LIST_WAIT)
            }
            (ConnectionAfterDiscovery::Keep, Some(Lifecycle::Shared) | None) | (ConnectionAfterDiscovery::Close, _) => {
                RefreshWait::Tools
            }
        }
    }

    /// Like [`Refresher::ensure_freshness`], but waits no longer than `limit`. Discoveries that were started continue
    /// and are published when they end.
    pub async fn ensure_freshness_within(
        self: &Arc<Self>,
        required: RequiredFreshness,
        limit: Duration,
        requester: Requester,
    ) {
        // Started discoveries belong to the registry and continue after the timeout.
        let _ = tokio::time::timeout(limit, self.ensure_freshness(required, None, requester)).await;
    }

    /// Records that a source did not answer while a reader waited for it. Counts as a failure, so that the backoff
    /// spares the next reader the same wait. Does nothing if a discovery of the source has ended since `pending` was
    /// returned.
    pub async fn record_wait_timeout(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        self.discoverer.record_wait_timeout(pending, waited).await
    }

    /// Returns the sources that must be discovered to satisfy `required`, and counts cache hits and misses. Stale
    /// sources whose lists are served are refreshed in the background.
    fn sources_to_discover(
        self: &Arc<Self>,
        required: RequiredFreshness,
        among: Option<&[SourceId]>,
        backoff: BackoffPolicy,
        connection: ConnectionAfterDiscovery,
        requester: &Requester,
    ) -> Vec<SourceId> {
        if required == RequiredFreshness::Cached {
            return Vec::new();
        }
        let snapshot = self.state.snapshot();
        let now = self.state.now();
        let mut due_sources = Vec::new();
        let mut stale = Vec::new();
        let all = among.is_none().then(|| snapshot.inventory.sources()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| Some((id, snapshot.inventory.source(id)?)));
        for (id, state) in all.chain(some) {
            if !snapshot.environment.is_enabled(id, state) || snapshot.ensure_can_contact(id).is_err() {
                continue;
            }
            let freshness = snapshot.freshness(id, now);
            self.count_cache_lookup(id, freshness, requester.trace.as_ref());
            let invalidated = snapshot.statuses.get(id).is_some_and(|status| status.invalidated);
            // Invalidated lists and lists of another address or of other credentials are not served to a reader that
            // can wait: they may be the tools of another server.
            let is_outdated = state.manifest.is_some() && (invalidated || snapshot.has_connection_changed(id));
            let is_due = match (required, freshness) {
                (RequiredFreshness::Fresh, Freshness::Fresh) => snapshot.has_unread_lists(id, now),
                (RequiredFreshness::Cached, _) | (_, Freshness::Fresh) => false,
                (RequiredFreshness::Discovered, Freshness::Stale) => is_outdated,
                (RequiredFreshness::Discovered, Freshness::Missing) | (RequiredFreshness::Fresh, _) => true,
            };
            match (is_due, freshness) {
                // In its backoff period: the last known list, if there is one, is served with the error beside it.
                (true, _) if backoff == BackoffPolicy::Respect && snapshot.is_backing_off(id, now) => {}
                (true, _) => due_sources.push(id.clone()),
                (false, Freshness::Stale) => stale.push(id.clone()),
                (false, Freshness::Fresh) if snapshot.has_unread_lists(id, now) => stale.push(id.clone()),
                (false, Freshness::Fresh | Freshness::Missing) => {}
            }
        }
        self.revalidate(stale, connection, requester);
        due_sources
    }

    /// Refreshes stale sources in the background, after their lists were served, if the options of the registry say so.
    fn revalidate(self: &Arc<Self>, stale: Vec<SourceId>, connection: ConnectionAfterDiscovery, requester: &Requester) {
        let snapshot = self.state.snapshot();
        let now = self.state.now();
        // A stale source that keeps failing is not tried again by every reader either.
        let stale: Vec<SourceId> = stale.into_iter().filter(|id| !snapshot.is_backing_off(id, now)).collect();
        if !self.discoverer.options.revalidate || stale.is_empty() || self.tasks.shutdown().is_cancelled() {
            return;
        }
        let refresher = self.clone();
        let requester = requester.clone();
        self.tasks.spawn_until_shutdown(async move {
            let keep_connection = connection == ConnectionAfterDiscovery::Keep;
            let wait_for = RefreshWait::Tools;
            let refresh = Refresh { sources: Some(stale), keep_connection, wait_for, requester, ..Refresh::default() };
            refresher.refresh(refresh).await
        });
    }
}
