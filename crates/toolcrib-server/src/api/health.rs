//! The routes of those who keep it running, so that the document knows them too.

use axum::routing::get;
use serde_json::{Value, json};

use super::route::Route;
use super::shape::{object, one_of};
use crate::access::Needs;
use crate::operations::{measured, ready};

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let mut store = object(&[("state", one_of(&["ok", "down", "damaged", "missing"]))]);
    store["properties"]["since"] = json!({ "type": "string", "format": "date-time" });
    vec![("Readiness", object(&[("status", one_of(&["ready", "degraded"])), ("store", store)]))]
}

pub(super) fn routes() -> Vec<Route> {
    let text =
        |about: &str| json!({ "description": about, "content": { "text/plain": { "schema": { "type": "string" } } } });
    vec![
        Route::new("GET", "/healthz", "is_alive", get(|| async { "ok\n" }))
            .about("Whether it answers at all")
            .needs(Needs::Nothing)
            .answer(200, text("It does")),
        Route::new("GET", "/readyz", "is_ready", get(ready))
            .about("Whether calls can be made, and how the store is")
            .needs(Needs::Nothing)
            .answers(200, "Readiness", "They can; `degraded` where nothing can be changed for now")
            .refuses(&[503]),
        Route::new("GET", "/metrics", "metrics", get(measured))
            .about("Everything that is counted, for Prometheus")
            .needs(Needs::Reading)
            .answer(200, text("Prometheus' text format, version 0.0.4")),
    ]
}
