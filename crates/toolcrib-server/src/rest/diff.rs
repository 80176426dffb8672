//! Lockfiles and diffs. Compares the current catalogue; makes no network requests and starts no process.
//!
//! Both routes of the diff answer 200 whether there are differences or not; `differs` says which. A stale source is
//! compared by its last list and named in `stale`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use toolcrib::diff::lockfile::Lockfile;
use toolcrib::{Code, Error, Result};

use super::body::{JsonBody, MAX_LOCKFILE_BYTES};
use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, with_optional};
use super::query::QueryParams;
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

/// A lockfile is sent as the body of a POST, which changes nothing: [`Permission::Read`] is enough.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("GET", "/api/lock", "get_lock", get(get_lock))
            .summary("Every tool by its name and fingerprint, as `toolcrib lock` writes it")
            .requires(Permission::Read)
            .json_response(200, "Lock", "Tools in name order"),
        ApiRoute::new("GET", "/api/diff", "diff_since", get(diff_since))
            .summary("Compare the current tools with those at a time in the past")
            .requires(Permission::Read)
            .required_query_param(
                "since",
                json!({ "type": "string", "minLength": 1 }),
                "`7d`, `2026-11-15`, `2026-11-15T20:00:00Z`",
            )
            .json_response(200, "Difference", "The sources that differ")
            .error_responses(&[400, 503]),
        ApiRoute::new("POST", "/api/diff", "diff_lock", post(diff_lockfile))
            .summary("Compare the current tools with a lockfile")
            .requires(Permission::Read)
            .request_body("Lock")
            .json_response(200, "Difference", "The sources that differ")
            .error_responses(&[400, 408, 413, 415, 503]),
    ]
}

/// `Lock` is the format of the file that `toolcrib lock` writes.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let hash = || json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let schema = || json!({ "description": "The schema without its texts, if it is short" });
    let tool = with_optional(
        object_schema(&[("fingerprint", hash()), ("text", text()), ("input", text()), ("hints", text())]),
        &[
            ("output", nullable(text())),
            ("execution", nullable(text())),
            ("tasks", nullable(text())),
            ("rest", nullable(text())),
            ("takes", schema()),
            ("gives", schema()),
        ],
    );
    let tools = json!({ "type": "object", "additionalProperties": tool });
    let source = object_schema(&[("inventory_hash", hash()), ("tools", tools)]);
    let sources = json!({
        "type": "object",
        "propertyNames": { "pattern": "^[a-z0-9]+(_[a-z0-9]+)*$", "maxLength": 32 },
        "additionalProperties": source,
    });
    let lock = object_schema(&[("version", json!({ "type": "integer", "const": 1 })), ("sources", sources)]);
    let list = |item: &str| json!({ "type": "array", "items": schema_ref(item) });
    let source_difference = object_schema(&[
        ("source", text()),
        ("added", string_array()),
        ("changed", list("Change")),
        ("removed", string_array()),
        ("renamed", list("Renamed")),
        ("unchanged", json!({ "type": "integer", "minimum": 0 })),
        ("before", nullable(text())),
        ("after", nullable(text())),
        ("error", nullable(schema_ref("Failure"))),
    ]);
    let difference = object_schema(&[
        ("differs", json!({ "type": "boolean" })),
        ("sources", list("SourceDifference")),
        ("stale", string_array()),
    ]);
    vec![("Lock", lock), ("SourceDifference", source_difference), ("Difference", difference)]
}

/// `GET /api/lock`.
async fn get_lock(State(app): State<AppState>) -> Result<Response, ApiError> {
    Ok(response::json_response(StatusCode::OK, &app.registry.lockfile().build().await?)?)
}

/// `GET /api/diff?since=…`.
async fn diff_since(State(app): State<AppState>, params: QueryParams) -> Result<Response, ApiError> {
    let missing = || Error::new(Code::BadRequest, "`since` is missing; to compare with a lockfile, send it with POST");
    let since = params.timestamp("since", app.registry.now())?.ok_or_else(missing)?;
    Ok(response::json_response(StatusCode::OK, &app.registry.lockfile().diff_since(since).await?)?)
}

/// `POST /api/diff`. Fails for a lockfile of an unknown format version.
async fn diff_lockfile(
    State(app): State<AppState>,
    JsonBody(lockfile): JsonBody<Lockfile, MAX_LOCKFILE_BYTES>,
) -> Result<Response, ApiError> {
    let difference = app.registry.lockfile().diff(&lockfile.validate()?).await?;
    Ok(response::json_response(StatusCode::OK, &difference)?)
}
