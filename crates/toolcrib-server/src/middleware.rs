//! What every request passes on its way in, and every answer on its way out: who may knock, the request's id and trace, counting.
//! It stands before the router, whose layers each cost every request; what is at hand is answered here.

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

use crate::auth::{ConnectionPeer, reject_foreign_request, set_security_headers};
use crate::http_metrics::RouteClass;
use crate::rest::{ApiError, stopping_error};
use crate::state::AppState;

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) type RouterService = TowerToHyperService<Router>;

pub(crate) async fn handle_request(
    house: AppState,
    routes: RouterService,
    connection: Arc<ConnectionPeer>,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let (class, method, id) =
        (RouteClass::from_path(request.uri().path()), request.method().clone(), request_id(request.headers()));
    let trace = Trace::from_headers(request.headers());
    let trace_id = trace.as_ref().map(|trace| display(trace.id()));
    if let Some(trace) = trace {
        request.extensions_mut().insert(trace);
    }
    let locality = house.auth.locality(&connection, request.headers()).await;
    let at_once =
        reject_foreign_request(&house.auth, &request, locality).or_else(|| house.cached_response(&request, locality));
    if at_once.is_none() {
        request.extensions_mut().insert(locality);
        request.extensions_mut().insert(connection);
    }
    let mut response = match at_once {
        Some(response) => response,
        // What only reads says nothing that would have to be found again by its id, unless all is told.
        None if method.is_safe() && !tracing::enabled!(tracing::Level::INFO) => {
            respond_unless_stopping(&house, class, catch_panic(routes.call(request), &id)).await
        }
        None => {
            let span = tracing::error_span!("request", request_id = header_text(&id));
            respond_unless_stopping(&house, class, catch_panic(routes.call(request), &id)).instrument(span).await
        }
    };
    let (status, elapsed) = (response.status(), began.elapsed());
    house.http_metrics.record_response(class, status, elapsed);
    tracing::info!(
        trace_id,
        request_id = header_text(&id),
        class = class.as_str(),
        method = method.as_str(),
        status = status.as_u16(),
        duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "http.request"
    );
    set_security_headers(status, response.headers_mut());
    response.headers_mut().insert(REQUEST_ID_HEADER, id);
    response
}

/// The response, or that the server stops: what a handler does then is cancelled by dropping it.
async fn respond_unless_stopping(
    house: &AppState,
    class: RouteClass,
    answering: impl Future<Output = Response>,
) -> Response {
    tokio::select! {
        biased;
        response = answering => response,
        // The MCP endpoint responds in the words of its protocol.
        () = house.stopping.cancelled(), if class != RouteClass::Mcp => ApiError(stopping_error()).into_response(),
    }
}

/// A mistake of ours ends one request, and is answered as such.
async fn catch_panic(answering: impl Future<Output = Result<Response, Infallible>>, id: &HeaderValue) -> Response {
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(Ok(response)) => response,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let reason = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(request_id = header_text(id), reason, "a request ended in a panic");
            let message = "something went wrong here that should not; the log says more under the request's id";
            ApiError(Error::new(Code::Internal, message)).into_response()
        }
    }
}

/// The one that came with the request, if it is fit for a log, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    if let Some(given) = headers.get(&REQUEST_ID_HEADER).filter(|given| is_valid_request_id(given.as_bytes())) {
        return given.clone();
    }
    let random: [u8; 16] = rand::random();
    let digits = random.map(|byte| b"0123456789abcdef"[usize::from(byte % 16)]);
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

fn is_valid_request_id(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=128).contains(&id.len()) && id.iter().all(plain)
}

fn header_text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_as_our_mistake() {
        let panics = async { panic!("at the disco") };
        let response = catch_panic(panics, &HeaderValue::from_static("7")).await;
        assert_eq!(response.status(), 500);
        let body = axum::body::to_bytes(response.into_body(), 4_096).await.unwrap();
        let told = String::from_utf8(body.to_vec()).unwrap();
        assert!(told.contains("INTERNAL") && !told.contains("disco"), "{told}");
    }

    #[test]
    fn only_an_id_that_is_fit_for_a_log_is_taken_over() {
        for (given, kept) in [
            ("0af7651916cd43dd", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("", false),
            ("two words", false),
            ("\"quoted\"", false),
            (&"x".repeat(200), false),
        ] {
            let headers = HeaderMap::from_iter([(REQUEST_ID_HEADER, HeaderValue::try_from(given).unwrap())]);
            let id = request_id(&headers);
            assert_eq!(id.as_bytes() == given.as_bytes(), kept, "{given}");
            assert!(is_valid_request_id(id.as_bytes()));
        }
    }
}
