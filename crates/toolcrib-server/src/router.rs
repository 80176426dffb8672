//! The way in over HTTP: who may knock, how much they may bring, and where it goes.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use toolcrib::Code;
use toolcrib::core::config::ExposeMode;
use toolcrib::core::text::sanitize_truncated;
use toolcrib_mcp::server::SessionOwner;

use crate::auth::{Permission, Principal, accepts_html, authorize};
use crate::middleware::RouterService;
use crate::rest::{ApiError, error_response, read_body, stopping_error};
use crate::state::AppState;
use crate::{auth, console, rest};

/// Every route; the door is before them.
pub(crate) fn build_router(house: &AppState) -> RouterService {
    let admitted = |needs| from_fn_with_state((house.clone(), needs), authorize);
    let routes = Router::new()
        .merge(rest::router(house))
        .merge(console::router(house))
        .route("/mcp", any(handle_mcp).layer(admitted(Permission::Use)))
        .route("/mcp/{group}", any(group_not_found).layer(admitted(Permission::Use)))
        .merge(auth::router(house))
        .fallback(not_found)
        .method_not_allowed_fallback(|| async {
            error_response(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "this address takes no such method")
        })
        .with_state(house.clone());
    RouterService::new(routes)
}

async fn handle_mcp(State(house): State<AppState>, request: Request) -> Response {
    if let Err(refused) = validate_mcp_query(request.uri().query().unwrap_or_default()) {
        return *refused;
    }
    let (mut parts, body) = request.into_parts();
    // A session is its opener's alone: to know its id is not to be them.
    let owner = parts.extensions.get::<Principal>().map(|visitor| SessionOwner(visitor.identity.clone()));
    if let Some(owner) = owner {
        parts.extensions.insert(owner);
    }
    match house.stopping.run_until_cancelled(read_body(&parts.headers, body)).await {
        Some(Ok(bytes)) => house.endpoint.handle(axum::http::Request::from_parts(parts, bytes)).await.map(Body::new),
        Some(Err(refused)) => refused,
        None => ApiError(stopping_error()).into_response(),
    }
}

/// A person gets a page, a program the envelope.
async fn not_found(request: Request) -> Response {
    if accepts_html(request.headers()) && !request.uri().path().starts_with("/api/") {
        return console::not_found();
    }
    error_response(
        StatusCode::NOT_FOUND,
        Code::NotFound,
        "there is nothing here; `/api/openapi.json` says what there is",
    )
}

async fn group_not_found() -> Response {
    error_response(
        StatusCode::NOT_FOUND,
        Code::NotFound,
        "there are no groups in this version; the whole surface is at `/mcp`",
    )
}

/// What the address says about the surface must be something there is.
fn validate_mcp_query(query: &str) -> Result<(), Box<Response>> {
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let refused = match &*key {
            "mode" if ExposeMode::parse(&value).is_none() => {
                let message =
                    format!("no mode named `{}`; there are auto, search and full", sanitize_truncated(&value, 40));
                error_response(StatusCode::BAD_REQUEST, Code::BadRequest, &message)
            }
            "group" => error_response(StatusCode::NOT_FOUND, Code::NotFound, "there are no groups in this version"),
            _ => continue,
        };
        return Err(Box::new(refused));
    }
    Ok(())
}
