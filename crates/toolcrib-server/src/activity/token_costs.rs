//! Token costs of all tools of a view, for the console. Counting takes seconds for a large catalogue, so a page only
//! requests it; the result appears when the page is loaded again.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use toolcrib::Registry;
use toolcrib::catalog::View;
use toolcrib::catalog::summary::{Summary, SummaryBudget};

use crate::view_cache::{CachedSize, ViewCache};

/// Cache of the last counts.
#[derive(Debug, Default)]
pub(crate) struct TokenCosts {
    cached: ViewCache<Summary>,
    /// The view that was requested last. One of several that are requested at the same time is counted; the pages of the
    /// others request it again when they are loaded again.
    requested: ArcSwapOption<View>,
    /// Keeps at most one request, so that any number of page loads cause one count.
    count_requested: Notify,
}

impl CachedSize for Summary {
    fn cached_bytes(&self) -> usize {
        self.text.len()
    }
}

impl TokenCosts {
    /// Returns the costs of a view, or requests a count and returns `None`.
    pub(crate) fn get_or_request(&self, view: &View) -> Option<Arc<Summary>> {
        let cached = self.cached.get(view.key());
        if cached.is_none() {
            self.requested.store(Some(Arc::new(view.clone())));
            self.count_requested.notify_one();
        }
        cached
    }

    /// Counts whenever a count is requested. Never returns. Counts one view at a time.
    pub(super) async fn count_on_request(&self, registry: &Registry) {
        loop {
            self.count_requested.notified().await;
            let Some(view) = self.requested.swap(None) else { continue };
            if self.cached.get(view.key()).is_some() {
                continue;
            }
            // Counts the tools that have no stored count yet, and stores the result for the next start.
            registry.statistics().count_tokens().await;
            let key = view.key();
            let counting = tokio::task::spawn_blocking(move || view.summary(SummaryBudget::default()));
            if let Ok(summary) = counting.await {
                self.cached.insert(key, &Arc::new(summary), |_| true);
            }
        }
    }
}
