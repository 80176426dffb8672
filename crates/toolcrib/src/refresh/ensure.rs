//! Meeting a need before reading: who has to be discovered first, and how long that is waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use toolcrib_core::SourceId;
use toolcrib_core::freshness::Freshness;

use super::{Outcome, Refresh};
use crate::registry::{Registry, Shared};
use crate::trace::Trace;

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

impl Registry {
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
        let shared = self.shared.clone();
        if shared.ended.is_cancelled() || shared.runs.soon.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.tasks.spawn(async move {
            shared.ended.run_until_cancelled(shared.ensure(Need::Fresh, None, false, None)).await;
            shared.runs.soon.store(false, Ordering::SeqCst);
        });
    }
}

impl Shared {
    pub(crate) async fn ensure(
        self: &Arc<Self>,
        need: Need,
        among: Option<&[SourceId]>,
        keep: bool,
        trace: Option<&Trace>,
    ) -> Vec<Outcome> {
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
                (true, _) if self.backing_off(&now, id) => {}
                (true, _) => wanted.push(id.clone()),
                (false, Freshness::Stale) => stale.push(id.clone()),
                (false, Freshness::Fresh | Freshness::Missing) => {}
            }
        }
        if self.options.revalidate {
            self.revalidate(stale, keep, trace);
        }
        if wanted.is_empty() {
            return Vec::new();
        }
        let trace = trace.cloned();
        self.refresh(Refresh { sources: Some(wanted), keep, trace, ..Refresh::default() }).await
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
