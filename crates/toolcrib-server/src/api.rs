//! REST: one table of routes, from which the router, the access rules and `/api/openapi.json` are all made.
//! Reads answer from the catalogue at hand; they touch neither the store nor a source.

mod call;
mod declare;
mod diff;
mod events;
mod find;
mod health;
mod history;
mod numbers;
mod refresh;
mod sources;
mod switches;
mod tokens;
mod tools;
mod whoami;

mod actor;
mod asked;
mod body;
mod document;
mod fault;
mod kept;
mod reply;
mod route;
mod shape;

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};

pub(crate) use asked::known_source;
pub(crate) use body::whole;
pub(crate) use declare::{declare_source, remove_source};
pub(crate) use events::Feed;
pub(crate) use fault::{Fault, LATER, refusal, stopping};
pub(crate) use kept::Kept;
pub(crate) use reply::json as json_response;
pub(crate) use sources::SourceList;

use crate::access::Needs;
use crate::house::House;
use document::Document;
use route::Route;

/// Every route of the document, in its order.
fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(sources::routes());
    routes.extend(declare::routes());
    routes.extend(refresh::routes());
    routes.extend(switches::routes());
    routes.extend(tools::routes());
    routes.extend(call::routes());
    routes.extend(find::routes());
    routes.extend(history::routes());
    routes.extend(diff::routes());
    routes.extend(events::routes());
    routes.extend(numbers::routes());
    routes.extend(health::routes());
    routes.extend(tokens::routes());
    routes.extend(whoami::routes());
    routes
}

/// The shapes that routes take and answer, by their names.
fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = vec![("Error", fault::schema())];
    schemas.extend(sources::schemas());
    schemas.extend(declare::schemas());
    schemas.extend(refresh::schemas());
    schemas.extend(switches::schemas());
    schemas.extend(tools::schemas());
    schemas.extend(call::schemas());
    schemas.extend(find::schemas());
    schemas.extend(history::schemas());
    schemas.extend(diff::schemas());
    schemas.extend(numbers::schemas());
    schemas.extend(tokens::schemas());
    schemas.extend(health::schemas());
    schemas.extend(whoami::schemas());
    schemas
}

pub(crate) fn router(house: &House) -> Router<House> {
    let document = Document::written();
    let own = Route::new("GET", "/api/openapi.json", "openapi", get(move || async move { document }))
        .about("This document")
        .needs(Needs::Reading)
        .answer(200, json!({ "description": "OpenAPI 3.1" }));
    routes().into_iter().chain([own]).fold(Router::new(), |router, route| route.add_to(router, house))
}
