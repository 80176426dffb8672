//! Cache of rendered responses that depend on the view and the URI alone. The cache key is the key of the view with path
//! and query of the URI. Reads are lock-free; an insert copies one shard, which is small, and swaps it in.
//!
//! A response is valid as long as the key of its view is: whatever can change a response is part of that key. Nothing is
//! invalidated: when the catalogue changes, the old entries stop matching, and they are dropped when the shard is full.
//! At most 8 × 64 responses and 8 × 4 MiB are kept. Neither principals nor roles are part of the cache key: principals
//! that see the same tools get the same responses.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use toolcrib::catalog::{View, ViewKey};
use toolcrib::{Principal, SourceId};

use super::error::ApiError;
use super::response::{TaggedResponse, lists_etag, make_etag, not_modified, render_blocking};
use crate::auth::{Locality, authenticate_reader};
use crate::position::ContentPosition;
use crate::state::AppState;

/// Number of cache shards; a response is assigned by the hash of its key. More shards copy less on an insert and hold
/// less each.
const SHARD_COUNT: usize = 8;
/// Maximum number of responses in a shard. Emptying a full shard is cheaper than finding the least recently used entry,
/// for which every read would have to write.
const MAX_SHARD_RESPONSES: usize = 64;
/// Maximum size of the bodies and URIs in a shard.
const MAX_SHARD_BYTES: usize = 4 * 1024 * 1024;
/// Responses for longer URIs are not cached; such requests are hardly ever repeated.
const MAX_CACHED_URI_LEN: usize = 2048;

/// The cache of one server.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache([ArcSwap<CacheShard>; SHARD_COUNT]);

/// Part of the cache; immutable, replaced on insert.
#[derive(Debug, Default, Clone)]
struct CacheShard {
    /// Responses by the hash of their keys. Of two responses with the same hash the last one stays.
    responses: HashMap<u64, CachedResponse>,
    /// Sum of the entry sizes.
    bytes: usize,
}

/// One response with its whole key.
#[derive(Debug, Clone)]
struct CachedResponse {
    view: ViewKey,
    uri: Arc<str>,
    tagged: TaggedResponse,
}

/// Identity of a response that is about to be rendered: the view it is rendered from, and its URI.
#[derive(Debug, Clone)]
pub(super) struct PendingResponse {
    pub(super) view: View,
    uri: Arc<str>,
    /// Known before the body is rendered.
    etag: HeaderValue,
}

/// Outcome of a cache lookup.
#[derive(Debug)]
pub(super) enum CacheLookup {
    /// The response is cached here, or the client has it.
    Hit(Response),
    /// The response has to be rendered.
    Miss(PendingResponse),
}

impl ResponseCache {
    /// Returns the cached response for a view.
    fn find(&self, view: ViewKey, uri: &str, headers: &HeaderMap) -> Option<Response> {
        let hash = hash_key(view, uri);
        let shard = self.shard(hash).load();
        let cached = shard.responses.get(&hash).filter(|cached| cached.view == view && *cached.uri == *uri)?;
        Some(cached.tagged.to_response(headers))
    }

    /// Looks up a response here and in the client's own cache (`If-None-Match`).
    fn lookup(&self, view: View, uri: &Uri, headers: &HeaderMap) -> CacheLookup {
        let uri = request_path(uri);
        if let Some(response) = self.find(view.key(), uri, headers) {
            return CacheLookup::Hit(response);
        }
        // Derived from the inputs of the response and not from its body, so that 304 needs no rendering. The version of
        // Toolcrib is among them, because another version may render differently.
        let etag = make_etag(format!("{} {} {uri}", env!("CARGO_PKG_VERSION"), view.key()));
        if lists_etag(headers, &etag) {
            return CacheLookup::Hit(not_modified(&etag));
        }
        CacheLookup::Miss(PendingResponse { view, uri: uri.into(), etag })
    }

    /// Stores a rendered body and returns the response. The response is returned even if it cannot be cached.
    pub(super) fn insert(&self, pending: &PendingResponse, rendered: RenderedBody, headers: &HeaderMap) -> Response {
        // A link that is not a valid header value is left out; the page itself is complete without it.
        let link = rendered.link.and_then(|link| HeaderValue::from_str(&link).ok());
        let tagged = match rendered.scope {
            ContentScope::View => TaggedResponse { body: rendered.body, etag: pending.etag.clone(), link },
            ContentScope::Registry => TaggedResponse { link, ..TaggedResponse::from_body(rendered.body) },
        };
        let response = tagged.to_response(headers);
        let cached = CachedResponse { view: pending.view.key(), uri: pending.uri.clone(), tagged };
        let fits = cached.uri.len() <= MAX_CACHED_URI_LEN && cached.size() <= MAX_SHARD_BYTES;
        if rendered.scope == ContentScope::View && fits {
            let hash = hash_key(cached.view, &cached.uri);
            self.shard(hash).rcu(|shard| shard.with_response(hash, &cached));
        }
        response
    }

    /// Returns the shard of a hash.
    fn shard(&self, hash: u64) -> &ArcSwap<CacheShard> {
        &self.0[hash as usize % SHARD_COUNT]
    }
}

/// A rendered response body, with the `Link` header to the next page if any.
#[derive(Debug)]
pub(super) struct RenderedBody {
    pub(super) body: Bytes,
    pub(super) link: Option<String>,
    pub(super) scope: ContentScope,
}

/// State that a body depends on besides its URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentScope {
    /// The view alone. The response is cached, and its tag is known before it is rendered.
    View,
    /// Also other state of the registry, such as removed tools. The response is tagged by its content and not cached.
    Registry,
}

impl ContentScope {
    /// Returns the scope of a list of tools, of one source or of all. Whether a source without visible tools exists is
    /// not known to the view, so the empty list of such a source is not cached: it turns into an error when the source
    /// is removed.
    pub(super) fn for_list(view: &View, source: Option<&SourceId>) -> ContentScope {
        match source {
            Some(source) if view.listed_count(source) == 0 => ContentScope::Registry,
            Some(_) | None => ContentScope::View,
        }
    }
}

impl CacheShard {
    /// Returns the shard with one more response. A full shard keeps those of the same view, or else none.
    fn with_response(&self, hash: u64, cached: &CachedResponse) -> CacheShard {
        let mut next = self.clone();
        next.remove_unless(|other_hash, _| other_hash != hash);
        if !next.has_room(cached) {
            next.remove_unless(|_, other| other.view == cached.view);
        }
        if !next.has_room(cached) {
            next = CacheShard::default();
        }
        next.bytes += cached.size();
        next.responses.insert(hash, cached.clone());
        next
    }

    fn has_room(&self, cached: &CachedResponse) -> bool {
        self.responses.len() < MAX_SHARD_RESPONSES && self.bytes + cached.size() <= MAX_SHARD_BYTES
    }

    /// Removes the responses that `keep` does not accept.
    fn remove_unless(&mut self, keep: impl Fn(u64, &CachedResponse) -> bool) {
        self.responses.retain(|hash, cached| keep(*hash, cached));
        self.bytes = self.responses.values().map(CachedResponse::size).sum();
    }
}

impl CachedResponse {
    /// Size of the entry as it counts for [`MAX_SHARD_BYTES`]; the overhead of the map is not included.
    fn size(&self) -> usize {
        self.uri.len() + self.tagged.body.len()
    }
}

/// Hashes the key of a response. The whole key is compared as well, so a collision costs one cached response.
fn hash_key(view: ViewKey, uri: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (view, uri).hash(&mut hasher);
    hasher.finish()
}

/// Returns path and query of a URI.
fn request_path(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path_and_query| path_and_query.as_str())
}

impl AppState {
    /// Returns the cached response to a request, for the middleware before the router. All cached routes require
    /// [`Permission::Read`](crate::auth::Permission::Read); a client without it is rejected by the route.
    pub(crate) fn cached_response(&self, request: &Request, locality: Locality) -> Option<Response> {
        // `HEAD` goes through the router, which strips the body.
        if request.method() != Method::GET {
            return None;
        }
        // Which responses a client may get depends on its view, so it is authenticated first.
        let client = authenticate_reader(self, request.headers(), locality)?;
        let (view, position) = self.registry.view_with_position(&client.principal);
        let mut response = self.response_cache.find(view.key(), request_path(request.uri()), request.headers())?;
        response.extensions_mut().insert(ContentPosition(position));
        // A request that is not answered here is recorded when its route admits it.
        self.registry.tokens().record_use(&client.principal);
        Some(response)
    }

    /// Responds from the cache, or renders the body on a blocking thread and caches it.
    pub(super) async fn respond_cached(
        &self,
        principal: &Principal,
        uri: &Uri,
        headers: &HeaderMap,
        render: impl FnOnce(&View) -> toolcrib::Result<RenderedBody> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let (view, position) = self.registry.view_with_position(principal);
        let mut response = match self.response_cache.lookup(view, uri, headers) {
            CacheLookup::Hit(response) => response,
            CacheLookup::Miss(pending) => {
                // Rendered from the view that was looked up, even if a newer one appears meanwhile: body, tag and
                // position must belong together.
                let view = pending.view.clone();
                let rendered = render_blocking(move || render(&view)).await?;
                self.response_cache.insert(&pending, rendered, headers)
            }
        };
        response.extensions_mut().insert(ContentPosition(position));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use axum::http::header;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::view_cache::tests::{MASKS, full_view, masked_view, visible_names};

    const URIS: [&str; 3] = ["/api/tools", "/api/tools?limit=2", "/api/search?q=push"];

    fn read_body(response: Response) -> String {
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).now_or_never().unwrap().unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// Requests a URI through a view, with the names of its tools as the body. Returns body and tag, and adds to
    /// `renders` if the body was not cached.
    fn request(cache: &ResponseCache, view: &View, uri: &'static str, renders: &mut usize) -> (String, HeaderValue) {
        let headers = HeaderMap::new();
        let response = match cache.lookup(view.clone(), &Uri::from_static(uri), &headers) {
            CacheLookup::Hit(response) => response,
            CacheLookup::Miss(pending) => {
                *renders += 1;
                let body = format!("{uri} {:?}", visible_names(view)).into();
                cache.insert(&pending, RenderedBody { body, link: None, scope: ContentScope::View }, &headers)
            }
        };
        let etag = response.headers()[header::ETAG].clone();
        (read_body(response), etag)
    }

    proptest! {
        #[test]
        fn a_view_gets_its_own_responses_and_equal_views_share_them(
            requests in prop::collection::vec((0..MASKS, 0..URIS.len(), any::<bool>()), 1..60),
        ) {
            let (full, newer) = (full_view(1), full_view(2));
            let cache = ResponseCache::default();
            let mut renders = 0;
            let mut etags: BTreeMap<String, HeaderValue> = BTreeMap::new();
            for (mask, uri, is_newer) in requests {
                // Both catalogues have the same content, in different objects and versions.
                let view = masked_view(if is_newer { &newer } else { &full }, mask);
                let (body, etag) = request(&cache, &view, URIS[uri], &mut renders);
                prop_assert_eq!(&body, &format!("{} {:?}", URIS[uri], visible_names(&view)));
                prop_assert_eq!(etags.entry(body).or_insert_with(|| etag.clone()), &etag);
            }
            prop_assert_eq!(renders, etags.len(), "each response is rendered once, for all views that show the same");
            let distinct: BTreeSet<&[u8]> = etags.values().map(HeaderValue::as_bytes).collect();
            prop_assert_eq!(distinct.len(), etags.len());
        }

        #[test]
        fn the_cache_is_bounded_in_responses_and_bytes(
            requests in prop::collection::vec((0..MASKS, 0..500_u32, 0..2_000_000_usize), 1..300),
        ) {
            let full = full_view(1);
            let cache = ResponseCache::default();
            let headers = HeaderMap::new();
            for (mask, number, size) in requests {
                let uri = Uri::try_from(format!("/api/tools?limit={number}")).unwrap();
                let CacheLookup::Miss(pending) = cache.lookup(masked_view(&full, mask), &uri, &headers) else { continue };
                // A body without an allocation of its own: only its length counts.
                let body = Bytes::from_static(&[b'x'; 2_000_000]).slice(..size);
                cache.insert(&pending, RenderedBody { body, link: None, scope: ContentScope::View }, &headers);
                let is_cached = cache.find(pending.view.key(), &pending.uri, &headers).is_some();
                prop_assert!(is_cached, "the newest response is cached");
            }
            for shard in &cache.0 {
                let shard = shard.load();
                prop_assert!(shard.responses.len() <= MAX_SHARD_RESPONSES && shard.bytes <= MAX_SHARD_BYTES);
                prop_assert_eq!(shard.bytes, shard.responses.values().map(CachedResponse::size).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_client_gets_304_for_a_tag_of_its_own_view_only() {
        let full = full_view(1);
        let cache = ResponseCache::default();
        let uri = Uri::from_static(URIS[0]);
        let (_, etag) = request(&cache, &full, URIS[0], &mut 0);
        let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]);
        let is_hit = |view: View| matches!(cache.lookup(view, &uri, &headers), CacheLookup::Hit(_));
        assert!(is_hit(full.clone()) && !is_hit(masked_view(&full, 1)));
    }

    #[test]
    fn a_response_that_depends_on_more_than_the_view_is_tagged_by_its_content_and_not_cached() {
        let cache = ResponseCache::default();
        let headers = HeaderMap::new();
        let respond = |body: &'static str| {
            let CacheLookup::Miss(pending) = cache.lookup(full_view(1), &Uri::from_static(URIS[0]), &headers) else {
                panic!("the response was cached");
            };
            let rendered = RenderedBody { body: body.into(), link: None, scope: ContentScope::Registry };
            cache.insert(&pending, rendered, &headers).headers()[header::ETAG].clone()
        };
        assert_eq!(respond("a"), respond("a"));
        assert_ne!(respond("a"), respond("b"));
    }
}
