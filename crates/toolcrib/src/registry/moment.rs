//! Until when what is said of the sources stays true, for whoever keeps an answer.

use std::sync::Arc;

use tokio::time::Instant;
use toolcrib_core::Timestamp;

use super::{Registry, Shared, Snapshot};
use crate::connections::Links;

/// A state of all sources: nothing was written since, no connection came or went, and nothing has grown old.
#[derive(Debug)]
pub struct Moment {
    now: Arc<Snapshot>,
    links: Links,
    /// From when to when by the registry's clock.
    made: Timestamp,
    ends: Timestamp,
    /// When the first lease ends, if there is one.
    leases_end: Option<Instant>,
}

impl Registry {
    /// The state of this moment. Taken before [`Registry::sources`], it tells when those are to be read again.
    pub fn moment(&self) -> Moment {
        self.shared.moment()
    }

    pub fn is_still(&self, moment: &Moment) -> bool {
        let here = self.shared.options.clock.now();
        Arc::ptr_eq(&moment.now, &self.shared.now.load())
            && here >= moment.made
            && here < moment.ends
            && moment.leases_end.is_none_or(|end| Instant::now() < end)
            && self.shared.connections.links() == moment.links
    }
}

impl Shared {
    fn moment(&self) -> Moment {
        let (now, made) = (self.now.load_full(), self.options.clock.now());
        let links = self.connections.links();
        let later = |at: Timestamp, than: Timestamp| Some(at).filter(|at| *at > than);
        let grows_old = now.sources.iter().filter_map(|(id, source)| {
            let checked_at = now.standings.get(id)?.checked_at?;
            later(checked_at.plus(source.settings.ttl()), made)
        });
        let ends = grows_old.min().unwrap_or(Timestamp(i64::MAX));
        let leases = now.standings.values().filter_map(|standing| standing.discovering_until);
        let leases_end = leases.filter(|end| *end > Instant::now()).min();
        Moment { now, links, made, ends, leases_end }
    }
}
