//! What all tools cost an agent, in tokens: counted when a page first asks, away from whoever waits for that page.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::summary::{Budget, Summary};
use toolcrib::{Caller, Registry};

#[derive(Debug, Default)]
pub(crate) struct Costs {
    known: ArcSwapOption<(Fingerprint, Summary)>,
    asked: Notify,
}

impl Costs {
    /// What the catalogue costs; nothing yet where it is still being counted.
    pub(crate) fn of(&self, registry: &Registry) -> Option<Summary> {
        let hash = registry.catalog().hash();
        let known = self.known.load_full().filter(|known| known.0 == hash);
        if known.is_none() {
            self.asked.notify_one();
        }
        known.map(|known| known.1.clone())
    }

    pub(super) async fn count_when_asked(&self, registry: &Registry) {
        loop {
            self.asked.notified().await;
            let view = registry.view(&Caller { name: "console".into() });
            let hash = view.catalog.hash();
            if self.known.load().as_ref().is_some_and(|known| known.0 == hash) {
                continue;
            }
            registry.count_tokens().await;
            let counting = tokio::task::spawn_blocking(move || view.summary(Budget::default()));
            if let Ok(summary) = counting.await {
                self.known.store(Some(Arc::new((hash, summary))));
            }
        }
    }
}
