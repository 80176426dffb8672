//! Counting what tools cost, once in the life of each: counts are stored beside the list they belong to.

use super::Registry;

impl Registry {
    /// Counts the tools that nobody has counted yet, side by side and away from the threads that others wait for, so
    /// that [`View::tokens_full`](toolcrib_core::catalog::View::tokens_full) only adds up. A start or a discovery does
    /// none of this: the tokenizer alone takes longer to load than they may.
    pub async fn count_tokens(&self) {
        let catalog = self.catalog();
        if catalog.parts().all(|part| part.segment.is_counted()) {
            return;
        }
        // Whoever comes meanwhile finds it done.
        let _turn = self.shared.counting.lock().await;
        let uncounted = catalog.parts().map(|part| part.segment.clone()).filter(|segment| !segment.is_counted());
        let counting: Vec<_> =
            uncounted.map(|segment| tokio::task::spawn_blocking(move || segment.counted())).collect();
        for counting in counting {
            let Ok(counted) = counting.await else { continue };
            // What this process alone was told is recorded nowhere.
            let recorded = self.shared.now.load().inventory.source(&counted.source).and_then(|state| state.manifest);
            if recorded != Some(counted.fingerprint) {
                continue;
            }
            if let Err(error) = self.shared.store.put_manifest(&counted).await {
                tracing::debug!(%error, "counts of tokens cannot be stored now; they are made again");
            }
        }
    }
}
