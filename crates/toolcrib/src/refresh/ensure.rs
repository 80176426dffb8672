//! Meeting a need before reading: who has to be discovered first, and how long that is waited for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::{Result, SourceId, Timestamp};

use super::{Outcome, Refresh};
use crate::registry::{Registry, Shared};
use crate::trace::Trace;

/// Further requests to discover what is missing or stale are ignored for so long.
const SOON: Duration = Duration::from_secs(2);

/// How fresh a reader wants the lists to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// As they are: contact nobody.
    Cached,
    /// Discover what was never discovered, or connects to something else now; serve what is stale.
    Known,
    /// Wait for what is stale too.
    Fresh,
}

/// Whether sources that failed a moment ago are left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pauses {
    Respected,
    Ignored,
}

/// A discovery that a reader waits for. It begins when it is first polled, belongs to the registry, and goes on when
/// it is dropped.
pub struct Pending {
    pub source: PendingSource,
    pub outcome: BoxFuture<'static, Outcome>,
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

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Registry {
    /// The discoveries that a need takes, for a reader that decides for itself how long it waits for each.
    /// `keep` keeps their connections for calls that follow.
    pub fn discoveries(&self, need: Need, among: Option<&[SourceId]>, pauses: Pauses, keep: bool) -> Vec<Pending> {
        let shared = &self.shared;
        let wanted = shared.due(need, among, pauses, keep, None);
        shared.announce_discovery(&wanted, false, None);
        let now = shared.now.load_full();
        let pending = |id: SourceId| {
            let failed_before = shared.failed_before(&now, &id);
            let started_at = now.standings.get(&id).map(|standing| standing.started_at).unwrap_or_default();
            let refresh = Refresh { keep, ..Refresh::default() };
            let outcome = shared.clone().refresh_one(id.clone(), refresh).boxed();
            Pending { source: PendingSource { source: id, failed_before, started_at }, outcome }
        };
        wanted.into_iter().map(pending).collect()
    }

    /// Records that a source did not answer within the time that a reader waited for it. It counts as a failure, so
    /// that the next reader does not wait as long again.
    pub async fn give_up(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        self.shared.give_up(pending, waited).await
    }

    /// Meets a need before reading. `among` narrows it to some sources. Returns what was done about it.
    pub async fn ensure(&self, need: Need, among: Option<&[SourceId]>, keep: bool) -> Vec<Outcome> {
        self.shared.ensure(need, among, keep, None).await
    }

    /// As [`Registry::ensure`], but waits no longer than this. What was begun goes on, and is published when it is done.
    pub async fn ensure_within(&self, need: Need, limit: Duration) {
        let _goes_on = tokio::time::timeout(limit, self.shared.ensure(need, None, false, None)).await;
    }

    /// Discovers what is missing or stale behind the scenes, unless that is being done already. Waits for nobody.
    pub fn ensure_soon(&self) {
        self.shared.ensure_soon();
    }
}

impl Shared {
    pub(crate) fn ensure_soon(self: &Arc<Self>) {
        let shared = self.clone();
        if shared.ended.is_cancelled() || shared.runs.soon.swap(true, Ordering::SeqCst) {
            return;
        }
        self.tasks.spawn(async move {
            // One that hangs does not keep others from being discovered meanwhile; what was begun goes on.
            let started = tokio::time::timeout(SOON, shared.ensure(Need::Fresh, None, false, None));
            shared.ended.run_until_cancelled(started).await;
            shared.runs.soon.store(false, Ordering::SeqCst);
        });
    }

    pub(crate) async fn ensure(
        self: &Arc<Self>,
        need: Need,
        among: Option<&[SourceId]>,
        keep: bool,
        trace: Option<&Trace>,
    ) -> Vec<Outcome> {
        let wanted = self.due(need, among, Pauses::Respected, keep, trace);
        if wanted.is_empty() {
            return Vec::new();
        }
        let trace = trace.cloned();
        self.refresh(Refresh { sources: Some(wanted), keep, trace, ..Refresh::default() }).await
    }

    /// The sources that have to be discovered to meet a need. Stale ones that are served are discovered behind the
    /// scenes.
    fn due(
        self: &Arc<Self>,
        need: Need,
        among: Option<&[SourceId]>,
        pauses: Pauses,
        keep: bool,
        trace: Option<&Trace>,
    ) -> Vec<SourceId> {
        if need == Need::Cached {
            return Vec::new();
        }
        self.look_again(among);
        let now = self.now.load_full();
        let (mut wanted, mut stale) = (Vec::new(), Vec::new());
        let all = among.is_none().then(|| now.inventory.sources()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| Some((id, now.inventory.source(id)?)));
        for (id, state) in all.chain(some) {
            if !self.enabled_here(id, state.enabled) || self.permitted(id).is_err() {
                continue;
            }
            let freshness = self.freshness(&now, id);
            self.count_need(id, freshness, trace);
            let invalidated = now.standings.get(id).is_some_and(|standing| standing.invalidated);
            let moved = state.manifest.is_some() && (invalidated || now.moved(id));
            let due = match (need, freshness) {
                (Need::Cached, _) | (_, Freshness::Fresh) => false,
                (Need::Known, Freshness::Stale) => moved,
                (Need::Known, Freshness::Missing) | (Need::Fresh, _) => true,
            };
            match (due, freshness) {
                (true, _) if pauses == Pauses::Respected && self.backing_off(&now, id) => {}
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
        let now = self.now.load_full();
        let stale: Vec<SourceId> = stale.into_iter().filter(|id| !self.backing_off(&now, id)).collect();
        if stale.is_empty() || self.ended.is_cancelled() {
            return;
        }
        let (shared, trace) = (self.clone(), trace.cloned());
        self.tasks.spawn(async move {
            let refresh = shared.refresh(Refresh { sources: Some(stale), keep, trace, ..Refresh::default() });
            shared.ended.run_until_cancelled(refresh).await;
        });
    }
}
