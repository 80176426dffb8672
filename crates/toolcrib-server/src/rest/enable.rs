//! Enables and disables sources and tools, and invalidates tool lists.
//!
//! Enabling and disabling are idempotent: `changed` says whether the request made a difference. A disabled source or
//! tool stays in the catalogue with its history, and agents do not see it.

use serde_json::{Value, json};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Inventory, ToolState};
use toolcrib::registry::{EnableTarget, EnabledState, Precondition};

use super::declare::set_source_enabled;
use super::error::ApiResult;
use super::openapi_schema::{boolean, object_schema, string_array, text, with_optional};
use super::precondition::{IfMatch, concurrent_change_error};
use super::query::{PathParam, find_source_id};
use super::response::ok_json;
use super::route::ApiRoute;
use crate::auth::AuthorizedRequest;

/// Needs [`Permission::Manage`](crate::auth::Permission::Manage), the default of a route.
pub(super) fn routes() -> Vec<ApiRoute> {
    let source = |path, operation_id, state| {
        ApiRoute::post(path, operation_id, move |request, name, if_match| set_source(request, name, if_match, state))
            .source_param()
            .json_response(200, "Switched", "The new state")
            .precondition()
            .error_responses(&[400, 404, 409, 503])
    };
    let tool = |path, operation_id, state| {
        ApiRoute::post(path, operation_id, move |request, name, if_match| set_tool(request, name, if_match, state))
            .tool_param()
            .json_response(200, "Switched", "The new state")
            .precondition()
            .error_responses(&[400, 403, 404, 409, 503])
    };
    vec![
        source("/api/sources/{id}/enable", "enable_source", EnabledState::Enabled)
            .summary("Enable a source: agents see its tools"),
        source("/api/sources/{id}/disable", "disable_source", EnabledState::Disabled)
            .summary("Disable a source: its tools are hidden from agents, but stay in the catalogue"),
        ApiRoute::post("/api/sources/{id}/invalidate", "invalidate_source", invalidate_source)
            .summary(
                "Mark the tool list of a source as stale, so that its next use refreshes it; its tools stay listed",
            )
            .source_param()
            .json_response(200, "Invalidated", "Ids of the stale sources")
            .error_responses(&[400, 404, 503]),
        tool("/api/tools/{name}/enable", "enable_tool", EnabledState::Enabled).summary("Enable a tool"),
        tool("/api/tools/{name}/disable", "disable_tool", EnabledState::Disabled)
            .summary("Disable a tool: it is hidden from agents, but stays in the catalogue"),
    ]
}

/// `Switched` names either a source or a tool, hence both are optional.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let switched = object_schema(&[("enabled", boolean()), ("changed", boolean())]);
    vec![
        ("Switched", with_optional(switched, &[("source", text()), ("tool", text())])),
        ("Invalidated", object_schema(&[("invalidated", string_array())])),
    ]
}

/// Enables or disables a source.
async fn set_source(
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    if_match: IfMatch,
    state: EnabledState,
) -> ApiResult {
    let id = find_source_id(&request.app.registry, &request.client.principal, &name)?;
    ok_json(&set_source_enabled(&request.app, &request.client, &id, state, &if_match).await?)
}

/// Enables or disables a tool.
async fn set_tool(
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    if_match: IfMatch,
    state: EnabledState,
) -> ApiResult {
    let registry = &request.app.registry;
    let target = registry.sources().tool_target(&request.client.principal, &name)?;
    // Read before the tag is compared: what is written is decided on the same revision of the tool.
    let read_revision = ToolRevision::read(&registry.inventory(), &target);
    let what = format!("the tool `{name}`");
    if !if_match.is_empty() {
        // The tag of `GET /api/tools/{name}`.
        if_match.check_tool(&registry.tool_for(&request.client.principal, &name)?, &what)?;
    }
    let is_unchanged = |inventory: &Inventory| {
        let is_same = if_match.is_empty() || ToolRevision::read(inventory, &target) == read_revision;
        is_same.then_some(()).ok_or_else(|| concurrent_change_error(&what))
    };
    let sources = registry.sources().only_if(Precondition::new(&is_unchanged));
    ok_json(&sources.set_enabled(target.clone(), state, request.client.actor()).await?)
}

/// Revision of a tool in the journal: its switch, the list that it is in, and the declaration of its source.
#[derive(Debug, PartialEq, Eq)]
struct ToolRevision {
    tool: Option<ToolState>,
    manifest: Option<Fingerprint>,
    definition: Fingerprint,
}

impl ToolRevision {
    /// Returns the revision of a tool; `None` for one of an unknown source.
    fn read(inventory: &Inventory, target: &EnableTarget) -> Option<ToolRevision> {
        let EnableTarget::Tool(id, _) = target else { return None };
        let state = inventory.source(&id.source)?;
        let tool = state.tools.get(&id.name).copied();
        Some(ToolRevision { tool, manifest: state.manifest, definition: state.definition })
    }
}

/// `POST /api/sources/{id}/invalidate`. Makes the list stale without contacting the source; its next use does that.
async fn invalidate_source(request: AuthorizedRequest, PathParam(name): PathParam) -> ApiResult {
    let id = find_source_id(&request.app.registry, &request.client.principal, &name)?;
    request.app.registry.sources().invalidate(Some(&id)).await?;
    ok_json(&json!({ "invalidated": [id] }))
}
