//! What sources themselves say about their lists, put together for a list made of all of them.

use super::Registry;

/// How long a merged list may be kept, and whether it may be shared between callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListHints {
    /// The shortest time that any source gives; none when none gives one.
    pub ttl_ms: Option<u64>,
    /// Whether any source says that its list is for nobody else.
    pub private: bool,
}

impl Registry {
    /// The hints of all enabled sources together. When a source is looked at again goes by its own `ttl` setting.
    pub fn list_hints(&self) -> ListHints {
        let snapshot = self.shared.snapshot.load_full();
        let enabled = snapshot.inventory.sources().filter(|(id, state)| self.shared.is_enabled(id, state.enabled));
        let statuses = enabled.filter_map(|(id, _)| snapshot.statuses.get(id));
        statuses.fold(ListHints::default(), |hints, status| ListHints {
            ttl_ms: hints.ttl_ms.into_iter().chain(status.hint_ttl_ms.filter(|ttl| *ttl > 0)).min(),
            private: hints.private || status.private,
        })
    }
}
