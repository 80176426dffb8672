//! Routes for operators: health checks and metrics. Declared here so that the OpenAPI document has them; their handlers
//! are in [`crate::operations`].

use axum::routing::get;
use serde_json::{Value, json};

use super::openapi_schema::{object_schema, string_enum, timestamp, with_optional};
use super::route::ApiRoute;
use crate::auth::Permission;
use crate::operations::{get_metrics, get_readiness};

/// `since` is present only while the store is not `ok`, so it is not required.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let store = object_schema(&[("state", string_enum(&["ok", "down", "damaged", "missing"]))]);
    let store = with_optional(store, &[("since", timestamp())]);
    vec![("Readiness", object_schema(&[("status", string_enum(&["ready", "degraded"])), ("store", store)]))]
}

/// Probes have no credentials, so the first two are public; neither names a path.
pub(super) fn routes() -> Vec<ApiRoute> {
    let text =
        |about: &str| json!({ "description": about, "content": { "text/plain": { "schema": { "type": "string" } } } });
    vec![
        ApiRoute::new("GET", "/healthz", "is_alive", get(|| async { "ok\n" }))
            .summary("Liveness: the server answers")
            .requires(Permission::Public)
            .response(200, text("Always `ok`")),
        ApiRoute::new("GET", "/readyz", "is_ready", get(get_readiness))
            .summary("Readiness, and the state of the store")
            .requires(Permission::Public)
            .json_response(200, "Readiness", "Calls work; `degraded` while the store does not accept changes")
            .error_responses(&[503]),
        ApiRoute::read("/metrics", "metrics", get_metrics)
            .summary("Metrics for Prometheus")
            .response(200, text("Prometheus text format, version 0.0.4")),
    ]
}
