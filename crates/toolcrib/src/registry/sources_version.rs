//! How long lists may be cached: the version of the sources' state, with which a cached list of sources is compared, and
//! the hints of sources for the merged tool list.
//!
//! A list of sources depends on more than the journal: on the age of tool lists, on leases that end by time, and on
//! connections and breakers of this process. Comparing two `SourcesVersion`s would not do, because time passes without
//! a write; so a version knows until when it holds.

use std::sync::{Arc, Weak};

use tokio::time::Instant;
use toolcrib_core::Timestamp;
use toolcrib_core::principal::Principal;

use super::{Sources, UNRESTRICTED};
use crate::connectors::SlotStatuses;
use crate::state::Snapshot;

/// Identifies a state of all sources. It is current as long as no record was written, no connection was opened or
/// closed, and no list became stale by age.
#[derive(Debug)]
pub struct SourcesVersion {
    /// Weak, so that a cached version does not keep an old snapshot in memory.
    snapshot: Weak<Snapshot>,
    slot_statuses: SlotStatuses,
    /// Range of the registry's clock in which no list becomes stale.
    taken_at: Timestamp,
    valid_until: Timestamp,
    /// End of the first discovery lease, if one is held: a source then stops being shown as discovering.
    first_lease_end: Option<Instant>,
}

/// Time for which the merged list may be cached, and whether it may be shared between callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListHints {
    /// The shortest time that any source gives; `None` if no source gives one.
    pub ttl_ms: Option<u64>,
    /// Whether any source says that its list must not be shared between callers.
    pub private: bool,
}

impl Sources<'_> {
    /// Returns the current version. Take it before [`Sources::list`]; the list is outdated once
    /// [`Sources::is_current`] is false.
    pub fn version(&self) -> SourcesVersion {
        let snapshot = self.registry.state.snapshot();
        let taken_at = self.registry.state.now();
        let slot_statuses = self.registry.connectors.slot_statuses();
        // Lists that are stale already do not change by growing older.
        let expiries = snapshot.effective_sources.iter().filter_map(|(id, source)| {
            let checked_at = snapshot.statuses.get(id)?.checked_at?;
            Some(checked_at.plus(source.settings.ttl())).filter(|expiry| *expiry > taken_at)
        });
        let valid_until = expiries.min().unwrap_or(Timestamp(i64::MAX));
        let leases = snapshot.statuses.values().filter_map(|status| status.discovering_until);
        let first_lease_end = leases.filter(|end| *end > Instant::now()).min();
        let snapshot = Arc::downgrade(&snapshot);
        SourcesVersion { snapshot, slot_statuses, taken_at, valid_until, first_lease_end }
    }

    /// Whether the sources are still in the state that a version identifies. Cheap enough to be asked before every
    /// cached response: no list is rendered.
    pub fn is_current(&self, version: &SourcesVersion) -> bool {
        let now = self.registry.state.now();
        std::ptr::eq(version.snapshot.as_ptr(), Arc::as_ptr(&self.registry.state.snapshot()))
            && now >= version.taken_at
            && now < version.valid_until
            && version.first_lease_end.is_none_or(|end| Instant::now() < end)
            && self.registry.connectors.slot_statuses() == version.slot_statuses
    }

    /// Returns the combined hints of all enabled sources. They do not affect when a source is refreshed; its `ttl`
    /// setting does.
    pub fn list_hints(&self) -> ListHints {
        self.list_hints_for(&UNRESTRICTED)
    }

    /// Like [`Sources::list_hints`], of the sources that a principal may know of.
    pub fn list_hints_for(&self, principal: &Principal) -> ListHints {
        let visibility = self.registry.visibility(principal);
        let snapshot = visibility.snapshot();
        let enabled = snapshot.inventory.sources().filter(|(id, state)| snapshot.environment.is_enabled(id, state));
        let visible = enabled.filter(|(id, _)| visibility.shows_source(id));
        let statuses = visible.filter_map(|(id, _)| snapshot.statuses.get(id));
        statuses.fold(ListHints::default(), |hints, status| ListHints {
            ttl_ms: hints.ttl_ms.into_iter().chain(status.hint_ttl_ms.filter(|ttl| *ttl > 0)).min(),
            private: hints.private || status.private,
        })
    }
}
