//! What was counted, and the configuration as it holds.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{nullable, object, strings};
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/stats", "get_stats", get(stats))
            .about("Cache hits and misses, ages, calls")
            .needs(Needs::Reading)
            .answers(200, "Stats", "A hit is a need met while the source was fresh"),
        Route::new("GET", "/api/config", "get_config", get(config))
            .about("The merged configuration with the origin of each value; nothing secret")
            .needs(Needs::Reading)
            .answers(200, "Config", "What all files, commands and variables come to"),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let count = || json!({ "type": "integer", "minimum": 0 });
    let text = || json!({ "type": "string" });
    let source = object(&[
        ("id", text()),
        ("cache_age_ms", nullable(count())),
        ("expired", json!({ "type": "boolean" })),
        ("hits", count()),
        ("misses", count()),
    ]);
    let tool = object(&[
        ("name", text()),
        ("calls", count()),
        ("errors", count()),
        ("last_called", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("last_error", nullable(reference("Failure"))),
    ]);
    let stats = object(&[
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
    let config = object(&[
        ("sources", keys()),
        ("defaults", keys()),
        ("expose", keys()),
        ("allow_commands", json!({ "type": "object" })),
        ("allow_private_sources", json!({ "type": "object" })),
        ("identity", keys()),
        ("warm", json!({ "type": "object" })),
        ("warnings", strings()),
        ("overrides", keys()),
        ("files", strings()),
        ("data", text()),
    ]);
    vec![("Stats", stats), ("Config", config)]
}

async fn stats(State(house): State<House>) -> Result<Response, Fault> {
    Ok(reply::json(StatusCode::OK, &house.registry.stats())?)
}

async fn config(State(house): State<House>) -> Result<Response, Fault> {
    let merged = house.registry.merged_config(&house.found.load(), &house.data);
    Ok(reply::json(StatusCode::OK, &merged)?)
}
