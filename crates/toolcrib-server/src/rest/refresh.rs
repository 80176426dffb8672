//! Refreshes sources on request and reports what changed.
//!
//! The request waits until the discovery ends. For all sources the status is always 200, and each outcome has its own
//! error; for one source a failure is also the status of the response.

use axum::http::StatusCode;
use serde_json::{Value, json};
use toolcrib::refresh::{RefreshStatus, RefreshTotals};
use toolcrib::store::ErrorSummary;
use toolcrib::{Code, Principal, Refresh, RefreshOutcome, Registry, SourceId};

use super::error::ApiResult;
use super::openapi_schema::{
    array_of, boolean, count, described, nullable, object_schema, string_array, string_enum, text, with_optional,
};
use super::query::{PathParam, QueryParams, find_source_id};
use super::response::{json_response, ok_json};
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthorizedRequest, Permission};

/// A failed refresh of one source has the outcome as its body, with the error in it, and not an error envelope.
pub(super) fn routes() -> Vec<ApiRoute> {
    let flag = || json!({ "type": "boolean", "default": false });
    vec![
        ApiRoute::post("/api/refresh", "refresh", refresh_all)
            .summary("Refresh every source that is not fresh, and report what changed")
            .requires(Permission::Use)
            .query_param("force", flag(), "Refresh fresh sources too")
            .json_response(200, "Refreshed", "One outcome per source, in the order of their ids")
            .error_responses(&[400]),
        ApiRoute::post("/api/sources/{id}/refresh", "refresh_source", refresh_source)
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
        object_schema(&[("name", text()), ("fields", string_array())]),
        &[("class", text()), ("notes", string_array())],
    );
    let renamed = object_schema(&[("from", text()), ("to", text())]);
    let outcome = object_schema(&[
        ("source", text()),
        ("status", string_enum(&["success", "unchanged", "fresh", "failed", "disabled"])),
        ("contacted", boolean()),
        ("added", string_array()),
        ("changed", array_of(schema_ref("Change"))),
        ("removed", string_array()),
        ("unchanged", count()),
        ("inventory_hash", nullable(text())),
        ("elapsed_ms", count()),
        ("error", nullable(schema_ref("Failure"))),
    ]);
    let features = object_schema(&[
        ("prompts", schema_ref("FeatureDelta")),
        ("resources", schema_ref("FeatureDelta")),
        ("resource_templates", schema_ref("FeatureDelta")),
        ("instructions_changed", boolean()),
    ]);
    let feature_delta =
        object_schema(&[("added", string_array()), ("changed", string_array()), ("removed", string_array())]);
    let features = described(features, "Changes of prompts, resources and instructions of an MCP server");
    let renamed_tools = ("renamed", array_of(schema_ref("Renamed")));
    let outcome = with_optional(outcome, &[renamed_tools, ("features", features)]);
    let totals =
        ["sources", "succeeded", "failed", "disabled", "contacted", "added", "changed", "removed", "unchanged"];
    let totals = object_schema(&totals.map(|name| (name, count())));
    let refreshed = object_schema(&[("results", array_of(schema_ref("Outcome"))), ("totals", schema_ref("Totals"))]);
    vec![
        ("Change", change),
        ("Renamed", renamed),
        ("FeatureDelta", feature_delta),
        ("Outcome", outcome),
        ("Totals", totals),
        ("Refreshed", refreshed),
    ]
}

/// Returns the sources that a client may know of, for a refresh of all; `None` if it may know of every source. Others are
/// not contacted on its behalf.
pub(crate) fn known_sources(registry: &Registry, principal: &Principal) -> Option<Vec<SourceId>> {
    let visibility = registry.visibility(principal);
    let knows_all = registry.inventory().sources().all(|(id, _)| visibility.shows_source(id));
    (!knows_all).then(|| registry.sources().list_for(principal).into_iter().map(|source| source.id).collect())
}

/// `POST /api/refresh`.
async fn refresh_all(request: AuthorizedRequest, params: QueryParams) -> ApiResult {
    let registry = &request.app.registry;
    let known_sources = known_sources(registry, &request.client.principal);
    let refresh =
        Refresh { known_sources, force: params.flag("force")?, requester: request.requester(), ..Refresh::brief() };
    let outcomes = registry.refresh(refresh).await;
    let visibility = registry.visibility(&request.client.principal);
    let results: Vec<_> = outcomes.into_iter().filter_map(|outcome| visibility.restrict_outcome(outcome)).collect();
    ok_json(&json!({ "results": results, "totals": RefreshTotals::new(&results) }))
}

/// `POST /api/sources/{id}/refresh`. A request at the same time as another discovery of the source shares its result.
async fn refresh_source(request: AuthorizedRequest, PathParam(name): PathParam, params: QueryParams) -> ApiResult {
    let (registry, principal) = (&request.app.registry, &request.client.principal);
    let id = find_source_id(registry, principal, &name)?;
    let refresh = Refresh { force: params.flag("force")?, requester: request.requester(), ..Refresh::brief() };
    let outcome = registry.refresher().refresh_one(&id, refresh).await?;
    // The refresh may have found that the source has no tool that the client may know of.
    let visibility = registry.visibility(principal);
    let unknown = || visibility.unknown_source_error(id.as_str());
    let outcome = visibility.restrict_outcome(outcome).ok_or_else(unknown)?;
    let has_program = registry.sources().get(&id).is_some_and(|source| source.transport == Some("stdio"));
    Ok(json_response(outcome_status(&outcome, has_program), &outcome)?)
}

/// Maps a failed refresh to 503 if the source could not be reached in time, or if the store is unavailable, else to 502.
/// A server that answers, such as with 404, was reached, so a retry would fail again; a program that cannot be started
/// was not.
fn outcome_status(outcome: &RefreshOutcome, has_program: bool) -> StatusCode {
    let is_unreachable = |error: &ErrorSummary| {
        error.code == Code::StoreUnavailable
            || (error.code == Code::ToolUnavailable && (error.retryable || has_program))
    };
    if outcome.status != RefreshStatus::Failed {
        StatusCode::OK
    } else if outcome.error.as_ref().is_some_and(is_unreachable) {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::BAD_GATEWAY
    }
}
