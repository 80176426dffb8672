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

/// Results that depend on the sources and settings of a catalogue alone.
#[derive(Debug, Default)]
pub(super) struct ViewCaches {
    /// Key of the full view.
    pub(super) full_key: OnceLock<ViewKey>,
    /// Index of the full view, built by the first search.
    full_index: OnceLock<Arc<SearchIndex>>,
    /// Masks of the views that were read, by the key of their scope; `None` inside for the full view.
    masks: CopyOnWriteCache<Fingerprint, Option<Arc<ViewMask>>>,
    /// The same for scopes with globs on names.
    narrowed_masks: CopyOnWriteCache<Fingerprint, Option<Arc<ViewMask>>>,
    /// Indexes of restricted views. Equal views share one, whatever rules they follow from.
    indexes: IndexCache,
}

/// Search indexes by the key of their view, newest first, of at most [`MAX_INDEXED_TOOLS`] tools together. Reads take no
/// lock.
#[derive(Debug, Default)]
struct IndexCache(ArcSwap<Vec<(ViewKey, Arc<SearchIndex>)>>);

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

    /// Returns the index of a restricted view. Two searches that need it at the same time may both build it.
    pub(super) fn restricted_index(&self, view: ViewKey, build: impl FnOnce() -> SearchIndex) -> Arc<SearchIndex> {
        self.indexes.get_or_insert(view, build)
    }
}

impl IndexCache {
    fn get_or_insert(&self, view: ViewKey, build: impl FnOnce() -> SearchIndex) -> Arc<SearchIndex> {
        if let Some((_, index)) = self.0.load().iter().find(|(key, _)| *key == view) {
            return index.clone();
        }
        let index = Arc::new(build());
        self.0.rcu(|indexes| {
            let mut free = MAX_INDEXED_TOOLS.saturating_sub(index.len());
            let others = indexes.iter().filter(|(key, _)| *key != view).take_while(|(_, other)| {
                let fits = other.len() <= free;
                free = free.saturating_sub(other.len());
                fits
            });
            std::iter::once((view, index.clone())).chain(others.cloned()).collect::<Vec<_>>()
        });
        index
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
        let cache = IndexCache::default();
        let view =
            |number: usize| View::full(Arc::new(Catalog::default().with_essential(vec![number.to_string()]))).key();
        let large = || SearchIndex::with_len(MAX_INDEXED_TOOLS / 2);
        let oldest = cache.get_or_insert(view(0), large);
        assert!(Arc::ptr_eq(&oldest, &cache.get_or_insert(view(0), large)));
        cache.get_or_insert(view(1), large);
        cache.get_or_insert(view(2), large);
        assert_eq!(cache.0.load().iter().map(|(key, _)| *key).collect::<Vec<_>>(), [view(2), view(1)]);
    }
}
