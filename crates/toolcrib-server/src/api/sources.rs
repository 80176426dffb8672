//! Sources over HTTP.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use super::route::{Route, reference};
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/sources", "list_sources", get(list))
            .about("Every source, how it stands and what it offers")
            .needs(Needs::Reading)
            .answers(200, "Sources", "In the order of their ids"),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let source = json!({ "type": "object", "required": ["id"], "properties": { "id": { "type": "string" } } });
    let sources = json!({
        "type": "object",
        "required": ["sources"],
        "properties": { "sources": { "type": "array", "items": reference("Source") } },
    });
    vec![("Source", source), ("Sources", sources)]
}

async fn list(State(house): State<House>) -> Json<Value> {
    Json(json!({ "sources": house.registry.sources() }))
}
