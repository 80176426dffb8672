//! Counting what tools cost, once in the life of each: counts are stored beside the list they belong to.

use tokio::sync::oneshot;
use toolcrib_core::catalog::Catalog;
use toolcrib_core::manifest::PackedManifest;

use super::{Registry, RegistryInner};

impl Registry {
    /// Counts the tools that nobody has counted yet, side by side and away from the threads that others wait for, so
    /// that [`View::tokens_full`](toolcrib_core::catalog::View::tokens_full) only adds up. A start or a discovery does
    /// none of this: the tokenizer alone takes longer to load than they may. Who waits for this waits for the counting
    /// alone: it is stored behind the scenes, and goes on when they leave.
    pub async fn count_tokens(&self) {
        let catalog = self.catalog();
        if catalog.sources().all(|part| part.segment.has_token_counts()) {
            return;
        }
        let (shared, (done, counted)) = (self.shared.clone(), oneshot::channel());
        self.shared.tasks.spawn(async move {
            let news = shared.count_missing(&catalog).await;
            let _ = done.send(());
            shared.store_token_counts(&news).await;
        });
        let _over = counted.await;
    }
}

impl RegistryInner {
    async fn count_missing(&self, catalog: &Catalog) -> Vec<PackedManifest> {
        // Whoever comes meanwhile finds it done.
        let _turn = self.token_count_lock.lock().await;
        let uncounted =
            catalog.sources().map(|part| part.segment.clone()).filter(|segment| !segment.has_token_counts());
        let counting: Vec<_> =
            uncounted.map(|segment| tokio::task::spawn_blocking(move || segment.with_token_counts())).collect();
        let mut news = Vec::new();
        for counting in counting {
            news.extend(counting.await);
        }
        news
    }

    async fn store_token_counts(&self, news: &[PackedManifest]) {
        for counted in news {
            // What this process alone was told is recorded nowhere.
            let recorded = self.snapshot.load().inventory.source(&counted.source).and_then(|state| state.manifest);
            if recorded != Some(counted.fingerprint) || self.ensure_usable().is_err() {
                continue;
            }
            if let Err(error) = self.store.put_manifest(counted).await {
                tracing::debug!(%error, "counts of tokens cannot be stored now; they are made again");
            }
        }
    }
}
