//! Reads sources. Makes no network requests and starts no process.
//!
//! The fields of a source are those of `SourceView`. Some keep the word of an earlier version, because programs read
//! them: `connection: "resting"` is an open circuit breaker, `set_aside` are the skipped tools.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::registry::SourcesVersion;

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum};
use super::query::{PathParam, find_source_id};
use super::response::{self, TaggedResponse};
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthenticatedClient, Permission};
use crate::state::AppState;
use crate::view_cache::ViewCache;

/// The list supports conditional requests. A single source does not.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("GET", "/api/sources", "list_sources", get(list_sources))
            .summary("Every source with its status; makes no network requests and starts no process")
            .requires(Permission::Read)
            .json_response(200, "Sources", "Sources in the order of their ids")
            .conditional(),
        ApiRoute::new("GET", "/api/sources/{id}", "get_source", get(get_source))
            .summary("One source with its status; makes no network requests and starts no process")
            .requires(Permission::Read)
            .source_param()
            .json_response(200, "Source", "The source")
            .error_responses(&[404]),
    ]
}

/// `Failure` is the short form of an error, which several schemas refer to.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let failure = object_schema(&[
        ("code", json!({ "type": "string" })),
        ("message", json!({ "type": "string" })),
        ("retryable", json!({ "type": "boolean" })),
    ]);
    let breaker = object_schema(&[
        ("state", string_enum(&["closed", "open", "half_open"])),
        ("retry_at", nullable(json!({ "type": "string", "format": "date-time" }))),
    ]);
    let skipped_tool = object_schema(&[("name", json!({ "type": "string" })), ("reason", json!({ "type": "string" }))]);
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let source = object_schema(&[
        ("id", json!({ "type": "string", "description": "Prefix of its tools: `id__tool`" })),
        ("title", nullable(text())),
        ("kind", text()),
        ("origin", string_enum(&["config", "runtime"])),
        ("transport", nullable(text())),
        ("command", nullable(text())),
        ("args", nullable(string_array())),
        ("url", nullable(text())),
        ("enabled", json!({ "type": "boolean" })),
        ("status", string_enum(&["never", "discovering", "success", "failed"])),
        ("freshness", string_enum(&["fresh", "stale", "missing"])),
        ("health", string_enum(&["ok", "degraded", "down", "unknown"])),
        ("tool_count", count()),
        ("inventory_hash", nullable(text())),
        ("config_hash", nullable(text())),
        ("last_checked", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("last_error", nullable(schema_ref("Failure"))),
        ("ttl_ms", count()),
        ("discovery_timeout_ms", count()),
        ("connection", string_enum(&["none", "connected", "resting"])),
        (
            "failures",
            json!({ "type": "integer", "minimum": 0, "description": "Consecutive failures of discoveries and calls" }),
        ),
        ("failing_since", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("breaker", schema_ref("Breaker")),
        ("set_aside", json!({ "type": "array", "items": skipped_tool })),
    ]);
    let sources = object_schema(&[("sources", json!({ "type": "array", "items": schema_ref("Source") }))]);
    vec![("Source", source), ("Sources", sources), ("Failure", failure), ("Breaker", breaker)]
}

/// Cache of the rendered source list. Separate from [`ResponseCache`](super::ResponseCache), because the list also depends
/// on the clock (freshness) and on connection states.
#[derive(Debug, Default)]
pub(crate) struct SourceListCache(ViewCache<(SourcesVersion, TaggedResponse)>);

/// `GET /api/sources`.
async fn list_sources(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let view = app.registry.view(&client.principal).key();
    if let Some(cached) = app.source_list_cache.0.get(view)
        && app.registry.sources().is_current(&cached.0)
    {
        return Ok(cached.1.to_response(&headers));
    }
    // The version is taken before the list is read: a change in between makes the entry outdated, never wrong.
    let version = app.registry.sources().version();
    let tagged =
        TaggedResponse::from_body(response::to_json_bytes(&json!({ "sources": app.registry.sources().list() }))?);
    let response = tagged.to_response(&headers);
    // An entry holds its snapshot, so outdated ones are dropped.
    let is_current = |other: &(SourcesVersion, TaggedResponse)| app.registry.sources().is_current(&other.0);
    app.source_list_cache.0.insert(view, tagged.body.len(), &Arc::new((version, tagged)), is_current);
    Ok(response)
}

/// `GET /api/sources/{id}`.
async fn get_source(State(app): State<AppState>, PathParam(name): PathParam) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let view = app.registry.sources().get(&id).ok_or_else(|| app.registry.sources().unknown_error(id.as_str()))?;
    Ok(response::json_response(StatusCode::OK, &view)?)
}
