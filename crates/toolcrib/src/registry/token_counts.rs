//! Counting the tokens of tool definitions, once per tool: counts are stored with the manifest. Readers that show how
//! many tokens a list costs ask for it first; everything else never loads the tokenizer.

use tokio::sync::oneshot;
use toolcrib_core::catalog::Catalog;
use toolcrib_core::manifest::PackedManifest;

use super::{Registry, RegistryInner};

impl Registry {
    /// Counts the tokens of tools that were not counted yet, on blocking threads in parallel, so that
    /// [`View::full_token_count`](toolcrib_core::catalog::View::full_token_count) only has to add them up. Neither a
    /// start nor a discovery counts tokens: loading the tokenizer alone would take too long. Waits for the counting
    /// only; the counts are stored in the background, even if the caller stops waiting.
    pub async fn count_tokens(&self) {
        let catalog = self.catalog();
        if catalog.sources().all(|source| source.segment.has_token_counts()) {
            return;
        }
        let shared = self.inner.clone();
        let (done, counted) = oneshot::channel();
        self.inner.tasks.spawn(async move {
            let manifests = shared.count_missing(&catalog).await;
            // Fails only if the caller stopped waiting.
            let _ = done.send(());
            shared.store_token_counts(&manifests).await;
        });
        // An error means that the registry was closed.
        let _ = counted.await;
    }
}

impl RegistryInner {
    /// Counts what is missing; returns the manifests that have new counts. A task that panics leaves its manifest
    /// uncounted; the next reader tries again.
    async fn count_missing(&self, catalog: &Catalog) -> Vec<PackedManifest> {
        // A caller that waits here finds everything counted afterwards.
        let _guard = self.token_count_lock.lock().await;
        let uncounted =
            catalog.sources().map(|source| source.segment.clone()).filter(|segment| !segment.has_token_counts());
        let tasks: Vec<_> =
            uncounted.map(|segment| tokio::task::spawn_blocking(move || segment.with_token_counts())).collect();
        let mut manifests = Vec::new();
        for task in tasks {
            manifests.extend(task.await);
        }
        manifests
    }

    /// Stores manifests with their counts. Those that are not the recorded manifest of their source are skipped.
    async fn store_token_counts(&self, manifests: &[PackedManifest]) {
        for manifest in manifests {
            // Manifests of local overrides are not in the store.
            let recorded = self.snapshot.load().inventory.source(&manifest.source).and_then(|state| state.manifest);
            if recorded != Some(manifest.fingerprint) || self.ensure_usable().is_err() {
                continue;
            }
            if let Err(error) = self.store.put_manifest(manifest).await {
                tracing::debug!(%error, "token counts cannot be stored now; they will be counted again");
            }
        }
    }
}
