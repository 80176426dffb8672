//! The routes of those who keep it running, so that the document knows them too.

use axum::routing::get;
use serde_json::json;

use super::route::Route;
use crate::access::Needs;
use crate::operations::{measured, ready};

pub(super) fn routes() -> Vec<Route> {
    let text =
        |about: &str| json!({ "description": about, "content": { "text/plain": { "schema": { "type": "string" } } } });
    vec![
        Route::new("GET", "/healthz", "is_alive", get(|| async { "ok\n" }))
            .about("Whether it answers at all")
            .needs(Needs::Nothing)
            .answer(200, text("It does")),
        Route::new("GET", "/readyz", "is_ready", get(ready))
            .about("Whether the registry is open and its store answers")
            .needs(Needs::Nothing)
            .answer(200, text("It does"))
            .refuses(&[503]),
        Route::new("GET", "/metrics", "metrics", get(measured))
            .about("Everything that is counted, for Prometheus")
            .needs(Needs::Reading)
            .answer(200, text("Prometheus' text format, version 0.0.4")),
    ]
}
