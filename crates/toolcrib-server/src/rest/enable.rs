//! Enables and disables sources and tools, and invalidates tool lists.
//!
//! Enabling and disabling are idempotent: `changed` says whether the request made a difference. A disabled source or
//! tool stays in the catalogue with its history, and agents do not see it.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use toolcrib::registry::EnabledState;

use super::declare::set_source_enabled;
use super::error::ApiError;
use super::openapi_schema::{object_schema, string_array, with_optional};
use super::query::{PathParam, find_source_id};
use super::response;
use super::route::ApiRoute;
use crate::auth::AuthenticatedClient;
use crate::state::AppState;

/// Needs [`Permission::Manage`](crate::auth::Permission::Manage), the default of a route.
pub(super) fn routes() -> Vec<ApiRoute> {
    let source = |path, operation_id, handler| {
        ApiRoute::new("POST", path, operation_id, handler).source_param().json_response(
            200,
            "Switched",
            "The new state",
        )
    };
    let tool = |path, operation_id, handler| {
        ApiRoute::new("POST", path, operation_id, handler).tool_param().json_response(200, "Switched", "The new state")
    };
    vec![
        source("/api/sources/{id}/enable", "enable_source", post(enable_source))
            .summary("Enable a source: agents see its tools")
            .error_responses(&[400, 404, 409, 503]),
        source("/api/sources/{id}/disable", "disable_source", post(disable_source))
            .summary("Disable a source: its tools are hidden from agents, but stay in the catalogue")
            .error_responses(&[400, 404, 409, 503]),
        ApiRoute::new("POST", "/api/sources/{id}/invalidate", "invalidate_source", post(invalidate_source))
            .summary(
                "Mark the tool list of a source as stale, so that its next use refreshes it; its tools stay listed",
            )
            .source_param()
            .json_response(200, "Invalidated", "Ids of the stale sources")
            .error_responses(&[400, 404, 503]),
        tool("/api/tools/{name}/enable", "enable_tool", post(enable_tool))
            .summary("Enable a tool")
            .error_responses(&[400, 403, 404, 409, 503]),
        tool("/api/tools/{name}/disable", "disable_tool", post(disable_tool))
            .summary("Disable a tool: it is hidden from agents, but stays in the catalogue")
            .error_responses(&[400, 403, 404, 409, 503]),
    ]
}

/// `Switched` names either a source or a tool, hence both are optional.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let switched =
        object_schema(&[("enabled", json!({ "type": "boolean" })), ("changed", json!({ "type": "boolean" }))]);
    let target = [("source", json!({ "type": "string" })), ("tool", json!({ "type": "string" }))];
    vec![
        ("Switched", with_optional(switched, &target)),
        ("Invalidated", object_schema(&[("invalidated", string_array())])),
    ]
}

/// `POST /api/sources/{id}/enable`.
async fn enable_source(
    app: State<AppState>,
    client: Extension<AuthenticatedClient>,
    name: PathParam,
) -> Result<Response, ApiError> {
    handle_source(app, client, name, EnabledState::Enabled).await
}

/// `POST /api/sources/{id}/disable`.
async fn disable_source(
    app: State<AppState>,
    client: Extension<AuthenticatedClient>,
    name: PathParam,
) -> Result<Response, ApiError> {
    handle_source(app, client, name, EnabledState::Disabled).await
}

/// `POST /api/tools/{name}/enable`.
async fn enable_tool(
    app: State<AppState>,
    client: Extension<AuthenticatedClient>,
    name: PathParam,
) -> Result<Response, ApiError> {
    handle_tool(app, client, name, EnabledState::Enabled).await
}

/// `POST /api/tools/{name}/disable`.
async fn disable_tool(
    app: State<AppState>,
    client: Extension<AuthenticatedClient>,
    name: PathParam,
) -> Result<Response, ApiError> {
    handle_tool(app, client, name, EnabledState::Disabled).await
}

/// Enables or disables a source.
async fn handle_source(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    PathParam(name): PathParam,
    state: EnabledState,
) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let outcome = set_source_enabled(&app, &client, &id, state).await?;
    Ok(response::json_response(StatusCode::OK, &outcome)?)
}

/// Enables or disables a tool.
async fn handle_tool(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    PathParam(name): PathParam,
    state: EnabledState,
) -> Result<Response, ApiError> {
    let target = app.registry.sources().tool_target(&name)?;
    let outcome = app.registry.sources().set_enabled(target, state, client.actor()).await?;
    Ok(response::json_response(StatusCode::OK, &outcome)?)
}

/// `POST /api/sources/{id}/invalidate`. Makes the list stale without contacting the source; its next use does that.
async fn invalidate_source(State(app): State<AppState>, PathParam(name): PathParam) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    app.registry.sources().invalidate(Some(&id)).await?;
    Ok(response::json_response(StatusCode::OK, &json!({ "invalidated": [id] }))?)
}
