//! Meeting a need before reading: who has to be discovered first, and how long that is waited for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::{Result, SourceId, Timestamp};

use super::{Refresh, RefreshOutcome};
use crate::registry::{Registry, RegistryInner};
use crate::trace::Trace;

/// Further requests to discover what is missing or stale are ignored for so long.
const BACKGROUND_REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// How fresh a reader wants the lists to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredFreshness {
    /// As they are: contact nobody.
    Cached,
    /// Discover what was never discovered, or connects to something else now; serve what is stale.
    Discovered,
    /// Wait for what is stale too.
    Fresh,
}

/// Whether sources that failed a moment ago are left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffPolicy {
    Respect,
    Ignore,
}

/// A discovery that a reader waits for. It begins when it is first polled, belongs to the registry, and goes on when
/// it is dropped.
pub struct PendingDiscovery {
    pub source: PendingSource,
    pub outcome: BoxFuture<'static, RefreshOutcome>,
}

/// A source that a reader waits for.
#[derive(Debug, Clone)]
pub struct PendingSource {
    pub source: SourceId,
    /// The last attempt to discover it failed, or was given up.
    pub failed_before: bool,
    /// When the newest discovery that had ended had begun.
    pub(super) started_at: Timestamp,
}

impl fmt::Debug for PendingDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Registry {
    /// The discoveries that a need takes, for a reader that decides for itself how long it waits for each.
    /// `keep` keeps their connections for calls that follow.
    pub fn pending_discoveries(
        &self,
        need: RequiredFreshness,
        among: Option<&[SourceId]>,
        pauses: BackoffPolicy,
        keep: bool,
    ) -> Vec<PendingDiscovery> {
        let shared = &self.shared;
        let wanted = shared.sources_to_discover(need, among, pauses, keep, None);
        shared.log_discovery_start(&wanted, false, None);
        let now = shared.snapshot.load_full();
        let pending = |id: SourceId| {
            let failed_before = shared.has_failed_before(&now, &id);
            let started_at = now.statuses.get(&id).map(|standing| standing.started_at).unwrap_or_default();
            let refresh = Refresh { keep_connection: keep, ..Refresh::default() };
            let outcome = shared.clone().refresh_source(id.clone(), refresh).boxed();
            PendingDiscovery { source: PendingSource { source: id, failed_before, started_at }, outcome }
        };
        wanted.into_iter().map(pending).collect()
    }

    /// Records that a source did not answer within the time that a reader waited for it. It counts as a failure, so
    /// that the next reader does not wait as long again.
    pub async fn record_wait_timeout(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        self.shared.record_wait_timeout(pending, waited).await
    }

    /// Meets a need before reading. `among` narrows it to some sources. Returns what was done about it.
    pub async fn ensure_freshness(
        &self,
        need: RequiredFreshness,
        among: Option<&[SourceId]>,
        keep: bool,
    ) -> Vec<RefreshOutcome> {
        self.shared.ensure_freshness(need, among, keep, None).await
    }

    /// As [`Registry::ensure`], but waits no longer than this. What was begun goes on, and is published when it is done.
    pub async fn ensure_freshness_within(&self, need: RequiredFreshness, limit: Duration) {
        let _goes_on = tokio::time::timeout(limit, self.shared.ensure_freshness(need, None, false, None)).await;
    }

    /// Discovers what is missing or stale behind the scenes, unless that is being done already. Waits for nobody.
    pub fn refresh_in_background(&self) {
        self.shared.refresh_in_background();
    }
}

impl RegistryInner {
    pub(crate) fn refresh_in_background(self: &Arc<Self>) {
        let shared = self.clone();
        if shared.shutdown.is_cancelled() || shared.discoveries.background_refresh.swap(true, Ordering::SeqCst) {
            return;
        }
        self.tasks.spawn(async move {
            // One that hangs does not keep others from being discovered meanwhile; what was begun goes on.
            let started = tokio::time::timeout(
                BACKGROUND_REFRESH_TIMEOUT,
                shared.ensure_freshness(RequiredFreshness::Fresh, None, false, None),
            );
            shared.shutdown.run_until_cancelled(started).await;
            shared.discoveries.background_refresh.store(false, Ordering::SeqCst);
        });
    }

    pub(crate) async fn ensure_freshness(
        self: &Arc<Self>,
        need: RequiredFreshness,
        among: Option<&[SourceId]>,
        keep: bool,
        trace: Option<&Trace>,
    ) -> Vec<RefreshOutcome> {
        let wanted = self.sources_to_discover(need, among, BackoffPolicy::Respect, keep, trace);
        if wanted.is_empty() {
            return Vec::new();
        }
        let trace = trace.cloned();
        self.refresh(Refresh { sources: Some(wanted), keep_connection: keep, trace, ..Refresh::default() }).await
    }

    /// The sources that have to be discovered to meet a need. Stale ones that are served are discovered behind the
    /// scenes.
    fn sources_to_discover(
        self: &Arc<Self>,
        need: RequiredFreshness,
        among: Option<&[SourceId]>,
        pauses: BackoffPolicy,
        keep: bool,
        trace: Option<&Trace>,
    ) -> Vec<SourceId> {
        if need == RequiredFreshness::Cached {
            return Vec::new();
        }
        self.rehash_references(among);
        let now = self.snapshot.load_full();
        let (mut wanted, mut stale) = (Vec::new(), Vec::new());
        let all = among.is_none().then(|| now.inventory.sources()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| Some((id, now.inventory.source(id)?)));
        for (id, state) in all.chain(some) {
            if !self.is_enabled(id, state.enabled) || self.ensure_can_contact(id).is_err() {
                continue;
            }
            let freshness = self.freshness(&now, id);
            self.count_cache_lookup(id, freshness, trace);
            let invalidated = now.statuses.get(id).is_some_and(|standing| standing.invalidated);
            let moved = state.manifest.is_some() && (invalidated || now.has_connection_changed(id));
            let due = match (need, freshness) {
                (RequiredFreshness::Cached, _) | (_, Freshness::Fresh) => false,
                (RequiredFreshness::Discovered, Freshness::Stale) => moved,
                (RequiredFreshness::Discovered, Freshness::Missing) | (RequiredFreshness::Fresh, _) => true,
            };
            match (due, freshness) {
                (true, _) if pauses == BackoffPolicy::Respect && self.is_backing_off(&now, id) => {}
                (true, _) => wanted.push(id.clone()),
                (false, Freshness::Stale) => stale.push(id.clone()),
                (false, Freshness::Fresh | Freshness::Missing) => {}
            }
        }
        if self.options.revalidate {
            self.revalidate(stale, keep, trace);
        }
        wanted
    }

    /// Stale lists were served; new ones are fetched behind the scenes.
    fn revalidate(self: &Arc<Self>, stale: Vec<SourceId>, keep: bool, trace: Option<&Trace>) {
        let now = self.snapshot.load_full();
        let stale: Vec<SourceId> = stale.into_iter().filter(|id| !self.is_backing_off(&now, id)).collect();
        if stale.is_empty() || self.shutdown.is_cancelled() {
            return;
        }
        let (shared, trace) = (self.clone(), trace.cloned());
        self.tasks.spawn(async move {
            let refresh =
                shared.refresh(Refresh { sources: Some(stale), keep_connection: keep, trace, ..Refresh::default() });
            shared.shutdown.run_until_cancelled(refresh).await;
        });
    }
}
