//! Reads tools: pages of the list, or one tool with all details; in Toolcrib's own format or a provider's. Makes no
//! network requests and starts no process.
//!
//! ```json
//! { "tools": [{ "id": "git:push", "name": "git__push", … }], "inventory_hash": "…", "next_cursor": null }
//! ```
//!
//! Provider formats are the bare array that the API of the provider expects.

mod page;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::catalog::filter::{StateFilter, ToolFilter, ToolOrder};
use toolcrib::registry::FoundTool;

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_array, string_enum, with_optional};
use super::precondition::tool_etag;
use super::query::{PathParam, QueryParams};
use super::response::TaggedResponse;
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthenticatedClient, Permission};
use crate::position::with_content_position;
use crate::state::AppState;

/// Values of the parameter `format`.
const FORMAT_NAMES: [&str; 6] = ["json", "mcp", "anthropic", "openai", "openai-strict", "gemini"];

/// Both routes support conditional requests.
pub(super) fn routes() -> Vec<ApiRoute> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": page::MAX_TOOLS_PER_PAGE });
    vec![
        ApiRoute::new("GET", "/api/tools", "list_tools", get(list_tools))
            .summary("A page of all tools; makes no network requests and starts no process")
            .requires(Permission::Read)
            .query_param("source", json!({ "type": "string" }), "Only tools of this source")
            .query_param(
                "format",
                string_enum(&FORMAT_NAMES),
                "`json` is Toolcrib's own format; the others are the array that a provider expects",
            )
            .query_param("kind", string_enum(&ToolFilter::KINDS), "Only tools of sources of this kind")
            .query_param(
                "tag",
                json!({ "type": "string" }),
                "Only tools with this tag, of their own or of their source",
            )
            .query_param(
                "state",
                string_enum(&StateFilter::ALL.map(StateFilter::as_str)),
                "Only tools in this state; `deprecated` tools are not offered by their source any more",
            )
            .query_param(
                "order",
                string_enum(&ToolOrder::ALL.map(ToolOrder::as_str)),
                "`name`, or most `tokens` or `calls` first; equal ones in name order",
            )
            .query_param(
                "names",
                json!({ "type": "string" }),
                "Only tools whose name matches one of these globs, separated by commas; may be repeated",
            )
            .query_param("limit", limit, "Tools per page; default 100, or all in a provider's format")
            .query_param("cursor", json!({ "type": "string" }), "`next_cursor` of the previous page")
            .query_param("group", json!({ "type": "string" }), "Only tools of this group")
            .json_response_any(
                200,
                &["Tools", "Provided"],
                "A page; in a provider's format the header `Link` has the next one",
            )
            .conditional()
            .error_responses(&[400, 404]),
        ApiRoute::new("GET", "/api/tools/{name}", "get_tool", get(get_tool))
            .summary("One tool with its schemas, execution and call counters")
            .requires(Permission::Read)
            .tool_param()
            .query_param(
                "at",
                json!({ "type": "string" }),
                "The tool at this time: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`",
            )
            .json_response_any(200, &["ToolDetail", "PastTool"], "The tool now, or at the given time")
            .conditional()
            .error_responses(&[400, 403, 404, 503]),
    ]
}

/// `ToolDetail` has all fields of `Tool`. Fields are nullable where a deprecated tool whose definition is lost has no
/// value.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "string", "format": "date-time" });
    let types = |names: &[&str]| json!({ "type": names });
    let tool = object_schema(&[
        ("id", json!({ "type": "string", "description": "`source:tool`" })),
        ("name", json!({ "type": "string", "description": "Name for agents: `source__tool`" })),
        ("source", text()),
        ("original_name", text()),
        ("kind", text()),
        ("title", nullable(text())),
        ("description", nullable(text())),
        ("input_schema", types(&["object", "null"])),
        ("annotations", types(&["object", "null"])),
        ("tags", string_array()),
        ("policy", string_enum(&["allow", "ask", "deny", "hide"])),
        ("enabled", json!({ "type": "boolean" })),
        ("state", string_enum(&StateFilter::ALL.map(StateFilter::as_str))),
        ("held", types(&["object", "null"])),
        (
            "tokens",
            json!({
                "type": ["integer", "null"], "minimum": 0,
                "description": "Tokens of the definition; null for a list that an older version recorded",
            }),
        ),
        ("fingerprint", nullable(text())),
        ("created_at", time()),
        ("updated_at", time()),
    ]);
    let tool = with_optional(tool, &[("removed_at", time())]);
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
    let body = object_schema(&[
        ("template", text()),
        ("content_type", text()),
        ("encoding", text()),
        ("required", json!({ "type": "boolean" })),
    ]);
    let body = with_optional(body, &[("alternatives", string_array())]);
    let text_map = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let execution = with_optional(
        execution,
        &[
            ("task_support", string_enum(&["forbidden", "optional", "required"])),
            ("headers", text_map()),
            ("query", text_map()),
            ("body", nullable(body)),
            ("auth_error", nullable(text())),
        ],
    );
    let details = object_schema(&[
        ("output_schema", types(&["object", "boolean", "null"])),
        ("execution", execution),
        ("notes", string_array()),
        ("calls", json!({ "type": "integer", "minimum": 0 })),
        ("errors", json!({ "type": "integer", "minimum": 0 })),
        ("last_called", nullable(time())),
        ("last_error", nullable(schema_ref("Failure"))),
    ]);
    let details = with_optional(details, &[("deprecated", json!({ "type": "boolean" }))]);
    let provider_array = json!({ "type": "array", "items": { "type": "object" } });
    vec![
        ("Tool", tool),
        ("Tools", tools),
        ("ToolDetail", json!({ "allOf": [schema_ref("Tool"), details] })),
        ("Provided", provider_array),
    ]
}

/// `GET /api/tools`.
async fn list_tools(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let params = QueryParams::parse(uri.query().unwrap_or_default())?;
    let query = page::ToolListQuery::parse(&app.registry, &client.principal, &params)?;
    let principal = params.narrow(&app.registry, &client.principal)?;
    if query.lists_removed() {
        // Removed tools are in the inventory and not in the view; their definitions are in the store.
        let (page, position) = query.render_removed(&app.registry, &principal).await?;
        return Ok(with_content_position(page.to_response(&headers), position));
    }
    app.registry.statistics().count_tokens().await;
    let calls = query.count_calls(&app.registry);
    let render = move |view: &_| query.render(view, &calls, params.list_scope(view, query.source()));
    app.respond_cached(&principal, &uri, &headers, render).await
}

/// `GET /api/tools/{name}`. Not cached, because the counters change with every call.
async fn get_tool(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    headers: HeaderMap,
    PathParam(name): PathParam,
    params: QueryParams,
) -> Result<Response, ApiError> {
    if let Some(at) = params.timestamp("at", app.registry.now())? {
        let json = app.registry.history_for(&client.principal).tool_at(&name, at).await?.to_json()?;
        let body = String::from(Box::<str>::from(json));
        return Ok(TaggedResponse::from_body(body.into()).to_response(&headers));
    }
    app.registry.statistics().count_tokens().await;
    let found = app.registry.history().find_tool(&client.principal, &name).await?;
    let body = String::from(Box::<str>::from(found.to_json()?));
    let mut response = TaggedResponse::from_body(body.into());
    if let FoundTool::Offered(tool) = &found {
        response.etag = tool_etag(tool, &response.body);
    }
    Ok(response.to_response(&headers))
}
