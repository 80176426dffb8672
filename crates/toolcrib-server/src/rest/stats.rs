//! `GET /api/stats` and `GET /api/config`: usage counters and the effective configuration.

use serde_json::{Value, json};

use super::error::ApiResult;
use super::openapi_schema::{array_of, boolean, count, nullable, object_schema, string_array, text, timestamp};
use super::response::ok_json;
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthorizedRequest;

/// The two operations of this module. Neither is cached: counters change with every call.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::read("/api/stats", "get_stats", get_stats)
            .summary("Cache hits and misses, cache ages, and calls")
            .json_response(200, "Stats", "A hit is a lookup of tools while their source was fresh"),
        ApiRoute::read("/api/config", "get_config", get_config)
            .requires_admin_with_rules()
            .summary("Effective configuration with the origin of each value; secrets are masked")
            .json_response(200, "Config", "Merged from files, run-time declarations and environment variables"),
    ]
}

/// `Stats` and `Config`. The keys of a configuration are described loosely: each is an object with its value and
/// origin.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let source = object_schema(&[
        ("id", text()),
        ("cache_age_ms", nullable(count())),
        ("expired", boolean()),
        ("hits", count()),
        ("misses", count()),
    ]);
    let tool = object_schema(&[
        ("name", text()),
        ("calls", count()),
        ("errors", count()),
        ("last_called", nullable(timestamp())),
        ("last_error", nullable(schema_ref("Failure"))),
    ]);
    let stats = object_schema(&[
        ("tool_count", count()),
        ("hits", count()),
        ("misses", count()),
        ("hit_ratio", nullable(json!({ "type": "number" }))),
        ("calls", count()),
        ("errors", count()),
        ("sources", array_of(source)),
        ("tools", array_of(tool)),
    ]);
    let keys = || json!({ "type": "object", "additionalProperties": { "type": "object" } });
    let config = object_schema(&[
        ("sources", keys()),
        ("defaults", keys()),
        ("expose", keys()),
        ("allow_commands", json!({ "type": "object" })),
        ("allow_private_sources", json!({ "type": "object" })),
        ("identity", keys()),
        ("public_url", json!({ "type": "object" })),
        ("limits", keys()),
        ("warm", json!({ "type": "object" })),
        ("warnings", string_array()),
        ("overrides", keys()),
        ("files", string_array()),
        ("data", text()),
    ]);
    vec![("Stats", stats), ("Config", config)]
}

/// `GET /api/stats`.
async fn get_stats(request: AuthorizedRequest) -> ApiResult {
    ok_json(&request.app.registry.statistics_for(&request.client.principal).totals())
}

/// `GET /api/config`. The configuration may have been reloaded since the last request; the one that is in effect is
/// rendered.
async fn get_config(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> ApiResult {
    let configuration = app.registry.configuration();
    ok_json(&configuration.show_for(&client.principal, &app.loaded_config.load(), &app.data_dir))
}
