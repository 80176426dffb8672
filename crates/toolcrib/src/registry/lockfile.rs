//! Lockfiles, and what differs between then and now. Whom to contact before is for others to decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_core::catalog::Segment;
use toolcrib_core::diff::{CatalogDiff, SourceDiff, SourceDiffError};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::lockfile::{LockedSource, Lockfile};
use toolcrib_core::{Code, Result, SourceId, Timestamp};

use super::blocking::run_blocking;
use super::{DiscoveryStatus, Registry, Snapshot};

const COMPARISON_FAILED: &str = "lists could not be compared";

impl Registry {
    /// What every enabled source offers, as it is known now. Tools of an embedding program are no source's.
    pub async fn lockfile(&self) -> Result<Lockfile> {
        let offered = self.segments_by_source(&self.shared.snapshot.load_full());
        run_blocking(COMPARISON_FAILED, move || Lockfile::from_segments(offered.values().map(|segment| &**segment)))
            .await
    }

    /// What differs from a lockfile. Where the store still has a list that was locked, definitions are compared in
    /// full; else only what the lockfile tells of them.
    pub async fn diff_from_lockfile(&self, lock: &Lockfile) -> Result<CatalogDiff> {
        let snapshot = self.shared.snapshot.load_full();
        let offered = self.segments_by_source(&snapshot);
        let mut found: BTreeMap<SourceId, SourceDiff> = BTreeMap::new();
        for (id, locked) in &lock.sources {
            let difference = match offered.get(id) {
                Some(segment) => {
                    self.diff_locked_source(locked.clone(), segment.clone(), self.is_builtin(&snapshot, id)).await?
                }
                None => {
                    self.missing_source(&snapshot, id, locked.inventory_hash, locked.tools.keys().cloned().collect())
                }
            };
            found.insert(id.clone(), difference);
        }
        for (id, segment) in offered.iter().filter(|(id, _)| !lock.sources.contains_key(*id)) {
            found.insert(id.clone(), SourceDiff::from_added_source(segment));
        }
        self.mark_failed_sources(&snapshot, &mut found, |id| lock.sources.get(id).map(|locked| locked.inventory_hash));
        Ok(self.build_difference(found))
    }

    /// What differs from a moment in the past.
    pub async fn diff_since(&self, at: Timestamp) -> Result<CatalogDiff> {
        let then = self.inventory_at(at).await?;
        let snapshot = self.shared.snapshot.load_full();
        let offered = self.segments_by_source(&snapshot);
        let mut found: BTreeMap<SourceId, SourceDiff> = BTreeMap::new();
        for (id, state) in then.sources().filter(|(_, state)| state.enabled) {
            let Some(manifest) = state.manifest else { continue };
            let before = match offered.get(id) {
                Some(segment) if segment.fingerprint() == manifest => continue,
                _ => self.load_segment(manifest, state.kind == "builtin").await,
            };
            let difference = match (before, offered.get(id)) {
                (Err(error), _) if error.code == Code::StoreUnavailable => return Err(error),
                (Err(error), _) => SourceDiff::from_error(id, Some(manifest), error.code, error.message),
                (Ok(before), Some(after)) => {
                    let after = after.clone();
                    run_blocking(COMPARISON_FAILED, move || SourceDiff::between(&before, &after)).await?
                }
                (Ok(before), None) => {
                    let names = before.entries().iter().map(|entry| entry.name.to_string()).collect();
                    self.missing_source(&snapshot, id, manifest, names)
                }
            };
            found.insert(id.clone(), difference);
        }
        let known = |id: &SourceId| then.source(id).is_some_and(|state| state.enabled && state.manifest.is_some());
        for (id, segment) in offered.iter().filter(|(id, _)| !known(id)) {
            found.insert(id.clone(), SourceDiff::from_added_source(segment));
        }
        self.mark_failed_sources(&snapshot, &mut found, |id| then.source(id).and_then(|state| state.manifest));
        Ok(self.build_difference(found))
    }

    fn build_difference(&self, found: BTreeMap<SourceId, SourceDiff>) -> CatalogDiff {
        let stale = self.sources().into_iter().filter(|view| view.enabled && view.freshness == Freshness::Stale);
        CatalogDiff { stale: stale.map(|view| view.id).collect(), ..CatalogDiff::from_sources(found.into_values()) }
    }

    fn segments_by_source(&self, snapshot: &Snapshot) -> BTreeMap<SourceId, Arc<Segment>> {
        let embedded = self.shared.connectors.builtins().embedded_id();
        let parts = snapshot.catalog.sources().filter(|part| part.segment.source() != embedded);
        parts.map(|part| (part.segment.source().clone(), part.segment.clone())).collect()
    }

    fn is_builtin(&self, snapshot: &Snapshot, id: &SourceId) -> bool {
        snapshot.effective_sources.get(id).is_some_and(|source| source.kind.is_builtin())
    }

    async fn diff_locked_source(
        &self,
        locked: LockedSource,
        segment: Arc<Segment>,
        builtin: bool,
    ) -> Result<SourceDiff> {
        let then = self.load_segment(locked.inventory_hash, builtin).await.ok();
        let same = |then: &Segment, locked: &LockedSource| {
            let stored = |entry| then.packed_tool(entry).fingerprint;
            then.entries().len() == locked.tools.len()
                && then.entries().iter().all(|entry| {
                    locked.tools.get(entry.name.as_str()).is_some_and(|tool| tool.fingerprint == stored(entry))
                })
        };
        run_blocking(COMPARISON_FAILED, move || match then {
            // A lockfile may have been edited, or merged from two.
            Some(then) if same(&then, &locked) => SourceDiff::between(&then, &segment),
            Some(_) | None => SourceDiff::from_lockfile(&locked, &segment),
        })
        .await
    }

    /// A source that offers nothing here: it is gone, or could not be read.
    fn missing_source(
        &self,
        snapshot: &Snapshot,
        id: &SourceId,
        before: Fingerprint,
        names: Vec<String>,
    ) -> SourceDiff {
        if let Some(failure) = snapshot.invalid_sources.get(id) {
            return SourceDiff::from_error(id, Some(before), failure.code, failure.message.clone());
        }
        match self.source(id) {
            Some(view) if view.enabled => {
                let (code, message) = match view.last_error {
                    Some(failure) => (failure.code, failure.message),
                    None => (Code::ToolUnavailable, "its tools are not known yet".to_owned()),
                };
                SourceDiff::from_error(id, Some(before), code, message)
            }
            Some(_) | None => SourceDiff::from_removed_source(id, before, names),
        }
    }

    /// An enabled source whose last discovery failed was not read, whether or not its last good list is at hand.
    fn mark_failed_sources(
        &self,
        snapshot: &Snapshot,
        found: &mut BTreeMap<SourceId, SourceDiff>,
        before: impl Fn(&SourceId) -> Option<Fingerprint>,
    ) {
        for view in self.sources() {
            let Some(failure) = view.last_error.filter(|_| view.enabled && view.status == DiscoveryStatus::Failed)
            else {
                continue;
            };
            let (code, message) = (failure.code, failure.message);
            match found.get_mut(&view.id) {
                Some(difference) if difference.error.is_some() => {}
                Some(difference) => difference.error = Some(SourceDiffError { code, message }),
                None => {
                    let after = snapshot.catalog.source(&view.id).map(|part| part.segment.fingerprint());
                    let mut unreadable = SourceDiff::from_error(&view.id, before(&view.id), code, message);
                    unreadable.after = after;
                    found.insert(view.id, unreadable);
                }
            }
        }
    }
}
