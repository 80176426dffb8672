//! The route table: merges the routers of REST, console and login, and connects `/mcp` to the MCP endpoint.
//!
//! ```text
//! /api/…, /healthz, /readyz, /metrics   rest
//! /, /sources, /tools, /activity, …     console
//! /login, /logout, /.well-known/…       auth
//! /mcp, /mcp/{group}                    the MCP endpoint, over Streamable HTTP
//! ```
//!
//! Each route carries its own authorization layer with the permission that it requires. Host, origin and cache are
//! checked before, in `middleware`.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use toolcrib::Code;
use toolcrib::config::ExposeMode;
use toolcrib::core::percent;
use toolcrib::core::principal::ViewNarrowing;
use toolcrib::core::text::sanitize_truncated;
use toolcrib_mcp::server::SessionOwner;

use crate::auth::{AuthenticatedClient, Permission, accepts_html, authorize};
use crate::mcp::EndpointNarrowing;
use crate::middleware::RouterService;
use crate::position::PositionReport;
use crate::rest::{ApiError, error_response, read_body, stopping_error};
use crate::state::AppState;
use crate::{auth, console, rest};

/// Maximum number of globs in `?tools=`. Each is compared with every tool.
const MAX_TOOL_GLOBS: usize = 100;

/// Builds the router with all routes. [`handle_request`](crate::middleware::handle_request) calls it for every request
/// that it cannot answer itself.
pub(crate) fn build_router(app: &AppState) -> RouterService {
    let authorized = |permission| from_fn_with_state((app.clone(), permission), authorize);
    let router = Router::new()
        .merge(rest::router(app))
        .merge(console::router(app))
        .route("/mcp", any(handle_mcp).layer(authorized(Permission::Use)))
        .route("/mcp/{group}", any(handle_mcp).layer(authorized(Permission::Use)))
        .merge(auth::router(app))
        .merge(auth::metadata_router())
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
    let (mut parts, body) = request.into_parts();
    // Before the body is read: a wrong URL is wrong whatever is sent to it.
    match parse_mcp_url(&parts.uri) {
        Ok(narrowing) => {
            if let Err(rejection) = check_group(&app, &parts, &narrowing) {
                return *rejection;
            }
            parts.extensions.insert(EndpointNarrowing(narrowing));
        }
        Err(rejection) => return *rejection,
    }
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
        Some(Ok(bytes)) => {
            let position = PositionReport::new();
            parts.extensions.insert(position.clone());
            let response = app.endpoint.handle(axum::http::Request::from_parts(parts, bytes)).await;
            position.apply(response.map(Body::new))
        }
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

/// Reads the path and query of an MCP URL: `/mcp/{group}` or `?group=`, and `?tools=` with globs. Rejects an unknown
/// `mode`: a silent fallback to another mode would give an agent a list that its configuration did not ask for. Other
/// parameters are ignored.
fn parse_mcp_url(uri: &Uri) -> Result<ViewNarrowing, Box<Response>> {
    let bad_request = |message: String| Box::new(error_response(StatusCode::BAD_REQUEST, Code::BadRequest, &message));
    let mut narrowing = ViewNarrowing::default();
    if let Some(group) = uri.path().strip_prefix("/mcp/") {
        narrowing.group = Some(percent::decode_lossy(group).into_owned());
    }
    for (key, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*key {
            "mode" if ExposeMode::parse(&value).is_none() => {
                let value = sanitize_truncated(&value, 40);
                return Err(bad_request(format!("no mode named `{value}`; there are auto, search and full")));
            }
            "group" if narrowing.group.as_ref().is_some_and(|group| *group != *value) => {
                return Err(bad_request("the URL names two groups; use `/mcp/GROUP` or `?group=GROUP`".to_owned()));
            }
            "group" => narrowing.group = Some(value.into_owned()),
            "tools" => {
                let globs = value.split(',').map(str::trim).filter(|glob| !glob.is_empty());
                narrowing.only.extend(globs.map(str::to_owned));
                if narrowing.only.is_empty() || narrowing.only.len() > MAX_TOOL_GLOBS {
                    let message = format!("`tools` has 1 to {MAX_TOOL_GLOBS} globs, separated by commas");
                    return Err(bad_request(message));
                }
            }
            _ => {}
        }
    }
    Ok(narrowing)
}

/// Rejects a group that does not exist or that the client may not see, with the same response.
fn check_group(app: &AppState, parts: &Parts, narrowing: &ViewNarrowing) -> Result<(), Box<Response>> {
    let Some(group) = &narrowing.group else { return Ok(()) };
    let client = parts.extensions.get::<AuthenticatedClient>();
    let scope = client.map(|client| app.registry.scope(&client.principal.narrowed(narrowing.clone())));
    if scope.is_some_and(|scope| scope.endpoint_group().is_some()) {
        return Ok(());
    }
    let message = format!("no group named `{}`; all tools are at `/mcp`", sanitize_truncated(group, 80));
    Err(Box::new(error_response(StatusCode::NOT_FOUND, Code::NotFound, &message)))
}
