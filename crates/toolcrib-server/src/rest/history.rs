//! The journal over HTTP, and the life of one tool. What is recent is in memory; who asks for what lies further back, or
//! for definitions that are gone, makes the store read.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::core::compare::ChangeClass;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::HistoryQuery;
use toolcrib::{Error, Result, SourceId};

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum};
use super::query::{PathParam, QueryParams};
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

const MAX_RECORDS: u64 = 1_000;
const DEFAULT_RECORDS: usize = 100;
const MAX_VERSIONS: u64 = 100;
const DEFAULT_VERSIONS: usize = 20;

pub(super) fn routes() -> Vec<ApiRoute> {
    let number = |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let text = || json!({ "type": "string" });
    vec![
        ApiRoute::new("GET", "/api/history", "list_history", get(list_history))
            .summary("What changed, when, and by whom, oldest first")
            .requires(Permission::Read)
            .query_param("source", text(), "Only what concerns one source, removed ones included")
            .query_param("tool", text(), "Only what touches one tool, by its own or its full name")
            .query_param("after", number(0, i64::MAX as u64), "Those that follow this record; without it, the newest")
            .query_param("since", text(), "Only what is not older: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`")
            .query_param("limit", number(1, MAX_RECORDS), "At most so many; 100 unless told")
            .json_response(200, "History", "Records; `next_after` is the next `after` while there may be more")
            .error_responses(&[400, 404, 503]),
        ApiRoute::new("GET", "/api/tools/{name}/history", "get_tool_history", get(list_versions))
            .summary("Every version of one tool, newest first, with its definition before and after")
            .requires(Permission::Read)
            .tool_param()
            .query_param("limit", number(1, MAX_VERSIONS), "At most so many; 20 unless told")
            .json_response(200, "Versions", "What became of it, step by step")
            .error_responses(&[400, 404, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let time = || json!({ "type": "string", "format": "date-time" });
    let definition = || json!({ "type": ["object", "null"] });
    let record = object_schema(&[
        ("seq", number()),
        ("at", time()),
        ("actor", text()),
        ("type", text()),
        ("source", nullable(text())),
        ("tool", nullable(text())),
        ("data", json!({ "type": "object" })),
        ("text", json!({ "type": "string", "description": "What happened, in one line" })),
    ]);
    let classes = ChangeClass::ALL.map(ChangeClass::as_str);
    let version = object_schema(&[
        ("seq", number()),
        ("at", time()),
        ("actor", text()),
        ("source", text()),
        ("what", string_enum(&["added", "changed", "removed"])),
        ("class", nullable(schema_ref("Class"))),
        ("notes", string_array()),
        ("fields", string_array()),
        ("text", text()),
        ("before", definition()),
        ("after", definition()),
    ]);
    let past = object_schema(&[
        ("id", text()),
        ("name", text()),
        ("source", text()),
        ("original_name", text()),
        ("title", nullable(text())),
        ("description", text()),
        ("input_schema", json!({ "type": "object" })),
        ("output_schema", definition()),
        ("annotations", definition()),
        ("fingerprint", text()),
        ("at", time()),
        ("updated_at", time()),
        ("definition", json!({ "type": "object" })),
    ]);
    let several =
        |name: &str, item: &str| object_schema(&[(name, json!({ "type": "array", "items": schema_ref(item) }))]);
    let next =
        json!({ "type": "integer", "minimum": 0, "description": "What to go on after; nothing when that was all" });
    let records = json!({ "type": "array", "items": schema_ref("Record") });
    let history = object_schema(&[("records", records), ("next_after", nullable(next))]);
    vec![
        ("Class", string_enum(&classes)),
        ("Record", record),
        ("History", history),
        ("Version", version),
        ("Versions", several("versions", "Version")),
        ("PastTool", past),
    ]
}

async fn list_history(State(app): State<AppState>, params: QueryParams) -> Result<Response, ApiError> {
    let registry = &app.registry;
    let wanted = HistoryQuery {
        after: params.number("after", 0..=i64::MAX as u64)?,
        source: params.text("source").map(|name| find_past_source(&app, name)).transpose()?,
        tool: params.text("tool").map(str::to_owned),
        since: params.timestamp("since", registry.now())?,
        limit: Some(params.number("limit", 1..=MAX_RECORDS)?.map_or(DEFAULT_RECORDS, |limit| limit as usize)),
    };
    Ok(response::json_response(StatusCode::OK, &registry.history_page(&wanted).await?)?)
}

/// A source that there is, or was.
fn find_past_source(app: &AppState, name: &str) -> Result<SourceId, Error> {
    let inventory = app.registry.inventory();
    let id = SourceId::from_name(name).ok().filter(|id| inventory.all_source_ids().any(|known| known == id));
    id.ok_or_else(|| app.registry.unknown_source_error(&sanitize_truncated(name, 80)))
}

async fn list_versions(
    State(app): State<AppState>,
    PathParam(name): PathParam,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let limit = params.number("limit", 1..=MAX_VERSIONS)?.map_or(DEFAULT_VERSIONS, |limit| limit as usize);
    let versions = app.registry.tool_history(&name, limit).await?;
    #[derive(serde::Serialize)]
    struct ToolVersions {
        versions: Vec<toolcrib::registry::ToolVersion>,
    }
    Ok(response::json_response(StatusCode::OK, &ToolVersions { versions })?)
}
