//! Token costs of the whole catalogue, for the console. Counting takes seconds for a large catalogue, so a page only
//! requests it; the result appears when the page is loaded again.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use toolcrib::catalog::summary::{Summary, SummaryBudget};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Principal, Registry};

/// Cache of the last count.
#[derive(Debug, Default)]
pub(crate) struct TokenCosts {
    /// The summary, with the hash of the catalogue that it was counted for.
    cached: ArcSwapOption<(Fingerprint, Summary)>,
    /// Keeps at most one request, so that any number of page loads cause one count.
    count_requested: Notify,
}

impl TokenCosts {
    /// Returns the costs of the current catalogue, or requests a count and returns `None`.
    pub(crate) fn get_or_request(&self, registry: &Registry) -> Option<Summary> {
        let hash = registry.catalog().hash();
        let cached = self.cached.load_full().filter(|cached| cached.0 == hash);
        if cached.is_none() {
            self.count_requested.notify_one();
        }
        cached.map(|cached| cached.1.clone())
    }

    /// Counts whenever a count is requested. Never returns. Counts one catalogue at a time. If it changes meanwhile,
    /// the result is stored under the old hash, and the next page requests a new count.
    pub(super) async fn count_on_request(&self, registry: &Registry) {
        loop {
            self.count_requested.notified().await;
            let view = registry.view(&Principal::local("console"));
            let hash = view.catalog.hash();
            if self.cached.load().as_ref().is_some_and(|cached| cached.0 == hash) {
                continue;
            }
            // Counts the tools that have no stored count yet, and stores the result for the next start.
            registry.statistics().count_tokens().await;
            let counting = tokio::task::spawn_blocking(move || view.summary(SummaryBudget::default()));
            if let Ok(summary) = counting.await {
                self.cached.store(Some(Arc::new((hash, summary))));
            }
        }
    }
}
