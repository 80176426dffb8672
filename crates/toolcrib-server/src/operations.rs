//! For those who keep it running: is it alive, is it ready, what does it do.

mod metrics;
mod prometheus;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use toolcrib::store::StoreState;

use crate::rest::{ApiError, json_response};
use crate::state::AppState;

/// Touches no store: it tells what the registry's upkeep last saw. With the store down, reads and calls go on, so that the
/// process stays in service.
pub(crate) async fn get_readiness(State(house): State<AppState>) -> Result<Response, ApiError> {
    let store = house.registry.store_health();
    if let Err(error) = house.registry.check_ready() {
        let mut body = error.envelope();
        body["status"] = json!("unavailable");
        body["store"] = json!(store);
        return Ok(json_response(StatusCode::SERVICE_UNAVAILABLE, &body)?);
    }
    let status = if store.state == StoreState::Ok { "ready" } else { "degraded" };
    Ok(json_response(StatusCode::OK, &json!({ "status": status, "store": store }))?)
}

pub(crate) async fn get_metrics(State(house): State<AppState>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], metrics::render_metrics(&house)).into_response()
}
