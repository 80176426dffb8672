//! What all tools cost an agent, in tokens: counted when a page first asks, away from whoever waits for that page.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::summary::{Summary, SummaryBudget};
use toolcrib::{Caller, Registry};

#[derive(Debug, Default)]
pub(crate) struct TokenCosts {
    cached: ArcSwapOption<(Fingerprint, Summary)>,
    count_requested: Notify,
}

impl TokenCosts {
    /// What the catalogue costs; nothing yet where it is still being counted.
    pub(crate) fn get_or_request(&self, registry: &Registry) -> Option<Summary> {
        let hash = registry.catalog().hash();
        let known = self.cached.load_full().filter(|known| known.0 == hash);
        if known.is_none() {
            self.count_requested.notify_one();
        }
        known.map(|known| known.1.clone())
    }

    pub(super) async fn count_on_request(&self, registry: &Registry) {
        loop {
            self.count_requested.notified().await;
            let view = registry.view(&Caller { name: "console".into() });
            let hash = view.catalog.hash();
            if self.cached.load().as_ref().is_some_and(|known| known.0 == hash) {
                continue;
            }
            registry.count_tokens().await;
            let counting = tokio::task::spawn_blocking(move || view.summary(SummaryBudget::default()));
            if let Ok(summary) = counting.await {
                self.cached.store(Some(Arc::new((hash, summary))));
            }
        }
    }
}
