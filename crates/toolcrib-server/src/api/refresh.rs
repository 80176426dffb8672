//! Discovery on demand, and what it changed.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use toolcrib::refresh::Refreshed;
use toolcrib::{Code, Outcome, Refresh, Result, Trace};

use super::asked::{Asked, Named, known_source};
use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{and_perhaps, nullable, object, one_of, strings};
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    let flag = || json!({ "type": "boolean", "default": false });
    vec![
        Route::new("POST", "/api/refresh", "refresh", post(all))
            .about("Look at every source that is not fresh, and say what changed")
            .needs(Needs::Using)
            .query("force", flag(), "Contact fresh ones too")
            .answers(200, "Refreshed", "One outcome for each source, in the order of their ids")
            .refuses(&[400]),
        Route::new("POST", "/api/sources/{id}/refresh", "refresh_source", post(one))
            .about("Look at a source that is not fresh, and say what changed")
            .needs(Needs::Using)
            .source_path()
            .query("force", flag(), "Contact it even when it is fresh, and read an unchanged inventory anew")
            .answers(200, "Outcome", "What changed")
            .answers(502, "Outcome", "It was reached and failed; `error` says how")
            .answers(503, "Outcome", "It could not be reached, or not in time; `error` says how")
            .refuses(&[400, 404]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let change = and_perhaps(
        object(&[("name", json!({ "type": "string" })), ("fields", strings())]),
        &[("class", json!({ "type": "string" })), ("notes", strings())],
    );
    let renamed = object(&[("from", json!({ "type": "string" })), ("to", json!({ "type": "string" }))]);
    let outcome = object(&[
        ("source", json!({ "type": "string" })),
        ("status", one_of(&["success", "unchanged", "fresh", "failed", "disabled"])),
        ("contacted", json!({ "type": "boolean" })),
        ("added", strings()),
        ("changed", json!({ "type": "array", "items": reference("Change") })),
        ("removed", strings()),
        ("unchanged", json!({ "type": "integer", "minimum": 0 })),
        ("inventory_hash", nullable(json!({ "type": "string" }))),
        ("elapsed_ms", json!({ "type": "integer", "minimum": 0 })),
        ("error", nullable(reference("Failure"))),
    ]);
    let outcome = and_perhaps(outcome, &[("renamed", json!({ "type": "array", "items": reference("Renamed") }))]);
    let refreshed = object(&[("results", json!({ "type": "array", "items": reference("Outcome") }))]);
    vec![("Change", change), ("Renamed", renamed), ("Outcome", outcome), ("Refreshed", refreshed)]
}

async fn all(State(house): State<House>, trace: Option<Extension<Trace>>, asked: Asked) -> Result<Response, Fault> {
    let trace = trace.map(|trace| trace.0);
    let refresh = Refresh { force: asked.flag("force")?, trace, ..Refresh::default() };
    let results = house.registry.refresh(refresh).await;
    Ok(reply::json(StatusCode::OK, &json!({ "results": results }))?)
}

async fn one(
    State(house): State<House>,
    trace: Option<Extension<Trace>>,
    Named(name): Named,
    asked: Asked,
) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    let refresh = Refresh { force: asked.flag("force")?, trace: trace.map(|trace| trace.0), ..Refresh::default() };
    let outcome = house.registry.refresh_source(&id, refresh).await?;
    Ok(reply::json(status(&outcome), &outcome)?)
}

/// Whether it was the way to the source that failed, or the source.
fn status(outcome: &Outcome) -> StatusCode {
    match (outcome.status, outcome.error.as_ref().map(|error| error.code)) {
        (Refreshed::Failed, Some(Code::ToolUnavailable)) => StatusCode::SERVICE_UNAVAILABLE,
        (Refreshed::Failed, _) => StatusCode::BAD_GATEWAY,
        (Refreshed::Success | Refreshed::Unchanged | Refreshed::Fresh | Refreshed::Disabled, _) => StatusCode::OK,
    }
}
