//! Sources as they stand. Reads contact nobody.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::extract::State;
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
use crate::auth::Permission;
use crate::state::AppState;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("GET", "/api/sources", "list_sources", get(list_sources))
            .summary("Every source, how it stands and what it offers; contacts nobody")
            .requires(Permission::Read)
            .json_response(200, "Sources", "In the order of their ids")
            .conditional(),
        ApiRoute::new("GET", "/api/sources/{id}", "get_source", get(get_source))
            .summary("One source; contacts nobody")
            .requires(Permission::Read)
            .source_param()
            .json_response(200, "Source", "How it stands")
            .error_responses(&[404]),
    ]
}

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
    let set_aside = object_schema(&[("name", json!({ "type": "string" })), ("reason", json!({ "type": "string" }))]);
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let source = object_schema(&[
        ("id", json!({ "type": "string", "description": "Prefixes its tools: `id__tool`" })),
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
        ("failures", json!({ "type": "integer", "minimum": 0, "description": "Discoveries and calls in a row" })),
        ("failing_since", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("breaker", schema_ref("Breaker")),
        ("set_aside", json!({ "type": "array", "items": set_aside })),
    ]);
    let sources = object_schema(&[("sources", json!({ "type": "array", "items": schema_ref("Source") }))]);
    vec![("Source", source), ("Sources", sources), ("Failure", failure), ("Breaker", breaker)]
}

/// The list as it was last written. It goes by the clock and by connections too, so it is kept apart from what goes by
/// the catalogue alone.
#[derive(Debug, Default)]
pub(crate) struct SourceListCache(ArcSwapOption<(SourcesVersion, TaggedResponse)>);

async fn list_sources(State(app): State<AppState>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(kept) = &*app.source_list_cache.0.load()
        && app.registry.is_current(&kept.0)
    {
        return Ok(kept.1.to_response(&headers));
    }
    // What changes after this moment was taken is seen by the next who asks.
    let moment = app.registry.sources_version();
    let written = TaggedResponse::from_body(response::to_json_bytes(&json!({ "sources": app.registry.sources() }))?);
    let response = written.to_response(&headers);
    app.source_list_cache.0.store(Some(Arc::new((moment, written))));
    Ok(response)
}

async fn get_source(State(app): State<AppState>, PathParam(name): PathParam) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let view = app.registry.source(&id).ok_or_else(|| app.registry.unknown_source_error(id.as_str()))?;
    Ok(response::json_response(StatusCode::OK, &view)?)
}
