//! The route table: merges the routers of REST, console and login, and connects `/mcp` to the MCP endpoint.
//!
//! ```text
//! /api/…, /healthz, /readyz, /metrics   rest
//! /, /sources, /tools, /activity, …     console
//! /login, /logout                       auth
//! /mcp                                  the MCP endpoint, over Streamable HTTP
//! ```
//!
//! Each route carries its own authorization layer with the permission that it requires. Host, origin and cache are
//! checked before, in `middleware`.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use toolcrib::Code;
use toolcrib::config::ExposeMode;
use toolcrib::core::text::sanitize_truncated;
use toolcrib_mcp::server::SessionOwner;

use crate::auth::{AuthenticatedClient, Permission, accepts_html, authorize};
use crate::middleware::RouterService;
use crate::rest::{ApiError, error_response, read_body, stopping_error};
use crate::state::AppState;
use crate::{auth, console, rest};

/// Builds the router with all routes. [`handle_request`](crate::middleware::handle_request) calls it for every request
/// that it cannot answer itself.
pub(crate) fn build_router(app: &AppState) -> RouterService {
    let authorized = |permission| from_fn_with_state((app.clone(), permission), authorize);
    let router = Router::new()
        .merge(rest::router(app))
        .merge(console::router(app))
        .route("/mcp", any(handle_mcp).layer(authorized(Permission::Use)))
        .route("/mcp/{group}", any(group_not_found).layer(authorized(Permission::Use)))
        .merge(auth::router(app))
        // Without these two, axum would answer with an empty body, which is no error envelope.
        .fallback(not_found)
        .method_not_allowed_fallback(|| async {
            error_response(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "method not allowed for this path")
        })
        .with_state(app.clone());
    RouterService::new(router)
}

/// Passes a request to the MCP endpoint, with its whole body and the identity of its principal.
async fn handle_mcp(State(app): State<AppState>, request: Request) -> Response {
    // Before the body is read: a wrong URL is wrong whatever is sent to it.
    if let Err(rejection) = validate_mcp_query(request.uri().query().unwrap_or_default()) {
        return *rejection;
    }
    let (mut parts, body) = request.into_parts();
    // The endpoint compares it with the principal that opened the session, so that a leaked session id is useless.
    let owner = parts
        .extensions
        .get::<AuthenticatedClient>()
        .map(|client| SessionOwner(client.principal.identity().owner_key()));
    if let Some(owner) = owner {
        parts.extensions.insert(owner);
    }
    // Reading the body is the only part that must be interrupted here. Once the endpoint has the request, it answers it
    // itself when the server stops, with a JSON-RPC response.
    match app.stopping.run_until_cancelled(read_body(&parts.headers, body)).await {
        Some(Ok(bytes)) => app.endpoint.handle(axum::http::Request::from_parts(parts, bytes)).await.map(Body::new),
        Some(Err(rejection)) => rejection,
        None => ApiError(stopping_error()).into_response(),
    }
}

/// Fallback for unknown paths: an HTML page for browsers, the error envelope for programs. Paths below `/api/` always
/// get the envelope: a program may send an `Accept` header like a browser's.
async fn not_found(request: Request) -> Response {
    if accepts_html(request.headers()) && !request.uri().path().starts_with("/api/") {
        return console::not_found();
    }
    error_response(StatusCode::NOT_FOUND, Code::NotFound, "no such route; `/api/openapi.json` lists the REST API")
}

/// `/mcp/{group}` is reserved for groups of tools, which this version does not have.
async fn group_not_found() -> Response {
    error_response(
        StatusCode::NOT_FOUND,
        Code::NotFound,
        "there are no groups in this version; all tools are served at `/mcp`",
    )
}

/// Rejects an unknown `mode` and any `group` in the query of `/mcp`. Other parameters are ignored. A silent fallback to
/// another mode would give an agent a list that its configuration did not ask for.
fn validate_mcp_query(query: &str) -> Result<(), Box<Response>> {
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let rejection = match &*key {
            "mode" if ExposeMode::parse(&value).is_none() => {
                let message =
                    format!("no mode named `{}`; there are auto, search and full", sanitize_truncated(&value, 40));
                error_response(StatusCode::BAD_REQUEST, Code::BadRequest, &message)
            }
            "group" => error_response(StatusCode::NOT_FOUND, Code::NotFound, "there are no groups in this version"),
            _ => continue,
        };
        return Err(Box::new(rejection));
    }
    Ok(())
}
