//! Lockfiles, and differences between the current tool lists and those of a lockfile or an earlier time. Compares what
//! is known; callers refresh first if they want to.
//!
//! A source that cannot be compared is never reported as unchanged or removed: its entry in the diff has an error
//! instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_catalog::Segment;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::principal::Principal;
use toolcrib_core::{Code, Result, SourceId, Timestamp};
use toolcrib_diff::lockfile::{LockedSource, Lockfile};
use toolcrib_diff::report::{CatalogDiff, SourceDiff, SourceDiffError};

use super::{DiscoveryStatus, Registry, Visibility};
use crate::connector::run_blocking;
use crate::state::Snapshot;
use crate::store::ErrorSummary;

/// Lockfiles of the catalogue as a principal may see it, and what changed since one was written; see
/// [`Registry::lockfile`].
#[derive(Debug, Clone, Copy)]
pub struct Lockfiles<'a> {
    pub(super) registry: &'a Registry,
    pub(super) principal: &'a Principal,
}

impl Lockfiles<'_> {
    /// Builds a lockfile of the current tools of every enabled source. Tools of the host program are not included.
    pub async fn build(&self) -> Result<Lockfile> {
        let segments = self.segments_by_source(&self.visibility());
        run_blocking(move || Lockfile::from_segments(segments.values().map(|segment| &**segment))).await
    }

    /// Returns the differences from a lockfile. If the store still has the locked manifest, definitions are compared in
    /// full; otherwise only by what the lockfile records of them. A lockfile holds the normal form of short schemas, so
    /// that a build server without the store classifies changes the same way.
    pub async fn diff(&self, lockfile: &Lockfile) -> Result<CatalogDiff> {
        let visibility = self.visibility();
        let snapshot = visibility.snapshot();
        let segments = self.segments_by_source(&visibility);
        let mut diffs: BTreeMap<SourceId, SourceDiff> = BTreeMap::new();
        // Locked sources: compared, or missing.
        for (id, locked) in &lockfile.sources {
            let diff = match segments.get(id) {
                Some(segment) => {
                    self.diff_locked_source(locked.clone(), segment.clone(), self.is_builtin(snapshot, id)).await?
                }
                None => {
                    self.missing_source(snapshot, id, locked.inventory_hash, locked.tools.keys().cloned().collect())
                }
            };
            diffs.insert(id.clone(), diff);
        }
        // Sources that are not in the lockfile.
        for (id, segment) in segments.iter().filter(|(id, _)| !lockfile.sources.contains_key(*id)) {
            diffs.insert(id.clone(), SourceDiff::from_added_source(segment));
        }
        self.mark_failed_sources(&visibility, &mut diffs, |id| {
            lockfile.sources.get(id).map(|locked| locked.inventory_hash)
        });
        Ok(self.build_diff(diffs))
    }

    /// Returns the differences from the tool lists at a time in the past. Sources that were disabled or not yet
    /// discovered then count as new. Fails with `BAD_REQUEST` for a time in the future.
    pub async fn diff_since(&self, at: Timestamp) -> Result<CatalogDiff> {
        let then = self.registry.history().inventory_at(at).await?;
        let visibility = self.visibility();
        let snapshot = visibility.snapshot();
        let segments = self.segments_by_source(&visibility);
        let mut diffs: BTreeMap<SourceId, SourceDiff> = BTreeMap::new();
        // Sources that were enabled at that time.
        for (id, state) in then.sources().filter(|(id, state)| state.enabled && visibility.shows_source(id)) {
            let Some(manifest) = state.manifest else { continue };
            // The same manifest: nothing to compare, and nothing to read from the store.
            if snapshot.catalog.source(id).is_some_and(|source| source.segment.fingerprint() == manifest) {
                continue;
            }
            let before = self.registry.history().load_segment(manifest, state.kind == "builtin").await;
            let before = before.map(|segment| visibility.restrict_segment(&Arc::new(segment)));
            let diff = match (before, segments.get(id)) {
                // A store that is down fails the request; a manifest that is gone only this source.
                (Err(error), _) if error.code == Code::StoreUnavailable => return Err(error),
                (Err(error), _) => {
                    let before = Some(manifest).filter(|_| !visibility.restricts(id));
                    SourceDiff::from_error(id, before, diff_error(ErrorSummary::from_error(&error)))
                }
                (Ok(before), Some(after)) => {
                    let after = after.clone();
                    run_blocking(move || SourceDiff::between(&before, &after)).await?
                }
                (Ok(before), None) => {
                    let names = before.entries().iter().map(|entry| entry.name.to_string()).collect();
                    self.missing_source(snapshot, id, before.fingerprint(), names)
                }
            };
            diffs.insert(id.clone(), diff);
        }
        // Sources that are new since then.
        let was_known = |id: &SourceId| then.source(id).is_some_and(|state| state.enabled && state.manifest.is_some());
        for (id, segment) in segments.iter().filter(|(id, _)| !was_known(id)) {
            diffs.insert(id.clone(), SourceDiff::from_added_source(segment));
        }
        self.mark_failed_sources(&visibility, &mut diffs, |id| then.source(id).and_then(|state| state.manifest));
        Ok(self.build_diff(diffs))
    }

    /// Collects the differences of the sources, and lists stale sources.
    fn build_diff(&self, diffs: BTreeMap<SourceId, SourceDiff>) -> CatalogDiff {
        let stale = self
            .registry
            .sources()
            .list_for(self.principal)
            .into_iter()
            .filter(|view| view.enabled && view.freshness == Freshness::Stale);
        CatalogDiff { stale: stale.map(|view| view.id).collect(), ..CatalogDiff::from_sources(diffs.into_values()) }
    }

    fn visibility(&self) -> Visibility {
        self.registry.visibility(self.principal)
    }

    /// Returns the segment of each source in the catalogue, without the tools of the host program and those that the
    /// principal may not know of.
    fn segments_by_source(&self, visibility: &Visibility) -> BTreeMap<SourceId, Arc<Segment>> {
        let embedded = self.registry.connectors.builtins().embedded_id();
        let segments = visibility.snapshot().catalog.sources().map(|source| &source.segment);
        let visible =
            segments.filter(|segment| segment.source() != embedded && visibility.shows_source(segment.source()));
        visible.map(|segment| (segment.source().clone(), visibility.restrict_segment(segment))).collect()
    }

    /// Whether a source is one of built-in tools, whose names have no prefix.
    fn is_builtin(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        snapshot.effective_sources.get(id).is_some_and(|source| source.kind.is_builtin())
    }

    /// Compares a locked source with its current segment. Reads the store, and compares on a blocking thread.
    async fn diff_locked_source(
        &self,
        locked: LockedSource,
        segment: Arc<Segment>,
        is_builtin: bool,
    ) -> Result<SourceDiff> {
        let before = self.registry.history().load_segment(locked.inventory_hash, is_builtin).await.ok();
        let is_locked = |before: &Segment, locked: &LockedSource| {
            let fingerprint = |entry| before.packed_tool(entry).fingerprint;
            before.entries().len() == locked.tools.len()
                && before.entries().iter().all(|entry| {
                    locked.tools.get(entry.name.as_str()).is_some_and(|tool| tool.fingerprint == fingerprint(entry))
                })
        };
        run_blocking(move || match before {
            // A lockfile may have been edited or merged: use the stored manifest only if it has exactly the locked
            // tools.
            Some(before) if is_locked(&before, &locked) => SourceDiff::between(&before, &segment),
            Some(_) | None => SourceDiff::from_lockfile(&locked, &segment),
        })
        .await
    }

    /// Returns the difference for a source without current tools: it was removed, or could not be read.
    fn missing_source(
        &self,
        snapshot: &Snapshot,
        id: &SourceId,
        before: Fingerprint,
        names: Vec<String>,
    ) -> SourceDiff {
        if let Some(error) = snapshot.invalid_sources.get(id) {
            return SourceDiff::from_error(id, Some(before), diff_error(error.clone()));
        }
        match self.registry.sources().get_for(self.principal, id) {
            // Still declared: its tools are unknown, not removed.
            Some(view) if view.enabled => {
                let unknown = || ErrorSummary::new(Code::ToolUnavailable, "its tools are not known yet");
                SourceDiff::from_error(id, Some(before), diff_error(view.last_error.unwrap_or_else(unknown)))
            }
            Some(_) | None => SourceDiff::from_removed_source(id, before, names),
        }
    }

    /// Marks enabled sources whose last discovery failed as not compared, even if their last good list is known.
    fn mark_failed_sources(
        &self,
        visibility: &Visibility,
        diffs: &mut BTreeMap<SourceId, SourceDiff>,
        before: impl Fn(&SourceId) -> Option<Fingerprint>,
    ) {
        for view in self.registry.sources().list_for(self.principal) {
            let Some(error) = view.last_error.filter(|_| view.enabled && view.status == DiscoveryStatus::Failed) else {
                continue;
            };
            let error = diff_error(error);
            match diffs.get_mut(&view.id) {
                Some(diff) if diff.error.is_some() => {}
                Some(diff) => diff.error = Some(error),
                None => {
                    let catalog_source = visibility.snapshot().catalog.source(&view.id);
                    let after = catalog_source.and_then(|_| visibility.inventory_hash(&view.id));
                    // The fingerprint of an earlier list covers tools that the principal may not know of.
                    let before = before(&view.id).filter(|_| !visibility.restricts(&view.id));
                    let mut diff = SourceDiff::from_error(&view.id, before, error);
                    diff.after = after;
                    diffs.insert(view.id, diff);
                }
            }
        }
    }
}

/// Converts the error of a discovery or of a store.
fn diff_error(error: ErrorSummary) -> SourceDiffError {
    let ErrorSummary { code, message, retryable } = error;
    SourceDiffError { code, message, retryable }
}
