//! The journal and the versions of one tool. Recent records are in memory; older ones, and definitions that are not
//! current any more, are read from the store.
//!
//! Records are read forward by position, so that a client can follow the journal with pages:
//! ```text
//! GET /api/history?after=0&limit=1000     → records 1 to 1000, "next_after": 1000
//! GET /api/history?after=1000&limit=1000  → …, "next_after": null at the end
//! ```

use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::cloud_event::{CLOUD_EVENT_BATCH_TYPE, CloudEvent};
use toolcrib::core::delta::ChangeClass;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::{HistoryPage, HistoryQuery};
use toolcrib::{Error, Principal, Result, SourceId};

use super::error::ApiError;
use super::events::EventFormat;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum};
use super::query::{PathParam, QueryParams};
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthenticatedClient, Permission};
use crate::state::AppState;

/// Upper bound of `limit` for records. A client reads more with `after`.
const MAX_RECORDS: u64 = 1_000;
/// Records without a `limit`.
const DEFAULT_RECORDS: usize = 100;
/// Upper bound of `limit` for versions: each carries two definitions, which may be large and are read from the store.
const MAX_VERSIONS: u64 = 100;
/// Versions without a `limit`.
const DEFAULT_VERSIONS: usize = 20;

/// Both routes may answer 503, because old records and definitions are in the store.
pub(super) fn routes() -> Vec<ApiRoute> {
    let number = |min: u64, max: u64| json!({ "type": "integer", "minimum": min, "maximum": max });
    let text = || json!({ "type": "string" });
    vec![
        ApiRoute::new("GET", "/api/history", "list_history", get(list_history))
            .summary("Journal records: what changed, when, and by whom; oldest first")
            .requires(Permission::Read)
            .query_param("source", text(), "Only records about this source, which may be a removed one")
            .query_param("tool", text(), "Only records about this tool, by its own or its full name")
            .query_param(
                "after",
                number(0, i64::MAX as u64),
                "Records after this sequence number; default: the newest records",
            )
            .query_param("since", text(), "Only records since then: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`")
            .query_param("limit", number(1, MAX_RECORDS), "Maximum number of records; default 100")
            .query_param(
                "format",
                string_enum(&EventFormat::NAMES),
                "`cloudevents`: a JSON array of CloudEvents 1.0; the header `Link` has the next page",
            )
            .json_response(200, "History", "Records; `next_after` is the `after` of the next page, if there may be one")
            .response_content(
                200,
                CLOUD_EVENT_BATCH_TYPE,
                json!({ "type": "array", "items": schema_ref("CloudEvent") }),
            )
            .error_responses(&[400, 403, 404, 503]),
        ApiRoute::new("GET", "/api/tools/{name}/history", "get_tool_history", get(list_versions))
            .summary("Every version of one tool, newest first, with its definition before and after")
            .requires(Permission::Read)
            .tool_param()
            .query_param("limit", number(1, MAX_VERSIONS), "Maximum number of versions; default 20")
            .json_response(200, "Versions", "Changes of the tool")
            .error_responses(&[400, 403, 404, 503]),
    ]
}

/// `data` of a record depends on its `type`; `text` says the same in one line for people.
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
        ("text", json!({ "type": "string", "description": "The change in one line" })),
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
    let past_tool = object_schema(&[
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
    let next_after =
        json!({ "type": "integer", "minimum": 0, "description": "`after` of the next page; null at the end" });
    let records = json!({ "type": "array", "items": schema_ref("Record") });
    let history = object_schema(&[("records", records), ("next_after", nullable(next_after))]);
    let versions = object_schema(&[("versions", json!({ "type": "array", "items": schema_ref("Version") }))]);
    vec![
        ("Class", string_enum(&classes)),
        ("Record", record),
        ("History", history),
        ("Version", version),
        ("Versions", versions),
        ("PastTool", past_tool),
    ]
}

/// `GET /api/history`.
async fn list_history(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    uri: Uri,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let format = EventFormat::from_params(&params)?;
    let registry = &app.registry;
    let query = HistoryQuery {
        after: params.number("after", 0..=i64::MAX as u64)?,
        source: params.text("source").map(|name| find_past_source(&app, &client.principal, name)).transpose()?,
        tool: params.text("tool").map(str::to_owned),
        since: params.timestamp("since", registry.now())?,
        limit: Some(params.number("limit", 1..=MAX_RECORDS)?.map_or(DEFAULT_RECORDS, |limit| limit as usize)),
    };
    let page = registry.history_for(&client.principal).page(&query).await?;
    match format {
        EventFormat::Json => Ok(response::json_response(StatusCode::OK, &page)?),
        EventFormat::CloudEvents => cloud_response(&registry.history().store_uri(), &uri, &page),
    }
}

/// Builds a page of CloudEvents. A batch has no place for the next page, so the header `Link` has it.
fn cloud_response(store: &str, uri: &Uri, page: &HistoryPage) -> Result<Response, ApiError> {
    let events: Vec<_> = page.records.iter().map(|record| CloudEvent::from_record(store, record)).collect();
    let mut response = response::json_response(StatusCode::OK, &events)?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CLOUD_EVENT_BATCH_TYPE));
    if let Some(next) = page.next_after {
        let others =
            url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).filter(|(name, _)| name != "after");
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(others)
            .append_pair("after", &next.to_string())
            .finish();
        if let Ok(link) = HeaderValue::from_str(&format!("<{}?{query}>; rel=\"next\"", uri.path())) {
            headers.insert(header::LINK, link);
        }
    }
    Ok(response)
}

/// Returns the id of a source that exists or existed. Unlike [`find_source_id`](super::find_source_id) it also finds
/// removed sources, whose history stays.
fn find_past_source(app: &AppState, principal: &Principal, name: &str) -> Result<SourceId, Error> {
    let inventory = app.registry.inventory();
    let visibility = app.registry.visibility(principal);
    let is_known = |id: &SourceId| inventory.all_source_ids().any(|known| known == id) && visibility.shows_source(id);
    let id = SourceId::from_name(name).ok().filter(is_known);
    id.ok_or_else(|| visibility.unknown_source_error(&sanitize_truncated(name, 80)))
}

/// `GET /api/tools/{name}/history`.
async fn list_versions(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    PathParam(name): PathParam,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let limit = params.number("limit", 1..=MAX_VERSIONS)?.map_or(DEFAULT_VERSIONS, |limit| limit as usize);
    let versions = app.registry.history_for(&client.principal).tool_versions(&name, limit).await?;
    #[derive(serde::Serialize)]
    struct ToolVersions {
        versions: Vec<toolcrib::registry::ToolVersion>,
    }
    Ok(response::json_response(StatusCode::OK, &ToolVersions { versions })?)
}
