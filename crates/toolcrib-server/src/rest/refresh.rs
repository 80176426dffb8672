//! Refreshes sources on request and reports what changed.
//!
//! The request waits until the discovery ends. For all sources the status is always 200, and each outcome has its own
//! error; for one source a failure is also the status of the response.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use toolcrib::refresh::RefreshStatus;
use toolcrib::{Code, Refresh, RefreshOutcome, Result, Trace};

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum, with_optional};
use super::query::{PathParam, QueryParams, find_source_id};
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

/// A failed refresh of one source has the outcome as its body, with the error in it, and not an error envelope.
pub(super) fn routes() -> Vec<ApiRoute> {
    let flag = || json!({ "type": "boolean", "default": false });
    vec![
        ApiRoute::new("POST", "/api/refresh", "refresh", post(refresh_all))
            .summary("Refresh every source that is not fresh, and report what changed")
            .requires(Permission::Use)
            .query_param("force", flag(), "Refresh fresh sources too")
            .json_response(200, "Refreshed", "One outcome per source, in the order of their ids")
            .error_responses(&[400]),
        ApiRoute::new("POST", "/api/sources/{id}/refresh", "refresh_source", post(refresh_source))
            .summary("Refresh a source that is not fresh, and report what changed")
            .requires(Permission::Use)
            .source_param()
            .query_param("force", flag(), "Refresh it even if it is fresh, and process an unchanged tool list again")
            .json_response(200, "Outcome", "What changed")
            .json_response(502, "Outcome", "The source was reached and failed; see `error`")
            .json_response(503, "Outcome", "The source could not be reached in time; see `error`")
            .error_responses(&[400, 404]),
    ]
}

/// `Change` and `Renamed` are also used by the diff.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let change = with_optional(
        object_schema(&[("name", json!({ "type": "string" })), ("fields", string_array())]),
        &[("class", json!({ "type": "string" })), ("notes", string_array())],
    );
    let renamed = object_schema(&[("from", json!({ "type": "string" })), ("to", json!({ "type": "string" }))]);
    let outcome = object_schema(&[
        ("source", json!({ "type": "string" })),
        ("status", string_enum(&["success", "unchanged", "fresh", "failed", "disabled"])),
        ("contacted", json!({ "type": "boolean" })),
        ("added", string_array()),
        ("changed", json!({ "type": "array", "items": schema_ref("Change") })),
        ("removed", string_array()),
        ("unchanged", json!({ "type": "integer", "minimum": 0 })),
        ("inventory_hash", nullable(json!({ "type": "string" }))),
        ("elapsed_ms", json!({ "type": "integer", "minimum": 0 })),
        ("error", nullable(schema_ref("Failure"))),
    ]);
    let outcome = with_optional(outcome, &[("renamed", json!({ "type": "array", "items": schema_ref("Renamed") }))]);
    let refreshed = object_schema(&[("results", json!({ "type": "array", "items": schema_ref("Outcome") }))]);
    vec![("Change", change), ("Renamed", renamed), ("Outcome", outcome), ("Refreshed", refreshed)]
}

/// `POST /api/refresh`.
async fn refresh_all(
    State(app): State<AppState>,
    trace: Option<Extension<Trace>>,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let trace = trace.map(|trace| trace.0);
    let refresh = Refresh { force: params.flag("force")?, trace, ..Refresh::default() };
    let results = app.registry.refresh(refresh).await;
    Ok(response::json_response(StatusCode::OK, &json!({ "results": results }))?)
}

/// `POST /api/sources/{id}/refresh`. A request at the same time as another discovery of the source shares its result.
async fn refresh_source(
    State(app): State<AppState>,
    trace: Option<Extension<Trace>>,
    PathParam(name): PathParam,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let refresh = Refresh { force: params.flag("force")?, trace: trace.map(|trace| trace.0), ..Refresh::default() };
    let outcome = app.registry.refresher().refresh_one(&id, refresh).await?;
    Ok(response::json_response(outcome_status(&outcome), &outcome)?)
}

/// Maps a failed refresh to 503 if the source was unavailable, else to 502.
fn outcome_status(outcome: &RefreshOutcome) -> StatusCode {
    match (outcome.status, outcome.error.as_ref().map(|error| error.code)) {
        (RefreshStatus::Failed, Some(Code::ToolUnavailable)) => StatusCode::SERVICE_UNAVAILABLE,
        (RefreshStatus::Failed, _) => StatusCode::BAD_GATEWAY,
        (RefreshStatus::Success | RefreshStatus::Unchanged | RefreshStatus::Fresh | RefreshStatus::Disabled, _) => {
            StatusCode::OK
        }
    }
}
