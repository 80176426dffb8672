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

use crate::access::{ConnectionPeer, secure, turned_away};
use crate::api::{Fault, stopping};
use crate::house::House;
use crate::traffic::Class;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) type Routes = TowerToHyperService<Router>;

pub(crate) async fn enter(
    house: House,
    routes: Routes,
    connection: Arc<ConnectionPeer>,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let (class, method, id) = (Class::of(request.uri().path()), request.method().clone(), id(request.headers()));
    let trace = Trace::of_headers(request.headers());
    let trace_id = trace.as_ref().map(|trace| display(trace.id()));
    if let Some(trace) = trace {
        request.extensions_mut().insert(trace);
    }
    let locality = house.access.locality(&connection, request.headers()).await;
    let at_once = turned_away(&house.access, &request, locality).or_else(|| house.at_hand(&request, locality));
    if at_once.is_none() {
        request.extensions_mut().insert(locality);
        request.extensions_mut().insert(connection);
    }
    let mut response = match at_once {
        Some(response) => response,
        // What only reads says nothing that would have to be found again by its id, unless all is told.
        None if method.is_safe() && !tracing::enabled!(tracing::Level::INFO) => {
            unless_stopping(&house, class, answered(routes.call(request), &id)).await
        }
        None => {
            let span = tracing::error_span!("request", request_id = shown(&id));
            unless_stopping(&house, class, answered(routes.call(request), &id)).instrument(span).await
        }
    };
    let (status, elapsed) = (response.status(), began.elapsed());
    house.traffic.answered(class, status, elapsed);
    tracing::info!(
        trace_id,
        request_id = shown(&id),
        class = class.name(),
        method = method.as_str(),
        status = status.as_u16(),
        duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "http.request"
    );
    secure(status, response.headers_mut());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The response, or that the server stops: what a handler does then is cancelled by dropping it.
async fn unless_stopping(house: &House, class: Class, answering: impl Future<Output = Response>) -> Response {
    tokio::select! {
        biased;
        response = answering => response,
        // The MCP endpoint responds in the words of its protocol.
        () = house.stopping.cancelled(), if class != Class::Mcp => Fault(stopping()).into_response(),
    }
}

/// A mistake of ours ends one request, and is answered as such.
async fn answered(answering: impl Future<Output = Result<Response, Infallible>>, id: &HeaderValue) -> Response {
    match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(Ok(response)) => response,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let reason = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(request_id = shown(id), reason, "a request ended in a panic");
            let message = "something went wrong here that should not; the log says more under the request's id";
            Fault(Error::new(Code::Internal, message)).into_response()
        }
    }
}

/// The one that came with the request, if it is fit for a log, or a new one.
fn id(headers: &HeaderMap) -> HeaderValue {
    if let Some(given) = headers.get(&REQUEST_ID).filter(|given| is_sane(given.as_bytes())) {
        return given.clone();
    }
    let random: [u8; 16] = rand::random();
    let digits = random.map(|byte| b"0123456789abcdef"[usize::from(byte % 16)]);
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

fn is_sane(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=128).contains(&id.len()) && id.iter().all(plain)
}

fn shown(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_as_our_mistake() {
        let panics = async { panic!("at the disco") };
        let response = answered(panics, &HeaderValue::from_static("7")).await;
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
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::try_from(given).unwrap())]);
            let id = id(&headers);
            assert_eq!(id.as_bytes() == given.as_bytes(), kept, "{given}");
            assert!(is_sane(id.as_bytes()));
        }
    }
}
