//! Caching hints for the merged tool list, from the hints that sources give for their own lists.

use super::Sources;

/// Time for which the merged list may be cached, and whether it may be shared between callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListHints {
    /// The shortest time that any source gives; `None` if no source gives one.
    pub ttl_ms: Option<u64>,
    /// Whether any source says that its list must not be shared between callers.
    pub private: bool,
}

impl Sources<'_> {
    /// Returns the combined hints of all enabled sources. They do not affect when a source is refreshed; its `ttl`
    /// setting does.
    pub fn list_hints(&self) -> ListHints {
        let snapshot = self.registry.state.snapshot();
        let enabled = snapshot.inventory.sources().filter(|(id, state)| snapshot.environment.is_enabled(id, state));
        let statuses = enabled.filter_map(|(id, _)| snapshot.statuses.get(id));
        statuses.fold(ListHints::default(), |hints, status| ListHints {
            ttl_ms: hints.ttl_ms.into_iter().chain(status.hint_ttl_ms.filter(|ttl| *ttl > 0)).min(),
            private: hints.private || status.private,
        })
    }
}
