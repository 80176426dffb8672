//! For those who keep it running: is it alive, is it ready, what does it do.

mod exposition;
mod metrics;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use toolcrib::store::StoreState;

use crate::api::{Fault, json_response};
use crate::house::House;

/// Touches no store: it tells what the registry's upkeep last saw. With the store down, reads and calls go on, so that the
/// process stays in service.
pub(crate) async fn ready(State(house): State<House>) -> Result<Response, Fault> {
    let store = house.registry.store_health();
    if let Err(error) = house.registry.ready() {
        let mut body = error.envelope();
        body["status"] = json!("unavailable");
        body["store"] = json!(store);
        return Ok(json_response(StatusCode::SERVICE_UNAVAILABLE, &body)?);
    }
    let status = if store.state == StoreState::Ok { "ready" } else { "degraded" };
    Ok(json_response(StatusCode::OK, &json!({ "status": status, "store": store }))?)
}

pub(crate) async fn measured(State(house): State<House>) -> Response {
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], metrics::written(&house)).into_response()
}
