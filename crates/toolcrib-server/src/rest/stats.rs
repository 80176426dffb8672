//! `GET /api/stats` and `GET /api/config`: usage counters and the effective configuration.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array};
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

/// The two operations of this module. Neither is cached: counters change with every call.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("GET", "/api/stats", "get_stats", get(get_stats))
            .summary("Cache hits and misses, cache ages, and calls")
            .requires(Permission::Read)
            .json_response(200, "Stats", "A hit is a lookup of tools while their source was fresh"),
        ApiRoute::new("GET", "/api/config", "get_config", get(get_config))
            .summary("Effective configuration with the origin of each value; secrets are masked")
            .requires(Permission::Read)
            .json_response(200, "Config", "Merged from files, run-time declarations and environment variables"),
    ]
}

/// `Stats` and `Config`. The keys of a configuration are described loosely: each is an object with its value and
/// origin.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let count = || json!({ "type": "integer", "minimum": 0 });
    let text = || json!({ "type": "string" });
    let source = object_schema(&[
        ("id", text()),
        ("cache_age_ms", nullable(count())),
        ("expired", json!({ "type": "boolean" })),
        ("hits", count()),
        ("misses", count()),
    ]);
    let tool = object_schema(&[
        ("name", text()),
        ("calls", count()),
        ("errors", count()),
        ("last_called", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("last_error", nullable(schema_ref("Failure"))),
    ]);
    let stats = object_schema(&[
        ("tool_count", count()),
        ("hits", count()),
        ("misses", count()),
        ("hit_ratio", nullable(json!({ "type": "number" }))),
        ("calls", count()),
        ("errors", count()),
        ("sources", json!({ "type": "array", "items": source })),
        ("tools", json!({ "type": "array", "items": tool })),
    ]);
    let keys = || json!({ "type": "object", "additionalProperties": { "type": "object" } });
    let config = object_schema(&[
        ("sources", keys()),
        ("defaults", keys()),
        ("expose", keys()),
        ("allow_commands", json!({ "type": "object" })),
        ("allow_private_sources", json!({ "type": "object" })),
        ("identity", keys()),
        ("warm", json!({ "type": "object" })),
        ("warnings", string_array()),
        ("overrides", keys()),
        ("files", string_array()),
        ("data", text()),
    ]);
    vec![("Stats", stats), ("Config", config)]
}

/// `GET /api/stats`.
async fn get_stats(State(app): State<AppState>) -> Result<Response, ApiError> {
    Ok(response::json_response(StatusCode::OK, &app.registry.statistics().totals())?)
}

/// `GET /api/config`. The configuration may have been reloaded since the last request; the one that is in effect is
/// rendered.
async fn get_config(State(app): State<AppState>) -> Result<Response, ApiError> {
    let config = app.registry.configuration().show(&app.loaded_config.load(), &app.data_dir);
    Ok(response::json_response(StatusCode::OK, &config)?)
}
