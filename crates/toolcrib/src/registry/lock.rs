//! Lockfiles, and what differs between then and now. Whom to contact before is for others to decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_core::catalog::Segment;
use toolcrib_core::difference::{Difference, SourceDifference, Unreadable};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::lock::{Lock, LockedSource};
use toolcrib_core::{Code, Result, SourceId, Timestamp};

use super::apart::apart;
use super::{Registry, Snapshot, Status};

const UNCOMPARED: &str = "lists could not be compared";

impl Registry {
    /// What every enabled source offers, as it is known now. Tools of an embedding program are no source's.
    pub async fn lock(&self) -> Result<Lock> {
        let offered = self.offered(&self.shared.now.load_full());
        apart(UNCOMPARED, move || Lock::of(offered.values().map(|segment| &**segment))).await
    }

    /// What differs from a lockfile. Where the store still has a list that was locked, definitions are compared in
    /// full; else only what the lockfile tells of them.
    pub async fn diff_from_lock(&self, lock: &Lock) -> Result<Difference> {
        let now = self.shared.now.load_full();
        let offered = self.offered(&now);
        let mut found: BTreeMap<SourceId, SourceDifference> = BTreeMap::new();
        for (id, locked) in &lock.sources {
            let difference = match offered.get(id) {
                Some(segment) => {
                    self.locked_difference(locked.clone(), segment.clone(), self.is_builtin(&now, id)).await?
                }
                None => self.missing(&now, id, locked.inventory_hash, locked.tools.keys().cloned().collect()),
            };
            found.insert(id.clone(), difference);
        }
        for (id, segment) in offered.iter().filter(|(id, _)| !lock.sources.contains_key(*id)) {
            found.insert(id.clone(), SourceDifference::added(segment));
        }
        self.mark_failed(&now, &mut found, |id| lock.sources.get(id).map(|locked| locked.inventory_hash));
        Ok(self.difference(found))
    }

    /// What differs from a moment in the past.
    pub async fn diff_since(&self, at: Timestamp) -> Result<Difference> {
        let then = self.inventory_at(at).await?;
        let now = self.shared.now.load_full();
        let offered = self.offered(&now);
        let mut found: BTreeMap<SourceId, SourceDifference> = BTreeMap::new();
        for (id, state) in then.sources().filter(|(_, state)| state.enabled) {
            let Some(manifest) = state.manifest else { continue };
            let before = match offered.get(id) {
                Some(segment) if segment.fingerprint() == manifest => continue,
                _ => self.segment_of(manifest, state.kind == "builtin").await,
            };
            let difference = match (before, offered.get(id)) {
                (Err(error), _) if error.code == Code::StoreUnavailable => return Err(error),
                (Err(error), _) => SourceDifference::unreadable(id, Some(manifest), error.code, error.message),
                (Ok(before), Some(after)) => {
                    let after = after.clone();
                    apart(UNCOMPARED, move || SourceDifference::between(&before, &after)).await?
                }
                (Ok(before), None) => {
                    let names = before.entries().iter().map(|entry| entry.name.to_string()).collect();
                    self.missing(&now, id, manifest, names)
                }
            };
            found.insert(id.clone(), difference);
        }
        let known = |id: &SourceId| then.source(id).is_some_and(|state| state.enabled && state.manifest.is_some());
        for (id, segment) in offered.iter().filter(|(id, _)| !known(id)) {
            found.insert(id.clone(), SourceDifference::added(segment));
        }
        self.mark_failed(&now, &mut found, |id| then.source(id).and_then(|state| state.manifest));
        Ok(self.difference(found))
    }

    fn difference(&self, found: BTreeMap<SourceId, SourceDifference>) -> Difference {
        let stale = self.sources().into_iter().filter(|view| view.enabled && view.freshness == Freshness::Stale);
        Difference { stale: stale.map(|view| view.id).collect(), ..Difference::of(found.into_values()) }
    }

    fn offered(&self, now: &Snapshot) -> BTreeMap<SourceId, Arc<Segment>> {
        let embedded = self.shared.connections.builtins().embedded_id();
        let parts = now.catalog.parts().filter(|part| part.segment.source() != embedded);
        parts.map(|part| (part.segment.source().clone(), part.segment.clone())).collect()
    }

    fn is_builtin(&self, now: &Snapshot, id: &SourceId) -> bool {
        now.sources.get(id).is_some_and(|source| source.kind.is_builtin())
    }

    async fn locked_difference(
        &self,
        locked: LockedSource,
        segment: Arc<Segment>,
        builtin: bool,
    ) -> Result<SourceDifference> {
        let then = self.segment_of(locked.inventory_hash, builtin).await.ok();
        let same = |then: &Segment, locked: &LockedSource| {
            let stored = |entry| then.stored(entry).fingerprint;
            then.entries().len() == locked.tools.len()
                && then.entries().iter().all(|entry| {
                    locked.tools.get(entry.name.as_str()).is_some_and(|tool| tool.fingerprint == stored(entry))
                })
        };
        apart(UNCOMPARED, move || match then {
            // A lockfile may have been edited, or merged from two.
            Some(then) if same(&then, &locked) => SourceDifference::between(&then, &segment),
            Some(_) | None => SourceDifference::by_parts(&locked, &segment),
        })
        .await
    }

    /// A source that offers nothing here: it is gone, or could not be read.
    fn missing(&self, now: &Snapshot, id: &SourceId, before: Fingerprint, names: Vec<String>) -> SourceDifference {
        if let Some(failure) = now.invalid.get(id) {
            return SourceDifference::unreadable(id, Some(before), failure.code, failure.message.clone());
        }
        match self.source(id) {
            Some(view) if view.enabled => {
                let (code, message) = match view.last_error {
                    Some(failure) => (failure.code, failure.message),
                    None => (Code::ToolUnavailable, "its tools are not known yet".to_owned()),
                };
                SourceDifference::unreadable(id, Some(before), code, message)
            }
            Some(_) | None => SourceDifference::removed(id, before, names),
        }
    }

    /// An enabled source whose last discovery failed was not read, whether or not its last good list is at hand.
    fn mark_failed(
        &self,
        now: &Snapshot,
        found: &mut BTreeMap<SourceId, SourceDifference>,
        before: impl Fn(&SourceId) -> Option<Fingerprint>,
    ) {
        for view in self.sources() {
            let Some(failure) = view.last_error.filter(|_| view.enabled && view.status == Status::Failed) else {
                continue;
            };
            let (code, message) = (failure.code, failure.message);
            match found.get_mut(&view.id) {
                Some(difference) if difference.error.is_some() => {}
                Some(difference) => difference.error = Some(Unreadable { code, message }),
                None => {
                    let after = now.catalog.part(&view.id).map(|part| part.segment.fingerprint());
                    let mut unreadable = SourceDifference::unreadable(&view.id, before(&view.id), code, message);
                    unreadable.after = after;
                    found.insert(view.id, unreadable);
                }
            }
        }
    }
}
