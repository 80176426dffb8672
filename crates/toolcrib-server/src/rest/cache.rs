//! Answers that depend on the catalogue and the address alone, made once and kept for as long as the catalogue is.
//! Whoever reads takes no lock; whoever adds one copies one of the shelves, which are small.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use toolcrib::Registry;
use toolcrib::core::catalog::{Caller, Catalog, View};

use super::error::ApiError;
use super::response::{TaggedResponse, lists_etag, make_etag, not_modified};
use crate::auth::{Locality, can_read};
use crate::state::AppState;

/// An address stands on one of so many shelves.
const SHARD_COUNT: usize = 8;
/// So many answers on a shelf, and so many bytes of them and their addresses; then it is begun anew.
const MAX_SHARD_RESPONSES: usize = 64;
const MAX_SHARD_BYTES: usize = 4 * 1024 * 1024;
/// Nobody asks twice for what has a longer address.
const MAX_CACHED_URI_LEN: usize = 2048;

#[derive(Debug, Default)]
pub(crate) struct ResponseCache([ArcSwap<CacheShard>; SHARD_COUNT]);

#[derive(Debug, Default, Clone)]
struct CacheShard {
    /// What its answers are made from. A shelf that nobody comes to keeps no old catalogue.
    catalog: Weak<Catalog>,
    version: u64,
    responses: HashMap<Arc<str>, TaggedResponse>,
    bytes: usize,
}

/// The catalogue of one moment, for which an answer is made.
#[derive(Debug, Clone)]
pub(super) struct CacheKey {
    pub(super) view: View,
    uri: Arc<str>,
    etag: HeaderValue,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum CacheLookup {
    /// It is at hand, or the client has it.
    Hit(Response),
    /// It has to be made.
    Miss(CacheKey),
}

impl ResponseCache {
    fn find(&self, catalog: &Arc<Catalog>, address: &str, headers: &HeaderMap) -> Option<Response> {
        let shelf = self.shard(address).load();
        let kept = shelf.responses.get(address).filter(|_| shelf.is_for(catalog))?;
        Some(kept.to_response(headers))
    }

    fn lookup(&self, registry: &Registry, uri: &Uri, headers: &HeaderMap) -> CacheLookup {
        let (address, catalog) = (request_uri(uri), registry.catalog());
        if let Some(response) = self.find(&catalog, address, headers) {
            return CacheLookup::Hit(response);
        }
        let tag = make_etag(format!("{} {} {} {address}", env!("CARGO_PKG_VERSION"), catalog.version, catalog.hash()));
        if lists_etag(headers, &tag) {
            return CacheLookup::Hit(not_modified(&tag));
        }
        let view = View { catalog, caller: Caller { name: "rest".into() } };
        CacheLookup::Miss(CacheKey { view, uri: address.into(), etag: tag })
    }

    /// Keeps what was made, unless the catalogue has changed since; and answers.
    pub(super) fn insert(&self, sight: &CacheKey, made: RenderedBody, headers: &HeaderMap) -> Response {
        let link = made.link.and_then(|link| HeaderValue::from_str(&link).ok());
        let answer = TaggedResponse { body: made.body, etag: sight.etag.clone(), link };
        let response = answer.to_response(headers);
        if sight.uri.len() <= MAX_CACHED_URI_LEN && entry_size(sight, &answer) <= MAX_SHARD_BYTES {
            self.shard(&sight.uri).rcu(|shelf| shelf.with_response(sight, &answer));
        }
        response
    }

    fn shard(&self, address: &str) -> &ArcSwap<CacheShard> {
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        &self.0[hasher.finish() as usize % SHARD_COUNT]
    }
}

/// An answer as it was written.
#[derive(Debug, Default)]
pub(super) struct RenderedBody {
    pub(super) body: Bytes,
    pub(super) link: Option<String>,
}

impl CacheShard {
    fn with_response(&self, sight: &CacheKey, answer: &TaggedResponse) -> CacheShard {
        let catalog = &sight.view.catalog;
        if catalog.version < self.version {
            return self.clone();
        }
        let room =
            self.responses.len() < MAX_SHARD_RESPONSES && self.bytes + entry_size(sight, answer) <= MAX_SHARD_BYTES;
        let mut next = match room && self.is_for(catalog) {
            true => self.clone(),
            false => CacheShard { catalog: Arc::downgrade(catalog), version: catalog.version, ..CacheShard::default() },
        };
        let before = next.responses.insert(sight.uri.clone(), answer.clone());
        next.bytes += entry_size(sight, answer);
        next.bytes -= before.map_or(0, |before| entry_size(sight, &before));
        next
    }

    fn is_for(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
    }
}

fn request_uri(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |address| address.as_str())
}

fn entry_size(sight: &CacheKey, answer: &TaggedResponse) -> usize {
    sight.uri.len() + answer.body.len()
}

impl AppState {
    /// What is kept for a request, without a way through the router. Routes that keep answers are for everybody who may
    /// read; who may not is refused by the route.
    pub(crate) fn cached_response(&self, request: &Request, locality: Locality) -> Option<Response> {
        if request.method() != Method::GET || !can_read(self, request.headers(), locality) {
            return None;
        }
        self.response_cache.find(&self.registry.catalog(), request_uri(request.uri()), request.headers())
    }

    /// Answers from what is kept, or makes it, away from the threads that others wait for.
    pub(super) async fn respond_cached(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        make: impl FnOnce(&View) -> toolcrib::Result<RenderedBody> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let sight = match self.response_cache.lookup(&self.registry, uri, headers) {
            CacheLookup::Hit(response) => return Ok(response),
            CacheLookup::Miss(sight) => sight,
        };
        let view = sight.view.clone();
        let made = tokio::task::spawn_blocking(move || make(&view)).await;
        let failed =
            |error| toolcrib::Error::new(toolcrib::Code::Internal, "an answer could not be made").with_cause(error);
        Ok(self.response_cache.insert(&sight, made.map_err(failed)??, headers))
    }
}
