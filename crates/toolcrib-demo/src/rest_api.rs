//! The demo's REST API: a corner shop described by an OpenAPI document, served on loopback only. It keeps its state in
//! memory and rejects every request that its document does not allow.
//!
//! A request passes five steps: document, operation, token, body, validation. The operations themselves are in
//! `shop_data`. All routes share one handler, because the document decides which exist.

mod document;
mod multipart;
mod shop_data;
mod validation;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_server::bind;

use document::{OperationMatch, ShopDocument};
use shop_data::{ShopData, json_response};

/// Bearer token for the operations that require one. Not a secret: the API only listens on loopback, for the demo.
pub const STAFF_TOKEN: &str = "corner-shop";
/// Path of the document, which the sandbox's configuration names.
const OPENAPI_PATH: &str = "/openapi.json";
/// Maximum size of a request body in bytes; larger ones get 413.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Maximum time for a request body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open requests to finish after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The running API. Dropping it starts the shutdown; [`ShopApi::close`] also waits for it.
#[derive(Debug)]
pub struct ShopApi {
    url: String,
    shutdown_guard: DropGuard,
    server_task: JoinHandle<()>,
}

impl ShopApi {
    /// Binds the address, which must be loopback, and serves in a background task.
    pub async fn start(address: SocketAddr) -> Result<ShopApi> {
        if !address.ip().to_canonical().is_loopback() {
            let message = format!("`{address}` can be reached from other machines; the demo listens on loopback only");
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        let listener = bind(address).await?;
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let state = Arc::new(ShopApiState { document: ShopDocument::parse()?, data: Mutex::new(ShopData::new()) });
        let router = Router::new().fallback(handle_request).with_state(state);
        let shutdown = CancellationToken::new();
        let shutdown_guard = shutdown.clone().drop_guard();
        let server_task = tokio::spawn(async move {
            // Ends when the token is cancelled and all open requests are done.
            let served = axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::warn!(%error, "the demo's REST API ended early");
            }
        });
        Ok(ShopApi { url: format!("http://{address}"), shutdown_guard, server_task })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL of the OpenAPI document.
    pub fn document_url(&self) -> String {
        format!("{}{OPENAPI_PATH}", self.url)
    }

    /// Shuts down, aborting requests that take longer than `SHUTDOWN_TIMEOUT`.
    pub async fn close(self) {
        drop(self.shutdown_guard);
        let abort = self.server_task.abort_handle();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.server_task).await.is_err() {
            abort.abort();
        }
    }
}

/// State shared by all requests.
struct ShopApiState {
    document: ShopDocument,
    data: Mutex<ShopData>,
}

/// Handles every route: finds the operation, checks the token, validates the request, runs the operation.
async fn handle_request(State(state): State<Arc<ShopApiState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // 1. The document itself is served without any checks.
    if parts.uri.path() == OPENAPI_PATH {
        return state.document_response(&parts.headers);
    }
    // 2. Find the operation of method and path.
    let method = parts.method.as_str();
    let path = parts.uri.path();
    let (operation, path_values) = match state.document.match_request(method, path) {
        OperationMatch::Operation(operation, path_values) => (operation, path_values),
        OperationMatch::WrongMethod => {
            return error_response(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method");
        }
        OperationMatch::NotFound => {
            return error_response(StatusCode::NOT_FOUND, "no such path; `/openapi.json` describes the API");
        }
    };
    // 3. Authenticate before the body is read.
    if operation.requires_token && bearer_token(&parts.headers) != Some(STAFF_TOKEN) {
        let mut response =
            error_response(StatusCode::UNAUTHORIZED, "this operation requires the bearer token of staff");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return response;
    }
    // 4. Read the body, bounded in size and time.
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return error_response(StatusCode::PAYLOAD_TOO_LARGE, "the request is over 1 MiB"),
        Err(_) => return error_response(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    // 5. Validate, and run the operation. The lock is held for the synchronous operation only.
    let query = parts.uri.query().unwrap_or_default();
    let shop_request =
        validation::ShopRequest { path_values: &path_values, query, headers: &parts.headers, body: &bytes };
    match validation::validate_request(operation, &shop_request) {
        Ok(validated) => {
            let mut data = state.data.lock();
            data.handle(&operation.id, &validated)
        }
        Err(faults) => {
            let body = json!({ "message": validation::describe_violations(&faults), "faults": faults });
            json_response(StatusCode::BAD_REQUEST, body)
        }
    }
}

impl ShopApiState {
    /// Returns the OpenAPI document, or 304 if the client's `If-None-Match` names it.
    fn document_response(&self, headers: &HeaderMap) -> Response {
        let etag = self.document.etag.as_str();
        let if_none_match = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        // RFC 9110: a list of tags, or `*`. Toolcrib sends the tag of the document it has, and saves the transfer.
        let matches = |tags: &str| tags.split(',').any(|tag| tag.trim() == etag || tag.trim() == "*");
        if if_none_match.is_some_and(matches) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
        }
        ([(header::CONTENT_TYPE, "application/json"), (header::ETAG, etag)], document::DOCUMENT_JSON).into_response()
    }
}

/// Returns the token of an `Authorization: Bearer` header.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A JSON response with a message.
fn error_response(status: StatusCode, message: &str) -> Response {
    json_response(status, json!({ "message": message }))
}

#[cfg(test)]
mod tests;
