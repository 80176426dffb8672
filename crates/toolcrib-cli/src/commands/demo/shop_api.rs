//! The corner shop: a small REST API that an OpenAPI document describes, part of this binary and served on this machine
//! alone. It keeps everything in memory, and refuses whatever its own document does not allow.

mod document;
mod multipart;
mod shop_data;
mod validation;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_server::bind;

use document::{OperationMatch, ShopDocument};
use shop_data::{ShopData, ShopResponse};

/// What the shop's staff presents.
pub(crate) const STAFF_TOKEN: &str = "corner-shop";
const OPENAPI_PATH: &str = "/openapi.json";
const MAX_BODY_BYTES: usize = 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The shop while it is open. It closes when this goes.
#[derive(Debug)]
pub(crate) struct ShopApi {
    url: String,
    shutdown_guard: DropGuard,
    server_task: JoinHandle<()>,
}

impl ShopApi {
    pub(crate) async fn start(address: SocketAddr) -> Result<ShopApi> {
        if !address.ip().to_canonical().is_loopback() {
            let message = format!("`{address}` can be reached from other machines, and the shop is for this one alone");
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        let listener = bind(address).await?;
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let counter = Arc::new(ShopApiState { document: ShopDocument::parse()?, data: Mutex::new(ShopData::new()) });
        let router = Router::new().fallback(handle_request).with_state(counter);
        let leave = CancellationToken::new();
        let open = leave.clone().drop_guard();
        let serving = tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(leave.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::warn!(%error, "the shop closed early");
            }
        });
        Ok(ShopApi { url: format!("http://{address}"), shutdown_guard: open, server_task: serving })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where its OpenAPI document is.
    pub(crate) fn document_url(&self) -> String {
        format!("{}{OPENAPI_PATH}", self.url)
    }

    pub(crate) async fn close(self) {
        drop(self.shutdown_guard);
        let abort = self.server_task.abort_handle();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.server_task).await.is_err() {
            abort.abort();
        }
    }
}

/// Where requests are taken.
struct ShopApiState {
    document: ShopDocument,
    data: Mutex<ShopData>,
}

async fn handle_request(State(counter): State<Arc<ShopApiState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == OPENAPI_PATH {
        return counter.document_response(&parts.headers);
    }
    let method = parts.method.as_str();
    let path = parts.uri.path();
    let (route, places) = match counter.document.match_request(method, path) {
        OperationMatch::Operation(route, places) => (route, places),
        OperationMatch::WrongMethod => {
            return error_response(StatusCode::METHOD_NOT_ALLOWED, "this address takes no such method");
        }
        OperationMatch::NotFound => {
            return error_response(StatusCode::NOT_FOUND, "there is nothing here; `/openapi.json` says what is");
        }
    };
    if route.requires_token && bearer_token(&parts.headers) != Some(STAFF_TOKEN) {
        let mut answer = error_response(StatusCode::UNAUTHORIZED, "only staff may do this; present the bearer token");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return answer;
    }
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return error_response(StatusCode::PAYLOAD_TOO_LARGE, "the request is over 1 MiB"),
        Err(_) => return error_response(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    let query = parts.uri.query().unwrap_or_default();
    let asked = validation::ShopRequest { path_values: &places, query, headers: &parts.headers, body: &bytes };
    match validation::validate_request(route, &asked) {
        Ok(fitting) => {
            let mut goods = counter.data.lock().unwrap_or_else(PoisonError::into_inner);
            goods.handle(&route.id, &fitting).into_response()
        }
        Err(faults) => {
            let body = json!({ "message": validation::describe_violations(&faults), "faults": faults });
            ShopResponse::json(StatusCode::BAD_REQUEST, body).into_response()
        }
    }
}

impl ShopApiState {
    /// The document, or that it is still the one that the client has.
    fn document_response(&self, headers: &HeaderMap) -> Response {
        let etag = self.document.etag.as_str();
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        if known.is_some_and(|known| known.split(',').any(|known| known.trim() == etag || known.trim() == "*")) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
        }
        ([(header::CONTENT_TYPE, "application/json"), (header::ETAG, etag)], document::DOCUMENT_JSON).into_response()
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn error_response(status: StatusCode, message: &str) -> Response {
    ShopResponse::json(status, json!({ "message": message })).into_response()
}

impl IntoResponse for ShopResponse {
    fn into_response(self) -> Response {
        let ShopResponse { status, location, body } = self;
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        let has_body = bytes.is_some();
        let mut response = (status, bytes.map_or_else(Body::empty, Body::from)).into_response();
        let headers = response.headers_mut();
        if has_body {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        }
        if let Some(location) = location.and_then(|location| location.parse().ok()) {
            headers.insert(header::LOCATION, location);
        }
        response
    }
}

#[cfg(test)]
mod tests;
