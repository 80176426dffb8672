//! [`ViewCaches`]: what views compute from a catalogue: masks, digests and search indexes. Catalogues with the same
//! sources and settings share it, so that a changed rule discards nothing of it.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use toolcrib_core::access_rules::AccessScope;
use toolcrib_core::fingerprint::Fingerprint;

use super::source_scope::{CopyOnWriteCache, MAX_CACHED_SCOPES};
use super::view::ViewMask;
use super::view_key::ViewKey;
use crate::search::SearchIndex;

/// Maximum number of masks of scopes with globs on names. Clients choose the globs, so these masks must not displace
/// those of other callers.
const MAX_NARROWED_MASKS: usize = 64;
/// Maximum number of tools in all cached indexes of restricted views together. An index takes about 0.6 kB per tool.
const MAX_INDEXED_TOOLS: usize = 250_000;
/// The same for views of scopes with globs on names.
const MAX_NARROWED_TOOLS: usize = 50_000;

/// Results that depend on the sources and settings of a catalogue alone.
#[derive(Debug)]
pub(super) struct ViewCaches {
    /// Key and list digest of the full view.
    pub(super) full_digests: OnceLock<(ViewKey, Fingerprint)>,
    /// Index of the full view, built by the first search.
    full_index: OnceLock<Arc<SearchIndex>>,
    /// Masks of the views that were read, by the key of their scope; `None` inside for the full view.
    masks: CopyOnWriteCache<Fingerprint, Option<Arc<ViewMask>>>,
    /// The same for scopes with globs on names.
    narrowed_masks: CopyOnWriteCache<Fingerprint, Option<Arc<ViewMask>>>,
    /// Indexes of restricted views. Equal views share one, whatever rules they follow from.
    pub(super) indexes: IndexCache,
    /// The same for views of scopes with globs on names.
    pub(super) narrowed_indexes: IndexCache,
}

/// Search indexes by the key of their view, newest first, within a number of tools. Reads take no lock.
#[derive(Debug)]
pub(super) struct IndexCache {
    entries: ArcSwap<Vec<Arc<CachedIndex>>>,
    /// Maximum number of tools of all indexes together.
    max_tools: usize,
}

/// An index that the first search builds; others that need it at the same time wait for it.
#[derive(Debug)]
struct CachedIndex {
    view: ViewKey,
    /// Number of tools in the view, by which its size is known before it is built.
    tool_count: usize,
    index: OnceLock<Arc<SearchIndex>>,
}

impl Default for ViewCaches {
    fn default() -> ViewCaches {
        ViewCaches {
            full_digests: OnceLock::new(),
            full_index: OnceLock::new(),
            masks: CopyOnWriteCache::default(),
            narrowed_masks: CopyOnWriteCache::default(),
            indexes: IndexCache::new(MAX_INDEXED_TOOLS),
            narrowed_indexes: IndexCache::new(MAX_NARROWED_TOOLS),
        }
    }
}

impl ViewCaches {
    /// Returns the mask of a scope; `None` for the full view.
    pub(super) fn mask(
        &self,
        scope: &AccessScope,
        compute: impl FnOnce() -> Option<Arc<ViewMask>>,
    ) -> Option<Arc<ViewMask>> {
        let mask = if scope.only_globs().is_empty() {
            self.masks.get_or_insert(scope.key(), MAX_CACHED_SCOPES, compute)
        } else {
            self.narrowed_masks.get_or_insert(scope.key(), MAX_NARROWED_MASKS, compute)
        };
        (*mask).clone()
    }

    /// Returns the index of the full view. Searches that need it at the same time wait for one of them to build it.
    pub(super) fn full_index(&self, build: impl FnOnce() -> SearchIndex) -> Arc<SearchIndex> {
        self.full_index.get_or_init(|| Arc::new(build())).clone()
    }
}

impl IndexCache {
    fn new(max_tools: usize) -> IndexCache {
        IndexCache { entries: ArcSwap::default(), max_tools }
    }

    /// Returns the index of a view with a number of tools.
    pub(super) fn get_or_build(
        &self,
        view: ViewKey,
        tool_count: usize,
        build: impl FnOnce() -> SearchIndex,
    ) -> Arc<SearchIndex> {
        let find = |entries: &[Arc<CachedIndex>]| entries.iter().find(|entry| entry.view == view).cloned();
        let found = find(&self.entries.load());
        let entry = found.unwrap_or_else(|| {
            let new = Arc::new(CachedIndex { view, tool_count, index: OnceLock::new() });
            let before = self.entries.rcu(|entries| match find(entries) {
                // Another search has added it meanwhile.
                Some(_) => entries.clone(),
                None => Arc::new(self.with_newest(&new, entries)),
            });
            find(&before).unwrap_or(new)
        });
        entry.index.get_or_init(|| Arc::new(build())).clone()
    }

    /// Returns the entries that fit beside a new one.
    fn with_newest(&self, new: &Arc<CachedIndex>, entries: &[Arc<CachedIndex>]) -> Vec<Arc<CachedIndex>> {
        let mut free = self.max_tools.saturating_sub(new.tool_count);
        let older = entries.iter().take_while(|entry| {
            let fits = entry.tool_count <= free;
            free = free.saturating_sub(entry.tool_count);
            fits
        });
        std::iter::once(new).chain(older).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;
    use toolcrib_core::access::Role;
    use toolcrib_core::access_rules::{AccessRules, NamedRule};
    use toolcrib_core::inventory::{Origin, SourceState};
    use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
    use toolcrib_core::principal::{Principal, ViewNarrowing};
    use toolcrib_core::source::SourceId;

    use super::*;
    use crate::{Catalog, CatalogSource, Segment, SourceOptions, View};

    fn source(id: &str) -> Arc<CatalogSource> {
        let id = SourceId::parse(id).unwrap();
        let tools = ["read", "write"].map(|name| to_raw_value(&json!({ "name": name })).unwrap());
        let packed = PackedManifest::new(&Manifest::new(&id, &tools, Vec::new(), &ToolLimits::default())).unwrap();
        let state = SourceState::new("mcp", Origin::Config, Fingerprint::digest("x"), None);
        let segment = Arc::new(Segment::with_prefix(Arc::new(packed)));
        Arc::new(CatalogSource::new(segment, Arc::new(state), SourceOptions::default()))
    }

    /// Rules with three groups, of which `readers` and `also_readers` have the same tools.
    fn rules() -> Arc<AccessRules> {
        let mut rules = AccessRules::default();
        for (name, group) in [
            ("readers", json!({ "select": [{ "name": "read" }] })),
            ("also_readers", json!({ "select": [{ "name": "r*d" }] })),
            ("writers", json!({ "select": [{ "name": "write" }] })),
        ] {
            rules.define(NamedRule::Group(name.into(), serde_json::from_value(group).unwrap()), Origin::Config);
        }
        Arc::new(rules)
    }

    fn caller(group: &str) -> Principal {
        Principal::local("x").with_groups([group.to_owned()]).with_role(Role::Agent)
    }

    #[test]
    fn catalogues_with_the_same_content_share_masks_and_indexes() {
        let sources = vec![source("git"), source("mail")];
        let catalog = Arc::new(Catalog::build(1, sources.clone()));
        let scope = rules().scope(&caller("readers"));
        let views = |catalog: &Arc<Catalog>| [View::full(catalog.clone()), View::for_scope(catalog.clone(), &scope)];
        let indexes = |catalog: &Arc<Catalog>| views(catalog).map(|view| view.search_index());
        let before = indexes(&catalog);
        let shares_with = |next: Catalog| {
            let next = Arc::new(next.sharing_views_of(&catalog));
            indexes(&next).iter().zip(&before).map(|(new, old)| Arc::ptr_eq(new, old)).collect::<Vec<_>>()
        };
        assert_eq!(shares_with(Catalog::build(2, sources.clone())), [true, true]);
        assert_eq!(shares_with(Catalog::build(2, vec![source("git"), sources[1].clone()])), [false, false]);
        assert_eq!(shares_with(Catalog::build(2, sources).with_essential(vec!["*".into()])), [false, false]);
    }

    #[test]
    fn equal_views_share_an_index_whatever_rules_they_follow_from() {
        let catalog = Arc::new(Catalog::build(1, vec![source("git")]));
        let index = |group: &str| View::for_scope(catalog.clone(), &rules().scope(&caller(group))).search_index();
        assert!(Arc::ptr_eq(&index("readers"), &index("also_readers")));
        assert!(!Arc::ptr_eq(&index("readers"), &index("writers")));
    }

    #[test]
    fn globs_of_clients_displace_no_other_masks() {
        let catalog = Arc::new(Catalog::build(1, vec![source("git")]));
        let rules = rules();
        let scope = rules.scope(&caller("readers"));
        View::for_scope(catalog.clone(), &scope);
        for number in 0..2 * MAX_CACHED_SCOPES {
            let narrowing = ViewNarrowing { only: vec!["*".into(), number.to_string()], ..ViewNarrowing::default() };
            let view = View::for_scope(catalog.clone(), &rules.scope(&caller("readers").narrowed(narrowing)));
            assert_eq!(view.tool_count(), 1);
        }
        let mut computed = false;
        catalog.view_caches.mask(&scope, || {
            computed = true;
            None
        });
        assert!(!computed);
    }

    #[test]
    fn a_large_index_displaces_older_ones() {
        let cache = IndexCache::new(10);
        let key =
            |number: usize| View::full(Arc::new(Catalog::default().with_essential(vec![number.to_string()]))).key();
        let get = |number: usize, tools: usize| cache.get_or_build(key(number), tools, SearchIndex::default);
        let oldest = get(0, 5);
        assert!(Arc::ptr_eq(&oldest, &get(0, 5)));
        get(1, 5);
        get(2, 5);
        let cached = || cache.entries.load().iter().map(|entry| entry.view).collect::<Vec<_>>();
        assert_eq!(cached(), [key(2), key(1)]);
        get(3, 100);
        assert_eq!(cached(), [key(3)], "one is always kept, for the next search");
    }
}
