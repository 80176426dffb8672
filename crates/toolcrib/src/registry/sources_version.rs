//! Until when what is said of the sources stays true, for whoever keeps an answer.

use std::sync::Arc;

use tokio::time::Instant;
use toolcrib_core::Timestamp;

use super::{Registry, RegistryInner, Snapshot};
use crate::connections::SlotStatuses;

/// A state of all sources: nothing was written since, no connection came or went, and nothing has grown old.
#[derive(Debug)]
pub struct SourcesVersion {
    snapshot: Arc<Snapshot>,
    slot_statuses: SlotStatuses,
    /// From when to when by the registry's clock.
    taken_at: Timestamp,
    valid_until: Timestamp,
    /// When the first lease ends, if there is one.
    first_lease_end: Option<Instant>,
}

impl Registry {
    /// The state of this moment. Taken before [`Registry::sources`], it tells when those are to be read again.
    pub fn sources_version(&self) -> SourcesVersion {
        self.shared.sources_version()
    }

    pub fn is_current(&self, moment: &SourcesVersion) -> bool {
        let here = self.shared.options.clock.now();
        Arc::ptr_eq(&moment.snapshot, &self.shared.snapshot.load())
            && here >= moment.taken_at
            && here < moment.valid_until
            && moment.first_lease_end.is_none_or(|end| Instant::now() < end)
            && self.shared.connectors.slot_statuses() == moment.slot_statuses
    }
}

impl RegistryInner {
    fn sources_version(&self) -> SourcesVersion {
        let (now, made) = (self.snapshot.load_full(), self.options.clock.now());
        let links = self.connectors.slot_statuses();
        let later = |at: Timestamp, than: Timestamp| Some(at).filter(|at| *at > than);
        let grows_old = now.effective_sources.iter().filter_map(|(id, source)| {
            let checked_at = now.statuses.get(id)?.checked_at?;
            later(checked_at.plus(source.settings.ttl()), made)
        });
        let ends = grows_old.min().unwrap_or(Timestamp(i64::MAX));
        let leases = now.statuses.values().filter_map(|status| status.discovering_until);
        let leases_end = leases.filter(|end| *end > Instant::now()).min();
        SourcesVersion {
            snapshot: now,
            slot_statuses: links,
            taken_at: made,
            valid_until: ends,
            first_lease_end: leases_end,
        }
    }
}
