//! The way in over HTTP: who may knock, how much they may bring, and where it goes.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use toolcrib::Code;
use toolcrib::core::config::Mode;
use toolcrib::core::text::shown_short;
use toolcrib_mcp::server::SessionOwner;

use crate::access::{Needs, Visitor, admit, takes_pages};
use crate::api::{Fault, refusal, stopping, whole};
use crate::door::Routes;
use crate::house::House;
use crate::{access, api, console};

/// Every route; the door is before them.
pub(crate) fn routes(house: &House) -> Routes {
    let admitted = |needs| from_fn_with_state((house.clone(), needs), admit);
    let routes = Router::new()
        .merge(api::router(house))
        .merge(console::router(house))
        .route("/mcp", any(mcp).layer(admitted(Needs::Using)))
        .route("/mcp/{group}", any(group).layer(admitted(Needs::Using)))
        .merge(access::router(house))
        .fallback(nothing_here)
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "this address takes no such method")
        })
        .with_state(house.clone());
    Routes::new(routes)
}

async fn mcp(State(house): State<House>, request: Request) -> Response {
    if let Err(refused) = surface_asked_for(request.uri().query().unwrap_or_default()) {
        return *refused;
    }
    let (mut parts, body) = request.into_parts();
    // A session is its opener's alone: to know its id is not to be them.
    let owner = parts.extensions.get::<Visitor>().map(|visitor| SessionOwner(visitor.identity.clone()));
    if let Some(owner) = owner {
        parts.extensions.insert(owner);
    }
    match house.stopping.run_until_cancelled(whole(&parts.headers, body)).await {
        Some(Ok(bytes)) => house.endpoint.handle(axum::http::Request::from_parts(parts, bytes)).await.map(Body::new),
        Some(Err(refused)) => refused,
        None => Fault(stopping()).into_response(),
    }
}

/// A person gets a page, a program the envelope.
async fn nothing_here(request: Request) -> Response {
    if takes_pages(request.headers()) && !request.uri().path().starts_with("/api/") {
        return console::not_found();
    }
    refusal(StatusCode::NOT_FOUND, Code::NotFound, "there is nothing here; `/api/openapi.json` says what there is")
}

async fn group() -> Response {
    refusal(
        StatusCode::NOT_FOUND,
        Code::NotFound,
        "there are no groups in this version; the whole surface is at `/mcp`",
    )
}

/// What the address says about the surface must be something there is.
fn surface_asked_for(query: &str) -> Result<(), Box<Response>> {
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let refused = match &*key {
            "mode" if Mode::parse(&value).is_none() => {
                let message = format!("no mode named `{}`; there are auto, search and full", shown_short(&value, 40));
                refusal(StatusCode::BAD_REQUEST, Code::BadRequest, &message)
            }
            "group" => refusal(StatusCode::NOT_FOUND, Code::NotFound, "there are no groups in this version"),
            _ => continue,
        };
        return Err(Box::new(refused));
    }
    Ok(())
}
