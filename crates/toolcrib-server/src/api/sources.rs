//! Sources over HTTP.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use super::route::Route;
use crate::access::Needs;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/sources", "list_sources", get(list))
            .about("Every source, how it stands and what it offers")
            .needs(Needs::Reading),
    ]
}

async fn list(State(house): State<House>) -> Json<Value> {
    Json(json!({ "sources": house.registry.sources() }))
}
