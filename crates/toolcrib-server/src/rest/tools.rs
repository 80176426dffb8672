//! Tools, a page at a time or one in full, in our own form or a provider's. Reads contact nobody.

mod page;
mod removed;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum, with_optional};
use super::query::{PathParam, QueryParams};
use super::response::{TaggedResponse, to_json_bytes};
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

const FORMAT_NAMES: [&str; 6] = ["json", "mcp", "anthropic", "openai", "openai-strict", "gemini"];

pub(super) fn routes() -> Vec<ApiRoute> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": page::MAX_TOOLS_PER_PAGE });
    vec![
        ApiRoute::new("GET", "/api/tools", "list_tools", get(list_tools))
            .summary("Tools in the order of their names, a page at a time; contacts nobody")
            .requires(Permission::Read)
            .query_param("source", json!({ "type": "string" }), "Only those of one source")
            .query_param(
                "format",
                string_enum(&FORMAT_NAMES),
                "`json` is our own; another is the array that a provider takes",
            )
            .query_param(
                "state",
                string_enum(&page::STATES),
                "Only those in this state; `deprecated` ones are gone from their source",
            )
            .query_param("limit", limit, "How many; 100 unless told, and all in a provider's format")
            .query_param("cursor", json!({ "type": "string" }), "`next_cursor` of the page before")
            .query_param("group", json!({ "type": "string" }), "There are no groups in this version")
            .json_response_any(200, &["Tools", "Provided"], "A page; a provider's array names the next one in `Link`")
            .conditional()
            .error_responses(&[400, 404]),
        ApiRoute::new("GET", "/api/tools/{name}", "get_tool", get(get_tool))
            .summary("One tool in full: schemas, how it is carried out, how it fares")
            .requires(Permission::Read)
            .tool_param()
            .query_param(
                "at",
                json!({ "type": "string" }),
                "As it was then: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`",
            )
            .json_response_any(200, &["ToolDetail", "PastTool"], "What is known of it, or what it was")
            .conditional()
            .error_responses(&[400, 403, 404, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "string", "format": "date-time" });
    let anything = |kinds: &[&str]| json!({ "type": kinds });
    let tool = object_schema(&[
        ("id", json!({ "type": "string", "description": "`source:tool`" })),
        ("name", json!({ "type": "string", "description": "As agents know it: `source__tool`" })),
        ("source", text()),
        ("original_name", text()),
        ("kind", text()),
        ("title", nullable(text())),
        ("description", nullable(text())),
        ("input_schema", anything(&["object", "null"])),
        ("annotations", anything(&["object", "null"])),
        ("tags", string_array()),
        ("policy", string_enum(&["allow", "ask", "deny", "hide"])),
        ("enabled", json!({ "type": "boolean" })),
        ("state", string_enum(&["active", "disabled", "deprecated", "held"])),
        ("fingerprint", nullable(text())),
        ("created_at", time()),
        ("updated_at", time()),
    ]);
    let tools = object_schema(&[
        ("tools", json!({ "type": "array", "items": schema_ref("Tool") })),
        ("inventory_hash", text()),
        ("next_cursor", nullable(text())),
    ]);
    let execution = object_schema(&[
        ("mode", text()),
        ("method", nullable(text())),
        ("path", nullable(text())),
        ("url_template", nullable(text())),
        ("security", json!({ "type": "array", "items": { "type": "object", "additionalProperties": string_array() } })),
    ]);
    let more = object_schema(&[
        ("output_schema", anything(&["object", "boolean", "null"])),
        ("execution", execution),
        ("notes", string_array()),
        ("calls", json!({ "type": "integer", "minimum": 0 })),
        ("errors", json!({ "type": "integer", "minimum": 0 })),
        ("last_called", nullable(time())),
        ("last_error", nullable(schema_ref("Failure"))),
    ]);
    let more = with_optional(more, &[("deprecated", json!({ "type": "boolean" }))]);
    let provided = json!({ "type": "array", "items": { "type": "object" } });
    vec![
        ("Tool", tool),
        ("Tools", tools),
        ("ToolDetail", json!({ "allOf": [schema_ref("Tool"), more] })),
        ("Provided", provided),
    ]
}

async fn list_tools(State(app): State<AppState>, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let (registry, query) = (app.registry.clone(), uri.query().unwrap_or_default().to_owned());
    let make =
        move |view: &_| page::ToolListQuery::parse(&registry, &QueryParams::parse(&query)?)?.render(&registry, view);
    app.respond_cached(&uri, &headers, make).await
}

/// Its counters change with every call, so that it is written anew each time.
async fn get_tool(
    State(app): State<AppState>,
    headers: HeaderMap,
    PathParam(name): PathParam,
    params: QueryParams,
) -> Result<Response, ApiError> {
    if let Some(at) = params.timestamp("at", app.registry.now())? {
        let past = app.registry.tool_at(&name, at).await?;
        return Ok(TaggedResponse::from_body(to_json_bytes(&past)?).to_response(&headers));
    }
    let detail = app.registry.tool_detail(&name)?.to_json()?;
    Ok(TaggedResponse::from_body(String::from(Box::<str>::from(detail)).into()).to_response(&headers))
}
