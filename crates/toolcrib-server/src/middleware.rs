//! Outermost request handler: host and origin check, position, response cache, request id, trace context, metrics and
//! security headers. Runs before the axum router so that cached responses skip its middleware stack. Roles are checked
//! per route by [`crate::auth`].
//!
//! Every response passes through here, also those of a handler that panicked or was cut short by the shutdown. So each
//! one has a request id, is counted, and carries the security headers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use toolcrib::{Code, Error, Trace};
use tracing::Instrument;
use tracing::field::display;

use crate::auth::{ConnectionPeer, Locality, await_min_position, reject_foreign_request, set_security_headers};
use crate::http_metrics::RouteClass;
use crate::position::{PositionReading, set_position, set_staleness, take_min_position};
use crate::rest::{ApiError, stopping_error};
use crate::state::AppState;

/// Carries the id of a request, from the client or generated, back to the client and into the log.
const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The axum router as a hyper service.
pub(crate) type RouterService = TowerToHyperService<Router>;

/// Handles one HTTP request from its head to the head of its response. `connection` is the client's end of the TCP
/// connection, by which a local process is recognised. The body of the response may still be streamed when this
/// returns; the metrics therefore measure the time until the head.
pub(crate) async fn handle_request(
    app: AppState,
    router: RouterService,
    connection: Arc<ConnectionPeer>,
    mut request: Request,
) -> Response {
    let started_at = Instant::now();
    let class = RouteClass::from_path(request.uri().path());
    let method = request.method().clone();
    let id = request_id(request.headers());
    // Every log event of a request has a trace id: that of the client, or a new one.
    let trace = Trace::from_headers(request.headers()).unwrap_or_else(Trace::log_only);
    let trace_id = display(trace.id());
    request.extensions_mut().insert(trace);
    // May wait for a search through the processes of this machine; its result is cached with the connection.
    let locality = app.auth.locality(&connection, request.headers()).await;
    // Responses that need no handler: a rejection, or a body from the cache.
    let mut immediate =
        // The order is a matter of security: a request with a foreign host must not even get a cached response.
        reject_foreign_request(&app.auth, &request, locality);
    if immediate.is_none() {
        immediate = prepare_position(&app, &mut request, locality, &connection).await.err();
    }
    let position = app.registry.position();
    if immediate.is_none() {
        immediate = app.cached_response(&request, locality);
    }
    if immediate.is_none() {
        // For `auth::authorize`, which must not identify the client a second time.
        request.extensions_mut().insert(locality);
        request.extensions_mut().insert(connection);
    }
    let mut response = match immediate {
        Some(response) => response,
        // A span costs every request. Reads log nothing below `info` that would need the request id, so they get none.
        None if method.is_safe() && !tracing::enabled!(tracing::Level::INFO) => {
            respond_unless_stopping(&app, class, catch_panic(router.call(request), &id)).await
        }
        None => {
            let span = tracing::error_span!("request", request_id = header_text(&id), trace_id);
            respond_unless_stopping(&app, class, catch_panic(router.call(request), &id)).instrument(span).await
        }
    };
    let status = response.status();
    let elapsed = started_at.elapsed();
    app.http_metrics.record_response(class, status, elapsed);
    tracing::info!(
        trace_id,
        request_id = header_text(&id),
        class = class.as_str(),
        method = method.as_str(),
        status = status.as_u16(),
        duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "http.request"
    );
    // After the handler, so that headers that it set itself are known and kept.
    set_security_headers(status, response.headers_mut());
    set_position(&app.registry, &mut response, position, PositionReading::for_request(class, &method));
    set_staleness(&app.registry, response.headers_mut());
    response.headers_mut().insert(REQUEST_ID_HEADER, id);
    response
}

/// Waits for the position that a request requires. Returns the response to a request that cannot get it.
async fn prepare_position(
    app: &AppState,
    request: &mut Request,
    locality: Locality,
    connection: &ConnectionPeer,
) -> Result<(), Response> {
    let position = take_min_position(request).map_err(|error| ApiError(error).into_response())?;
    let Some(position) = position.filter(|position| app.registry.position() < *position) else { return Ok(()) };
    let waiting = await_min_position(app, request, locality, connection.address(), position);
    match app.stopping.run_until_cancelled(waiting).await {
        Some(reached) => reached,
        None => Err(ApiError(stopping_error()).into_response()),
    }
}

/// Awaits the handler, or gives up when the server stops; dropping the handler's future cancels its work.
async fn respond_unless_stopping(
    app: &AppState,
    class: RouteClass,
    handler: impl Future<Output = Response>,
) -> Response {
    tokio::select! {
        biased;
        response = handler => response,
        // The MCP endpoint ends its requests itself, with JSON-RPC responses.
        () = app.stopping.cancelled(), if class != RouteClass::Mcp => ApiError(stopping_error()).into_response(),
    }
}

/// Turns a panic of the handler into a response with status 500, so that it ends one request and not the connection.
async fn catch_panic(handler: impl Future<Output = Result<Response, Infallible>>, id: &HeaderValue) -> Response {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(Ok(response)) => response,
        Err(panic) => {
            // The text of the panic goes into the log alone: it may contain arguments or secrets of a request.
            let text = panic.downcast_ref::<&str>().copied();
            let reason = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(request_id = header_text(id), reason, "a request ended in a panic");
            let message = format!("internal error; see the log for request id `{}`", header_text(id));
            ApiError(Error::new(Code::Internal, message)).into_response()
        }
    }
}

/// Returns the id that the client sent if it is safe to log, else a new random one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    if let Some(id) = headers.get(&REQUEST_ID_HEADER).filter(|id| is_valid_request_id(id.as_bytes())) {
        return id.clone();
    }
    // Sixteen hexadecimal digits: 64 random bits, enough to find one request in a log.
    let random: [u8; 16] = rand::random();
    let digits = random.map(|byte| b"0123456789abcdef"[usize::from(byte % 16)]);
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Accepts the usual formats (hex, UUID, AWS `Root=…`, base64). Longer ids, spaces and quotes could forge log lines.
fn is_valid_request_id(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=128).contains(&id.len()) && id.iter().all(is_allowed)
}

/// Returns a request id as text. Valid ids are ASCII, so this never falls back to the empty text.
fn header_text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_internal_error_without_its_text() {
        let panics = async { panic!("at the disco") };
        let response = catch_panic(panics, &HeaderValue::from_static("7")).await;
        assert_eq!(response.status(), 500);
        let body = axum::body::to_bytes(response.into_body(), 4_096).await.unwrap();
        let body_text = String::from_utf8(body.to_vec()).unwrap();
        assert!(body_text.contains("INTERNAL") && !body_text.contains("disco"), "{body_text}");
    }

    #[test]
    fn a_request_id_is_kept_only_if_it_is_safe_to_log() {
        for (sent, is_kept) in [
            ("0af7651916cd43dd", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("", false),
            ("two words", false),
            ("\"quoted\"", false),
            (&"x".repeat(200), false),
        ] {
            let headers = HeaderMap::from_iter([(REQUEST_ID_HEADER, HeaderValue::try_from(sent).unwrap())]);
            let id = request_id(&headers);
            assert_eq!(id.as_bytes() == sent.as_bytes(), is_kept, "{sent}");
            assert!(is_valid_request_id(id.as_bytes()));
        }
    }
}
