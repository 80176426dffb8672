//! Lockfiles and differences over HTTP. Nobody is contacted: what is known now is compared.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use toolcrib::core::lock::Lock;
use toolcrib::{Code, Error, Result};

use super::asked::Asked;
use super::body::{Json, LARGEST_LOCK};
use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{and_perhaps, nullable, object, strings};
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/lock", "get_lock", get(lock))
            .about("Every tool by its name and fingerprint, as `toolcrib lock` writes it")
            .needs(Needs::Reading)
            .answers(200, "Lock", "In the order of their names"),
        Route::new("GET", "/api/diff", "diff_since", get(since))
            .about("What differs from some time in the past")
            .needs(Needs::Reading)
            .query_required(
                "since",
                json!({ "type": "string", "minLength": 1 }),
                "`7d`, `2026-11-15`, `2026-11-15T20:00:00Z`",
            )
            .answers(200, "Difference", "The sources that differ")
            .refuses(&[400, 503]),
        Route::new("POST", "/api/diff", "diff_lock", post(against))
            .about("What differs from a lockfile")
            .needs(Needs::Reading)
            .takes("Lock")
            .answers(200, "Difference", "The sources that differ")
            .refuses(&[400, 408, 413, 415, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let hash = || json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let schema = || json!({ "description": "A schema without its texts, where it is short" });
    let tool = and_perhaps(
        object(&[("fingerprint", hash()), ("text", text()), ("input", text()), ("hints", text())]),
        &[
            ("output", nullable(text())),
            ("execution", nullable(text())),
            ("tasks", nullable(text())),
            ("rest", nullable(text())),
            ("takes", schema()),
            ("gives", schema()),
        ],
    );
    let tools = json!({ "type": "object", "additionalProperties": tool });
    let source = object(&[("inventory_hash", hash()), ("tools", tools)]);
    let sources = json!({
        "type": "object",
        "propertyNames": { "pattern": "^[a-z0-9]+(_[a-z0-9]+)*$", "maxLength": 32 },
        "additionalProperties": source,
    });
    let lock = object(&[("version", json!({ "type": "integer", "const": 1 })), ("sources", sources)]);
    let list = |item: &str| json!({ "type": "array", "items": reference(item) });
    let differing = object(&[
        ("source", text()),
        ("added", strings()),
        ("changed", list("Change")),
        ("removed", strings()),
        ("renamed", list("Renamed")),
        ("unchanged", json!({ "type": "integer", "minimum": 0 })),
        ("before", nullable(text())),
        ("after", nullable(text())),
        ("error", nullable(reference("Failure"))),
    ]);
    let difference = object(&[
        ("differs", json!({ "type": "boolean" })),
        ("sources", list("SourceDifference")),
        ("stale", strings()),
    ]);
    vec![("Lock", lock), ("SourceDifference", differing), ("Difference", difference)]
}

async fn lock(State(house): State<House>) -> Result<Response, Fault> {
    Ok(reply::json(StatusCode::OK, &house.registry.lock().await?)?)
}

async fn since(State(house): State<House>, asked: Asked) -> Result<Response, Fault> {
    let missing = || Error::new(Code::BadRequest, "`since` is missing; POST a lockfile to compare with that");
    let since = asked.moment("since", house.registry.now())?.ok_or_else(missing)?;
    Ok(reply::json(StatusCode::OK, &house.registry.diff_since(since).await?)?)
}

async fn against(State(house): State<House>, Json(lock): Json<Lock, LARGEST_LOCK>) -> Result<Response, Fault> {
    let difference = house.registry.diff_from_lock(&lock.checked()?).await?;
    Ok(reply::json(StatusCode::OK, &difference)?)
}
