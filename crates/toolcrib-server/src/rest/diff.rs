//! Lockfiles and diffs. Compares the current catalogue; makes no network requests and starts no process.
//!
//! Both routes of the diff answer 200 whether there are differences or not; `differs` says which. A stale source is
//! compared by its last list and named in `stale`.

use serde_json::{Value, json};
use toolcrib::diff::lockfile::Lockfile;
use toolcrib::{Code, Error};

use super::body::{JsonBody, MAX_LOCKFILE_BYTES};
use super::error::ApiResult;
use super::openapi_schema::{array_of, boolean, count, nullable, object_schema, string_array, text, with_optional};
use super::query::QueryParams;
use super::response::ok_json;
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthorizedRequest, Permission};
use crate::position::with_content_position;

/// A lockfile is sent as the body of a POST, which changes nothing: [`Permission::Read`] is enough.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::read("/api/lock", "get_lock", get_lock)
            .summary("Every tool by its name and fingerprint, as `toolcrib lock` writes it")
            .json_response(200, "Lock", "Tools in name order"),
        ApiRoute::read("/api/diff", "diff_since", diff_since)
            .summary("Compare the current tools with those at a time in the past")
            .required_query_param(
                "since",
                json!({ "type": "string", "minLength": 1 }),
                "`7d`, `2026-11-15`, `2026-11-15T20:00:00Z`",
            )
            .json_response(200, "Difference", "The sources that differ")
            .error_responses(&[400, 503]),
        ApiRoute::post("/api/diff", "diff_lock", diff_lockfile)
            .summary("Compare the current tools with a lockfile")
            .requires(Permission::Read)
            .request_body("Lock")
            .json_response(200, "Difference", "The sources that differ")
            .error_responses(&[400, 408, 413, 415, 503]),
    ]
}

/// `Lock` is the format of the file that `toolcrib lock` writes.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
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
    let source_difference = object_schema(&[
        ("source", text()),
        ("added", string_array()),
        ("changed", array_of(schema_ref("Change"))),
        ("removed", string_array()),
        ("renamed", array_of(schema_ref("Renamed"))),
        ("unchanged", count()),
        ("before", nullable(text())),
        ("after", nullable(text())),
        ("error", nullable(schema_ref("Failure"))),
    ]);
    let difference = object_schema(&[
        ("differs", boolean()),
        ("sources", array_of(schema_ref("SourceDifference"))),
        ("stale", string_array()),
    ]);
    vec![("Lock", lock), ("SourceDifference", source_difference), ("Difference", difference)]
}

/// `GET /api/lock`.
async fn get_lock(request: AuthorizedRequest) -> ApiResult {
    ok_json(&request.app.registry.lockfile_for(&request.client.principal).build().await?)
}

/// `GET /api/diff?since=…`.
async fn diff_since(request: AuthorizedRequest, params: QueryParams) -> ApiResult {
    let missing = || Error::new(Code::BadRequest, "`since` is missing; to compare with a lockfile, send it with POST");
    let since = params.timestamp("since", request.app.registry.now())?.ok_or_else(missing)?;
    ok_json(&request.app.registry.lockfile_for(&request.client.principal).diff_since(since).await?)
}

/// `POST /api/diff`. Fails for a lockfile of an unknown format version.
async fn diff_lockfile(
    request: AuthorizedRequest,
    JsonBody(lockfile): JsonBody<Lockfile, MAX_LOCKFILE_BYTES>,
) -> ApiResult {
    let registry = &request.app.registry;
    let position = registry.position();
    let difference = registry.lockfile_for(&request.client.principal).diff(&lockfile.validate()?).await?;
    Ok(with_content_position(ok_json(&difference)?, position))
}
