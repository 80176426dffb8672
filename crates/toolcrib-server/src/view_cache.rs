//! [`ViewCache`]: values that were made from a view, found by its key.
//!
//! The key covers everything that can be read through the view, so a value that depends on the view alone is valid as long
//! as its key is found. One that depends on more carries that with it; its user checks it after a lookup and, by `keep`,
//! before an insert. Views that are no longer used fall out when newer ones need the room. Principals that see the same
//! share an entry, and no other principal finds it.
//!
//! The limits hold for what the values keep in memory themselves. No value holds the catalogue that it was made from, so
//! an idle cache keeps no old catalogue alive.

use std::sync::Arc;

use arc_swap::ArcSwap;
use toolcrib::catalog::ViewKey;

/// Maximum number of views in a cache. A lookup compares the keys one after the other.
const MAX_CACHED_VIEWS: usize = 32;
/// Maximum size of all values of a cache. A larger value is not cached.
const MAX_CACHED_BYTES: usize = 64 * 1024 * 1024;

/// Bounded cache by the key of a view, or by another key `K` that determines what may be seen. Reads are lock-free; an insert copies the list of entries and swaps it in.
#[derive(Debug)]
pub(crate) struct ViewCache<T, K = ViewKey>(ArcSwap<Vec<ViewCacheEntry<T, K>>>);

/// One value.
#[derive(Debug)]
struct ViewCacheEntry<T, K> {
    view: K,
    value: Arc<T>,
}

/// Size of a cached value. Must be cheap: every insert asks all values.
pub(crate) trait CachedSize {
    /// Bytes that the value keeps in memory. May grow, upon which [`ViewCache::evict`] is called.
    fn cached_bytes(&self) -> usize;
}

impl<T, K> Default for ViewCache<T, K> {
    fn default() -> ViewCache<T, K> {
        ViewCache(ArcSwap::default())
    }
}

impl<T: CachedSize, K: Copy + PartialEq> ViewCache<T, K> {
    /// Returns the value of a view.
    pub(crate) fn get(&self, view: K) -> Option<Arc<T>> {
        self.0.load().iter().find(|entry| entry.view == view).map(|entry| entry.value.clone())
    }

    /// Stores the value of a view. Keeps those of other views that `keep` accepts, newest first, within the limits. Of two
    /// values that are made for the same view at the same time the last one stays.
    pub(crate) fn insert(&self, view: K, value: &Arc<T>, keep: impl Fn(&T) -> bool) {
        self.0.rcu(|entries| {
            let newest = ViewCacheEntry { view, value: value.clone() };
            let others = entries.iter().filter(|entry| entry.view != view && keep(&entry.value));
            within_limits(std::iter::once(newest).chain(others.cloned()))
        });
    }

    /// Applies the limits again, after a value has grown.
    pub(crate) fn evict(&self) {
        self.0.rcu(|entries| within_limits(entries.iter().cloned()));
    }
}

/// Returns the first entries that are within the limits together.
fn within_limits<T: CachedSize, K>(entries: impl Iterator<Item = ViewCacheEntry<T, K>>) -> Vec<ViewCacheEntry<T, K>> {
    let mut free = MAX_CACHED_BYTES;
    let fits = |entry: &ViewCacheEntry<T, K>| match free.checked_sub(entry.value.cached_bytes()) {
        Some(rest) => {
            free = rest;
            true
        }
        None => false,
    };
    entries.filter(fits).take(MAX_CACHED_VIEWS).collect()
}

impl<T, K: Copy> Clone for ViewCacheEntry<T, K> {
    fn clone(&self) -> ViewCacheEntry<T, K> {
        ViewCacheEntry { view: self.view, value: self.value.clone() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use serde_json::value::to_raw_value;
    use toolcrib::catalog::{Catalog, CatalogSource, Segment, SourceOptions, View};
    use toolcrib::core::SourceId;
    use toolcrib::core::fingerprint::Fingerprint;
    use toolcrib::core::inventory::{Origin, SourceState};
    use toolcrib::core::manifest::{Manifest, PackedManifest, ToolLimits};

    use super::*;

    const SOURCES: [&str; 2] = ["git", "mail"];
    const TOOLS: [&str; 3] = ["push", "read", "send"];
    /// Number of masks for [`masked_view`].
    pub(crate) const MASKS: u8 = 1 << (SOURCES.len() * TOOLS.len());

    /// Full view of a new catalogue with six tools of two sources.
    pub(crate) fn full_view(version: u64) -> View {
        View::full(Arc::new(Catalog::build(version, SOURCES.map(build_source).into())))
    }

    /// Full view of a catalogue without the second source.
    pub(crate) fn one_source_view(version: u64) -> View {
        View::full(Arc::new(Catalog::build(version, vec![build_source(SOURCES[0])])))
    }

    /// View of the tools whose bits are set.
    pub(crate) fn masked_view(full: &View, mask: u8) -> View {
        full.restrict(|tool| {
            let source = SOURCES.iter().position(|id| *id == tool.source().as_str()).unwrap();
            let name = TOOLS.iter().position(|name| *name == tool.original_name()).unwrap();
            mask & (1 << (source * TOOLS.len() + name)) != 0
        })
    }

    /// Names of the tools that a view shows.
    pub(crate) fn visible_names(view: &View) -> Vec<String> {
        view.tools().map(|tool| tool.name().to_string()).collect()
    }

    fn build_source(id: &str) -> Arc<CatalogSource> {
        let id = SourceId::parse(id).unwrap();
        let tools = TOOLS.map(|name| to_raw_value(&json!({ "name": name })).unwrap());
        let packed = PackedManifest::new(&Manifest::new(&id, &tools, Vec::new(), &ToolLimits::default())).unwrap();
        let state = SourceState {
            manifest: Some(packed.fingerprint),
            ..SourceState::new("mcp", Origin::Config, Fingerprint::digest("x"), None)
        };
        let options = SourceOptions { kind: "mcp".into(), ..SourceOptions::default() };
        Arc::new(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), Arc::new(state), options))
    }

    /// Keys of different views: each catalogue has another glob for essential tools.
    fn view_key(number: usize) -> ViewKey {
        View::full(Arc::new(Catalog::default().with_essential(vec![number.to_string()]))).key()
    }

    /// A value of a size that may grow.
    struct TestValue {
        number: usize,
        bytes: AtomicUsize,
    }

    impl CachedSize for TestValue {
        fn cached_bytes(&self) -> usize {
            self.bytes.load(Ordering::Relaxed)
        }
    }

    fn insert(cache: &ViewCache<TestValue>, number: usize, bytes: usize) -> Arc<TestValue> {
        let value = Arc::new(TestValue { number, bytes: AtomicUsize::new(bytes) });
        cache.insert(view_key(number), &value, |_| true);
        value
    }

    fn cached_numbers(cache: &ViewCache<TestValue>) -> Vec<usize> {
        cache.0.load().iter().map(|entry| entry.value.number).collect()
    }

    #[test]
    fn the_oldest_views_fall_out_by_number_and_by_size() {
        let cache = ViewCache::default();
        for number in 0..MAX_CACHED_VIEWS + 2 {
            insert(&cache, number, 1);
        }
        assert_eq!(cached_numbers(&cache), (2..MAX_CACHED_VIEWS + 2).rev().collect::<Vec<_>>());
        let found = |number: usize| cache.get(view_key(number)).map(|value| value.number);
        assert_eq!((found(0), found(7)), (None, Some(7)));

        insert(&cache, 100, MAX_CACHED_BYTES - 3);
        assert_eq!(cached_numbers(&cache), [100, MAX_CACHED_VIEWS + 1, MAX_CACHED_VIEWS, MAX_CACHED_VIEWS - 1]);
    }

    #[test]
    fn a_value_above_the_limit_is_not_cached() {
        let cache = ViewCache::default();
        let growing = insert(&cache, 1, 0);
        insert(&cache, 2, 10);
        insert(&cache, 3, MAX_CACHED_BYTES + 1);
        assert_eq!(cached_numbers(&cache), [2, 1]);
        growing.bytes.store(MAX_CACHED_BYTES - 9, Ordering::Relaxed);
        cache.evict();
        assert_eq!(cached_numbers(&cache), [2], "it was within the limit when it was inserted");
    }

    #[test]
    fn a_view_has_one_value_and_others_are_kept_on_request() {
        let cache = ViewCache::default();
        for number in [1, 2, 1] {
            insert(&cache, number, 1);
        }
        assert_eq!(cached_numbers(&cache), [1, 2]);
        let value = Arc::new(TestValue { number: 3, bytes: AtomicUsize::new(1) });
        cache.insert(view_key(3), &value, |value| value.number == 2);
        assert_eq!(cached_numbers(&cache), [3, 2]);
    }
}
