//! Cache of rendered responses that depend on the catalogue and the URI alone. The cache key is path and query of the
//! URI. Reads are lock-free; an insert copies one shard, which is small, and swaps it in.
//!
//! A response is valid as long as the catalogue is the same object. Nothing is invalidated: when the catalogue changes,
//! the old entries stop matching, and the next insert into a shard drops them. At most 8 × 64 responses and 8 × 4 MiB
//! are kept. Roles are not part of the cache key, because every cached route shows the same to all who may read.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use toolcrib::Registry;
use toolcrib::catalog::{Catalog, View};

use super::error::ApiError;
use super::response::{TaggedResponse, lists_etag, make_etag, not_modified};
use crate::auth::{Locality, can_read};
use crate::state::AppState;

/// Number of cache shards; a URI is assigned by hash. More shards copy less on an insert and hold less each.
const SHARD_COUNT: usize = 8;
/// Maximum number of responses in a shard; one more replaces the shard by an empty one. Emptying is cheaper than
/// finding the least recently used entry, for which every read would have to write.
const MAX_SHARD_RESPONSES: usize = 64;
/// Maximum size of the bodies and URIs in a shard; beyond it the shard is replaced by an empty one.
const MAX_SHARD_BYTES: usize = 4 * 1024 * 1024;
/// Responses for longer URIs are not cached; such requests are hardly ever repeated.
const MAX_CACHED_URI_LEN: usize = 2048;

/// The cache of one server.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache([ArcSwap<CacheShard>; SHARD_COUNT]);

/// Part of the cache; immutable, replaced on insert.
#[derive(Debug, Default, Clone)]
struct CacheShard {
    /// The catalogue these responses were rendered from. Weak, so an idle shard does not keep an old catalogue alive.
    catalog: Weak<Catalog>,
    /// Version of that catalogue: a response of an older one must not replace newer responses. Renderings of different
    /// requests may finish in any order.
    version: u64,
    /// Responses by path and query.
    responses: HashMap<Arc<str>, TaggedResponse>,
    /// Sum of the entry sizes.
    bytes: usize,
}

/// Identity of a response that is about to be rendered: its cache key, and the catalogue it is rendered from.
#[derive(Debug, Clone)]
pub(super) struct PendingResponse {
    pub(super) view: View,
    cache_key: Arc<str>,
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
    /// Returns the cached response for the current catalogue.
    fn find(&self, catalog: &Arc<Catalog>, cache_key: &str, headers: &HeaderMap) -> Option<Response> {
        let shard = self.shard(cache_key).load();
        let cached = shard.responses.get(cache_key).filter(|_| shard.is_for(catalog))?;
        Some(cached.to_response(headers))
    }

    /// Looks up a response here and in the client's own cache (`If-None-Match`).
    fn lookup(&self, registry: &Registry, uri: &Uri, headers: &HeaderMap) -> CacheLookup {
        let key = cache_key(uri);
        let catalog = registry.catalog();
        if let Some(response) = self.find(&catalog, key, headers) {
            return CacheLookup::Hit(response);
        }
        // Derived from the inputs of the response and not from its body, so that 304 needs no rendering. The version of
        // Toolcrib is among them, because another version may render differently.
        let etag = make_etag(format!("{} {} {} {key}", env!("CARGO_PKG_VERSION"), catalog.version, catalog.hash()));
        if lists_etag(headers, &etag) {
            return CacheLookup::Hit(not_modified(&etag));
        }
        let view = View { catalog };
        CacheLookup::Miss(PendingResponse { view, cache_key: key.into(), etag })
    }

    /// Stores a rendered body, unless a newer catalogue is cached already, and returns the response. The response is
    /// returned even if it is too large to be cached.
    pub(super) fn insert(&self, pending: &PendingResponse, rendered: RenderedBody, headers: &HeaderMap) -> Response {
        // A link that is not a valid header value is left out; the page itself is complete without it.
        let link = rendered.link.and_then(|link| HeaderValue::from_str(&link).ok());
        let tagged = TaggedResponse { body: rendered.body, etag: pending.etag.clone(), link };
        let response = tagged.to_response(headers);
        if pending.cache_key.len() <= MAX_CACHED_URI_LEN && entry_size(pending, &tagged) <= MAX_SHARD_BYTES {
            self.shard(&pending.cache_key).rcu(|shard| shard.with_response(pending, &tagged));
        }
        response
    }

    /// Returns the shard of a cache key.
    fn shard(&self, cache_key: &str) -> &ArcSwap<CacheShard> {
        let mut hasher = DefaultHasher::new();
        cache_key.hash(&mut hasher);
        &self.0[hasher.finish() as usize % SHARD_COUNT]
    }
}

/// A rendered response body, with the `Link` header to the next page if any.
#[derive(Debug, Default)]
pub(super) struct RenderedBody {
    pub(super) body: Bytes,
    pub(super) link: Option<String>,
}

impl CacheShard {
    /// Returns the shard with one more response. Starts empty when the catalogue changed or the shard is full.
    fn with_response(&self, pending: &PendingResponse, tagged: &TaggedResponse) -> CacheShard {
        let catalog = &pending.view.catalog;
        if catalog.version < self.version {
            return self.clone();
        }
        // The size is checked before the insert. Replacing an entry of the same URI counts twice for a moment, which
        // may empty the shard a little early.
        let has_room =
            self.responses.len() < MAX_SHARD_RESPONSES && self.bytes + entry_size(pending, tagged) <= MAX_SHARD_BYTES;
        let mut next = if has_room && self.is_for(catalog) {
            self.clone()
        } else {
            CacheShard { catalog: Arc::downgrade(catalog), version: catalog.version, ..CacheShard::default() }
        };
        let replaced = next.responses.insert(pending.cache_key.clone(), tagged.clone());
        next.bytes += entry_size(pending, tagged);
        next.bytes -= replaced.map_or(0, |replaced| entry_size(pending, &replaced));
        next
    }

    /// True when the shard belongs to this very catalogue. The address cannot be reused while the `Weak` exists.
    fn is_for(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
    }
}

/// Returns the cache key of a request: path and query of its URI.
fn cache_key(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path_and_query| path_and_query.as_str())
}

/// Returns the size of an entry as it counts for [`MAX_SHARD_BYTES`]; the overhead of the map is not included.
fn entry_size(pending: &PendingResponse, tagged: &TaggedResponse) -> usize {
    pending.cache_key.len() + tagged.body.len()
}

impl AppState {
    /// Returns the cached response to a request, for the middleware before the router. All cached routes require
    /// [`Permission::Read`](crate::auth::Permission::Read); a client without it is rejected by the route.
    pub(crate) fn cached_response(&self, request: &Request, locality: Locality) -> Option<Response> {
        // `HEAD` goes through the router, which strips the body.
        if request.method() != Method::GET || !can_read(self, request.headers(), locality) {
            return None;
        }
        self.response_cache.find(&self.registry.catalog(), cache_key(request.uri()), request.headers())
    }

    /// Responds from the cache, or renders the body on a blocking thread and caches it.
    pub(super) async fn respond_cached(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        render: impl FnOnce(&View) -> toolcrib::Result<RenderedBody> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let key = match self.response_cache.lookup(&self.registry, uri, headers) {
            CacheLookup::Hit(response) => return Ok(response),
            CacheLookup::Miss(key) => key,
        };
        // Rendered from the catalogue of the key, even if a newer one appears meanwhile: body and tag must belong
        // together.
        let view = key.view.clone();
        // A page of a thousand tools takes too long for an async worker.
        let rendered = tokio::task::spawn_blocking(move || render(&view)).await;
        let task_failed =
            |error| toolcrib::Error::new(toolcrib::Code::Internal, "rendering the response failed").with_cause(error);
        Ok(self.response_cache.insert(&key, rendered.map_err(task_failed)??, headers))
    }
}
