//! Sources and tools, enabled and disabled; and lists that are to be read again.

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
use crate::auth::Principal;
use crate::state::AppState;

pub(super) fn routes() -> Vec<ApiRoute> {
    let source = |path, operation, handler| {
        ApiRoute::new("POST", path, operation, handler).source_param().json_response(200, "Switched", "What it is now")
    };
    let tool = |path, operation, handler| {
        ApiRoute::new("POST", path, operation, handler).tool_param().json_response(200, "Switched", "What it is now")
    };
    vec![
        source("/api/sources/{id}/enable", "enable_source", post(enable_source))
            .summary("Enable a source: agents see its tools")
            .error_responses(&[400, 404, 409, 503]),
        source("/api/sources/{id}/disable", "disable_source", post(disable_source))
            .summary("Disable a source: agents see its tools no longer, and they stay known")
            .error_responses(&[400, 404, 409, 503]),
        ApiRoute::new("POST", "/api/sources/{id}/invalidate", "invalidate_source", post(invalidate_source))
            .summary("Have a source discovered again at the next need; its tools stay listed meanwhile")
            .source_param()
            .json_response(200, "Invalidated", "Which are due now")
            .error_responses(&[400, 404, 503]),
        tool("/api/tools/{name}/enable", "enable_tool", post(enable_tool))
            .summary("Enable a tool")
            .error_responses(&[400, 403, 404, 409, 503]),
        tool("/api/tools/{name}/disable", "disable_tool", post(disable_tool))
            .summary("Disable a tool: agents see it no longer, and it stays known")
            .error_responses(&[400, 403, 404, 409, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let switched =
        object_schema(&[("enabled", json!({ "type": "boolean" })), ("changed", json!({ "type": "boolean" }))]);
    let named = [("source", json!({ "type": "string" })), ("tool", json!({ "type": "string" }))];
    vec![
        ("Switched", with_optional(switched, &named)),
        ("Invalidated", object_schema(&[("invalidated", string_array())])),
    ]
}

async fn enable_source(
    app: State<AppState>,
    principal: Extension<Principal>,
    named: PathParam,
) -> Result<Response, ApiError> {
    handle_source(app, principal, named, EnabledState::Enabled).await
}

async fn disable_source(
    app: State<AppState>,
    principal: Extension<Principal>,
    named: PathParam,
) -> Result<Response, ApiError> {
    handle_source(app, principal, named, EnabledState::Disabled).await
}

async fn enable_tool(
    app: State<AppState>,
    principal: Extension<Principal>,
    named: PathParam,
) -> Result<Response, ApiError> {
    handle_tool(app, principal, named, EnabledState::Enabled).await
}

async fn disable_tool(
    app: State<AppState>,
    principal: Extension<Principal>,
    named: PathParam,
) -> Result<Response, ApiError> {
    handle_tool(app, principal, named, EnabledState::Disabled).await
}

async fn handle_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(name): PathParam,
    switch: EnabledState,
) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let switched = set_source_enabled(&app, &principal, &id, switch).await?;
    Ok(response::json_response(StatusCode::OK, &switched)?)
}

async fn handle_tool(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(name): PathParam,
    switch: EnabledState,
) -> Result<Response, ApiError> {
    let target = app.registry.tool_target(&name)?;
    let switched = app.registry.set_enabled(target, switch, principal.actor()).await?;
    Ok(response::json_response(StatusCode::OK, &switched)?)
}

async fn invalidate_source(State(app): State<AppState>, PathParam(name): PathParam) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    app.registry.invalidate(Some(&id)).await?;
    Ok(response::json_response(StatusCode::OK, &json!({ "invalidated": [id] }))?)
}
