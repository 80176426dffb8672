//! Handlers for operators: readiness and Prometheus metrics. Their routes are declared in `rest::health`.
//!
//! Both answer from memory, so that a probe works while the store or a source hangs.

mod metrics;
mod prometheus;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use toolcrib::store::StoreState;

use crate::rest::{ApiError, json_response};
use crate::state::AppState;

/// `GET /readyz`. Does not access the store; reports the state that the registry's maintenance task last observed. With
/// the store down, reads and calls still work, so the status stays 200 and an orchestrator keeps the process in service.
pub(crate) async fn get_readiness(State(app): State<AppState>) -> Result<Response, ApiError> {
    let store = app.registry.store().health();
    if let Err(error) = app.registry.store().check_ready() {
        // A store that is damaged, missing or too new for this process refuses calls: a load balancer must take it out.
        let mut body = error.envelope();
        body["status"] = json!("unavailable");
        body["store"] = json!(store);
        return Ok(json_response(StatusCode::SERVICE_UNAVAILABLE, &body)?);
    }
    let status = if store.state == StoreState::Ok { "ready" } else { "degraded" };
    Ok(json_response(StatusCode::OK, &json!({ "status": status, "store": store }))?)
}

/// `GET /metrics`.
pub(crate) async fn get_metrics(State(app): State<AppState>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], metrics::render_metrics(&app)).into_response()
}
