//! Sources as they stand. Reads contact nobody.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::registry::Moment;

use super::asked::{Named, known_source};
use super::fault::Fault;
use super::reply::{self, Tagged};
use super::route::{Route, reference};
use super::shape::{nullable, object, one_of, strings};
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/sources", "list_sources", get(list))
            .about("Every source, how it stands and what it offers; contacts nobody")
            .needs(Needs::Reading)
            .answers(200, "Sources", "In the order of their ids")
            .may_be_unchanged(),
        Route::new("GET", "/api/sources/{id}", "get_source", get(one))
            .about("One source; contacts nobody")
            .needs(Needs::Reading)
            .source_path()
            .answers(200, "Source", "How it stands")
            .refuses(&[404]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let failure = object(&[
        ("code", json!({ "type": "string" })),
        ("message", json!({ "type": "string" })),
        ("retryable", json!({ "type": "boolean" })),
    ]);
    let breaker = object(&[
        ("state", one_of(&["closed", "open", "half_open"])),
        ("retry_at", nullable(json!({ "type": "string", "format": "date-time" }))),
    ]);
    let set_aside = object(&[("name", json!({ "type": "string" })), ("reason", json!({ "type": "string" }))]);
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let source = object(&[
        ("id", json!({ "type": "string", "description": "Prefixes its tools: `id__tool`" })),
        ("title", nullable(text())),
        ("kind", text()),
        ("origin", one_of(&["config", "runtime"])),
        ("transport", nullable(text())),
        ("command", nullable(text())),
        ("args", nullable(strings())),
        ("url", nullable(text())),
        ("enabled", json!({ "type": "boolean" })),
        ("status", one_of(&["never", "discovering", "success", "failed"])),
        ("freshness", one_of(&["fresh", "stale", "missing"])),
        ("health", one_of(&["ok", "degraded", "down", "unknown"])),
        ("tool_count", count()),
        ("inventory_hash", nullable(text())),
        ("config_hash", nullable(text())),
        ("last_checked", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("last_error", nullable(reference("Failure"))),
        ("ttl_ms", count()),
        ("discovery_timeout_ms", count()),
        ("connection", one_of(&["none", "connected", "resting"])),
        ("failures", json!({ "type": "integer", "minimum": 0, "description": "Discoveries and calls in a row" })),
        ("failing_since", nullable(json!({ "type": "string", "format": "date-time" }))),
        ("breaker", reference("Breaker")),
        ("set_aside", json!({ "type": "array", "items": set_aside })),
    ]);
    let sources = object(&[("sources", json!({ "type": "array", "items": reference("Source") }))]);
    vec![("Source", source), ("Sources", sources), ("Failure", failure), ("Breaker", breaker)]
}

/// The list as it was last written. It goes by the clock and by connections too, so it is kept apart from what goes by
/// the catalogue alone.
#[derive(Debug, Default)]
pub(crate) struct SourceList(ArcSwapOption<(Moment, Tagged)>);

async fn list(State(house): State<House>, headers: HeaderMap) -> Result<Response, Fault> {
    if let Some(kept) = &*house.source_list.0.load()
        && house.registry.is_still(&kept.0)
    {
        return Ok(kept.1.answer(&headers));
    }
    // What changes after this moment was taken is seen by the next who asks.
    let moment = house.registry.moment();
    let written = Tagged::of(reply::written(&json!({ "sources": house.registry.sources() }))?);
    let response = written.answer(&headers);
    house.source_list.0.store(Some(Arc::new((moment, written))));
    Ok(response)
}

async fn one(State(house): State<House>, Named(name): Named) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    let view = house.registry.source(&id).ok_or_else(|| house.registry.unknown_source(id.as_str()))?;
    Ok(reply::json(StatusCode::OK, &view)?)
}
