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

use super::fault::Fault;
use super::reply::{Tagged, names, tag, unchanged};
use crate::access::{Locality, may_read};
use crate::house::House;

/// An address stands on one of so many shelves.
const SHELVES: usize = 8;
/// So many answers on a shelf, and so many bytes of them and their addresses; then it is begun anew.
const MOST: usize = 64;
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Nobody asks twice for what has a longer address.
const LONGEST: usize = 2048;

#[derive(Debug, Default)]
pub(crate) struct Kept([ArcSwap<Shelf>; SHELVES]);

#[derive(Debug, Default, Clone)]
struct Shelf {
    /// What its answers are made from. A shelf that nobody comes to keeps no old catalogue.
    catalog: Weak<Catalog>,
    version: u64,
    answers: HashMap<Arc<str>, Tagged>,
    bytes: usize,
}

/// The catalogue of one moment, for which an answer is made.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    pub(super) view: View,
    address: Arc<str>,
    tag: HeaderValue,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Looked {
    /// It is at hand, or the client has it.
    Answered(Response),
    /// It has to be made.
    Missing(Sight),
}

impl Kept {
    fn find(&self, catalog: &Arc<Catalog>, address: &str, headers: &HeaderMap) -> Option<Response> {
        let shelf = self.shelf(address).load();
        let kept = shelf.answers.get(address).filter(|_| shelf.is_of(catalog))?;
        Some(kept.answer(headers))
    }

    fn look(&self, registry: &Registry, uri: &Uri, headers: &HeaderMap) -> Looked {
        let (address, catalog) = (address(uri), registry.catalog());
        if let Some(response) = self.find(&catalog, address, headers) {
            return Looked::Answered(response);
        }
        let tag = tag(format!("{} {} {} {address}", env!("CARGO_PKG_VERSION"), catalog.version, catalog.hash()));
        if names(headers, &tag) {
            return Looked::Answered(unchanged(&tag));
        }
        let view = View { catalog, caller: Caller { name: "rest".into() } };
        Looked::Missing(Sight { view, address: address.into(), tag })
    }

    /// Keeps what was made, unless the catalogue has changed since; and answers.
    pub(super) fn put(&self, sight: &Sight, made: Made, headers: &HeaderMap) -> Response {
        let link = made.link.and_then(|link| HeaderValue::from_str(&link).ok());
        let answer = Tagged { body: made.body, tag: sight.tag.clone(), link };
        let response = answer.answer(headers);
        if sight.address.len() <= LONGEST && size(sight, &answer) <= MOST_BYTES {
            self.shelf(&sight.address).rcu(|shelf| shelf.with(sight, &answer));
        }
        response
    }

    fn shelf(&self, address: &str) -> &ArcSwap<Shelf> {
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        &self.0[hasher.finish() as usize % SHELVES]
    }
}

/// An answer as it was written.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) body: Bytes,
    pub(super) link: Option<String>,
}

impl Shelf {
    fn with(&self, sight: &Sight, answer: &Tagged) -> Shelf {
        let catalog = &sight.view.catalog;
        if catalog.version < self.version {
            return self.clone();
        }
        let room = self.answers.len() < MOST && self.bytes + size(sight, answer) <= MOST_BYTES;
        let mut next = match room && self.is_of(catalog) {
            true => self.clone(),
            false => Shelf { catalog: Arc::downgrade(catalog), version: catalog.version, ..Shelf::default() },
        };
        let before = next.answers.insert(sight.address.clone(), answer.clone());
        next.bytes += size(sight, answer);
        next.bytes -= before.map_or(0, |before| size(sight, &before));
        next
    }

    fn is_of(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
    }
}

fn address(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |address| address.as_str())
}

fn size(sight: &Sight, answer: &Tagged) -> usize {
    sight.address.len() + answer.body.len()
}

impl House {
    /// What is kept for a request, without a way through the router. Routes that keep answers are for everybody who may
    /// read; who may not is refused by the route.
    pub(crate) fn at_hand(&self, request: &Request, locality: Locality) -> Option<Response> {
        if request.method() != Method::GET || !may_read(self, request.headers(), locality) {
            return None;
        }
        self.kept.find(&self.registry.catalog(), address(request.uri()), request.headers())
    }

    /// Answers from what is kept, or makes it, away from the threads that others wait for.
    pub(super) async fn kept(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        make: impl FnOnce(&View) -> toolcrib::Result<Made> + Send + 'static,
    ) -> Result<Response, Fault> {
        let sight = match self.kept.look(&self.registry, uri, headers) {
            Looked::Answered(response) => return Ok(response),
            Looked::Missing(sight) => sight,
        };
        let view = sight.view.clone();
        let made = tokio::task::spawn_blocking(move || make(&view)).await;
        let failed =
            |error| toolcrib::Error::new(toolcrib::Code::Internal, "an answer could not be made").with_cause(error);
        Ok(self.kept.put(&sight, made.map_err(failed)??, headers))
    }
}
