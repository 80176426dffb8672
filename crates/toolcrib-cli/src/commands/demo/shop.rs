//! The corner shop: a small REST API that an OpenAPI document describes, part of this binary and served on this machine
//! alone. It keeps everything in memory, and refuses whatever its own document does not allow.

mod check;
mod document;
mod goods;
mod multipart;

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

use document::{Document, Found};
use goods::{Goods, Reply};

/// What the shop's staff presents.
pub(crate) const TOKEN: &str = "corner-shop";
const DOCUMENT: &str = "/openapi.json";
const LARGEST: usize = 1024 * 1024;
const SLOWEST: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(2);

/// The shop while it is open. It closes when this goes.
#[derive(Debug)]
pub(crate) struct Shop {
    url: String,
    open: DropGuard,
    serving: JoinHandle<()>,
}

impl Shop {
    pub(crate) async fn open(address: SocketAddr) -> Result<Shop> {
        if !address.ip().to_canonical().is_loopback() {
            let message = format!("`{address}` can be reached from other machines, and the shop is for this one alone");
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        let listener = bind(address).await?;
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let counter = Arc::new(Counter { document: Document::read()?, goods: Mutex::new(Goods::new()) });
        let router = Router::new().fallback(serve).with_state(counter);
        let leave = CancellationToken::new();
        let open = leave.clone().drop_guard();
        let serving = tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(leave.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::warn!(%error, "the shop closed early");
            }
        });
        Ok(Shop { url: format!("http://{address}"), open, serving })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where its OpenAPI document is.
    pub(crate) fn document(&self) -> String {
        format!("{}{DOCUMENT}", self.url)
    }

    pub(crate) async fn close(self) {
        drop(self.open);
        let abort = self.serving.abort_handle();
        if tokio::time::timeout(FAREWELL, self.serving).await.is_err() {
            abort.abort();
        }
    }
}

/// Where requests are taken.
struct Counter {
    document: Document,
    goods: Mutex<Goods>,
}

async fn serve(State(counter): State<Arc<Counter>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == DOCUMENT {
        return counter.document(&parts.headers);
    }
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let (route, places) = match counter.document.find(method, path) {
        Found::Route(route, places) => (route, places),
        Found::OtherMethod => return refusal(StatusCode::METHOD_NOT_ALLOWED, "this address takes no such method"),
        Found::Nothing => return refusal(StatusCode::NOT_FOUND, "there is nothing here; `/openapi.json` says what is"),
    };
    if route.secured && bearer(&parts.headers) != Some(TOKEN) {
        let mut answer = refusal(StatusCode::UNAUTHORIZED, "only staff may do this; present the bearer token");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return answer;
    }
    let bytes = match tokio::time::timeout(SLOWEST, to_bytes(body, LARGEST)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is over 1 MiB"),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time"),
    };
    let query = parts.uri.query().unwrap_or_default();
    let asked = check::Asked { places: &places, query, headers: &parts.headers, body: &bytes };
    match check::fitting(route, &asked) {
        Ok(fitting) => {
            let mut goods = counter.goods.lock().unwrap_or_else(PoisonError::into_inner);
            goods.answer(&route.id, &fitting).into_response()
        }
        Err(faults) => {
            let body = json!({ "message": check::in_words(&faults), "faults": faults });
            Reply::json(StatusCode::BAD_REQUEST, body).into_response()
        }
    }
}

impl Counter {
    /// The document, or that it is still the one that the client has.
    fn document(&self, headers: &HeaderMap) -> Response {
        let etag = self.document.etag.as_str();
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        if known.is_some_and(|known| known.split(',').any(|known| known.trim() == etag || known.trim() == "*")) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
        }
        ([(header::CONTENT_TYPE, "application/json"), (header::ETAG, etag)], document::TEXT).into_response()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refusal(status: StatusCode, message: &str) -> Response {
    Reply::json(status, json!({ "message": message })).into_response()
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let Reply { status, location, body } = self;
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
