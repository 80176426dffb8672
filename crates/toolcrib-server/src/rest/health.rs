//! Routes for operators: liveness, readiness, and the metrics of [`crate::metrics`]. All answer from memory, so that a
//! probe works while the store or a source hangs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::Principal;
use toolcrib::store::StoreState;

use super::error::ApiResult;
use super::openapi_schema::{object_schema, string_enum, text, timestamp, with_optional};
use super::response::json_response;
use super::route::ApiRoute;
use crate::auth::Permission;
use crate::metrics::get_metrics;
use crate::state::AppState;

/// `since` is present only while the store is not `ok`, and `config` only while it is invalid, so they are not required.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let store = object_schema(&[("state", string_enum(&["ok", "down", "damaged", "missing"]))]);
    let store = with_optional(store, &[("since", timestamp())]);
    let config = object_schema(&[("state", string_enum(&["invalid"])), ("reason", text())]);
    let readiness = object_schema(&[("status", string_enum(&["ready", "degraded"])), ("store", store)]);
    vec![("Readiness", with_optional(readiness, &[("config", config)]))]
}

/// Probes have no credentials, so the first two are public; neither names a path.
pub(super) fn routes() -> Vec<ApiRoute> {
    let plain_text =
        |about: &str| json!({ "description": about, "content": { "text/plain": { "schema": { "type": "string" } } } });
    vec![
        ApiRoute::new("GET", "/healthz", "is_alive", get(|| async { "ok\n" }))
            .summary("Liveness: the server answers")
            .requires(Permission::Public)
            .response(200, plain_text("Always `ok`")),
        ApiRoute::new("GET", "/readyz", "is_ready", get(get_readiness))
            .summary("Readiness, the state of the store, and whether the configuration is invalid")
            .requires(Permission::Public)
            .json_response(200, "Readiness", "Calls work; `degraded` while the store does not accept changes")
            .error_responses(&[503]),
        ApiRoute::read("/metrics", "metrics", get_metrics)
            .requires_admin_with_rules()
            .summary("Metrics for Prometheus")
            .response(200, plain_text("Prometheus text format, version 0.0.4")),
    ]
}

/// `GET /readyz`. Does not access the store; reports the state that the registry's maintenance task last observed. With
/// the store down, reads and calls still work, so the status stays 200 and an orchestrator keeps the process in service.
async fn get_readiness(State(app): State<AppState>) -> ApiResult {
    let store = app.registry.store().health();
    if let Err(error) = app.registry.store().check_ready() {
        // A store that is damaged, missing or too new for this process refuses calls: a load balancer must take it out.
        let mut body = error.envelope();
        body["status"] = json!("unavailable");
        body["store"] = json!(store);
        return Ok(json_response(StatusCode::SERVICE_UNAVAILABLE, &body)?);
    }
    let status = if store.state == StoreState::Ok { "ready" } else { "degraded" };
    let mut body = json!({ "status": status, "store": store });
    // Anyone may read it, so no more is told than to an agent.
    if let Some(reason) = app.config_error_for(&Principal::default()) {
        body["config"] = json!({ "state": "invalid", "reason": reason });
    }
    Ok(json_response(StatusCode::OK, &body)?)
}
