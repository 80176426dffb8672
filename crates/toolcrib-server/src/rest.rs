//! The REST API. One table of routes ([`ApiRoute`]) produces the axum router, the required permissions and
//! `/api/openapi.json`. Reads are answered from the catalogue in memory: they access neither the store nor a source.
//!
//! The exceptions are the history, tools of a past time, and diffs, whose older side may be on disk only.
//!
//! A module per group of routes has the same three parts:
//! - `routes()`: path, permission, parameters and responses of each operation;
//! - `schemas()`: the named schemas of its bodies for the document;
//! - the handlers, which parse, call the registry and serialise its answer.
//!
//! A test compares the document with a stored copy (`tests/rest/openapi.json`), so a change of the API is always
//! visible.

mod route;

mod sources;
mod tools;

mod access_tokens;
mod call;
mod declare;
mod diff;
mod enable;
mod events;
mod explain;
mod health;
mod history;
mod refresh;
mod rules;
mod search;
mod stats;
mod whoami;

mod body;
mod cache;
mod error;
mod precondition;
mod query;
mod response;

mod openapi;
mod openapi_descriptions;
mod openapi_schema;

use axum::Router;
use axum::http::header;
use bytes::Bytes;
use serde_json::Value;

pub(crate) use body::read_body;
pub(crate) use cache::ResponseCache;
pub(crate) use declare::{declare_source, remove_source};
pub(crate) use error::{ApiError, ConsoleMessage, RETRY_AFTER, error_response, stopping_error};
pub(crate) use events::EventFeed;
pub(crate) use precondition::IfMatch;
pub(crate) use query::{find_source, find_source_id};
pub(crate) use refresh::known_sources;
pub(crate) use sources::SourceListCache;

use crate::state::AppState;
use route::ApiRoute;

/// Returns all routes in the order of the OpenAPI document.
fn routes() -> Vec<ApiRoute> {
    let mut routes = Vec::new();
    routes.extend(sources::routes());
    routes.extend(declare::routes());
    routes.extend(refresh::routes());
    routes.extend(enable::routes());
    routes.extend(tools::routes());
    routes.extend(call::routes());
    routes.extend(search::routes());
    routes.extend(history::routes());
    routes.extend(diff::routes());
    routes.extend(events::routes());
    routes.extend(stats::routes());
    routes.extend(health::routes());
    routes.extend(access_tokens::routes());
    routes.extend(rules::routes());
    routes.extend(explain::routes());
    routes.extend(whoami::routes());
    routes
}

/// Returns the schemas of request and response bodies, by name. A schema may refer to one of another module by its
/// name.
fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = vec![("Error", error::error_schema()), ("Code", error::code_schema())];
    schemas.extend(sources::schemas());
    schemas.extend(declare::schemas());
    schemas.extend(refresh::schemas());
    schemas.extend(enable::schemas());
    schemas.extend(tools::schemas());
    schemas.extend(call::schemas());
    schemas.extend(search::schemas());
    schemas.extend(history::schemas());
    schemas.extend(events::schemas());
    schemas.extend(diff::schemas());
    schemas.extend(stats::schemas());
    schemas.extend(access_tokens::schemas());
    schemas.extend(rules::schemas());
    schemas.extend(explain::schemas());
    schemas.extend(health::schemas());
    schemas.extend(whoami::schemas());
    schemas
}

/// Builds the router of the REST API. The document is rendered once; its own route is not part of it.
pub(crate) fn router(app: &AppState) -> Router<AppState> {
    let document = Bytes::from(openapi::build_document().to_string());
    let get_document = move || async move { ([(header::CONTENT_TYPE, "application/json")], document) };
    let document_route = ApiRoute::read("/api/openapi.json", "openapi", get_document);
    routes().into_iter().chain([document_route]).fold(Router::new(), |router, route| route.register(router, app))
}
