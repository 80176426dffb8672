//! Counting the tokens of tools that were recorded without counts: by an older version, or at a start, as built-in ones
//! are. Counts are stored with the manifest. Readers that show how many tokens a list costs ask for it first; nothing
//! else but recording a list loads the tokenizer.

use std::sync::Arc;

use tokio::sync::oneshot;
use toolcrib_catalog::{Catalog, CatalogSource};
use toolcrib_core::manifest::PackedManifest;

use crate::state::State;
use crate::tasks::Tasks;

/// Counts the tokens of tools and stores the counts.
#[derive(Debug)]
pub(crate) struct TokenCounter {
    state: Arc<State>,
    tasks: Tasks,
    /// Held while tokens are counted, so that concurrent requests count each tool once.
    lock: tokio::sync::Mutex<()>,
}

impl TokenCounter {
    pub(super) fn new(state: Arc<State>, tasks: Tasks) -> TokenCounter {
        TokenCounter { state, tasks, lock: tokio::sync::Mutex::default() }
    }

    /// Counts the tokens of tools that were not counted yet on blocking threads in parallel. Waits for the counting
    /// only; the counts are stored in the background, even if the caller stops waiting.
    pub(super) async fn count_tokens(self: &Arc<Self>) {
        let catalog = self.state.snapshot().catalog.clone();
        if catalog.sources().all(|source| source.segment.has_token_counts()) {
            return;
        }
        let counter = self.clone();
        let (done, counted) = oneshot::channel();
        self.tasks.spawn(async move {
            let manifests = counter.count_missing(&catalog).await;
            // Fails only if the caller stopped waiting.
            let _ = done.send(());
            // Estimates of a build without a tokenizer are not stored: builds with one would take them for counts.
            if cfg!(feature = "tokens") {
                counter.store_token_counts(&manifests).await;
            }
        });
        // An error means that the registry was closed.
        let _ = counted.await;
    }

    /// Counts what is missing; returns the manifests that have new counts. A task that panics leaves its manifest
    /// uncounted; the next reader tries again.
    async fn count_missing(&self, catalog: &Catalog) -> Vec<PackedManifest> {
        // A caller that waits here finds everything counted afterwards.
        let _guard = self.lock.lock().await;
        let uncounted = catalog.sources().filter(|source| !source.segment.has_token_counts());
        let count = |source: &Arc<CatalogSource>| {
            let segment = source.segment.clone();
            tokio::task::spawn_blocking(move || segment.with_token_counts())
        };
        let tasks: Vec<_> = uncounted.map(count).collect();
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
            let snapshot = self.state.snapshot();
            let recorded = snapshot.inventory.source(&manifest.source).and_then(|state| state.manifest);
            if recorded != Some(manifest.fingerprint) || snapshot.ensure_usable().is_err() {
                continue;
            }
            if let Err(error) = self.state.store.put_manifest(manifest).await {
                tracing::debug!(%error, "token counts cannot be stored now; they will be counted again");
            }
        }
    }
}
