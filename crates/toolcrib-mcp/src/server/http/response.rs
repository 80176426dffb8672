//! HTTP responses: accepted content types, status codes, and errors of the endpoint itself.
//!
//! Once a request runs, its errors are JSON-RPC responses with a status by [`response_status`]. An [`EndpointError`] is
//! for everything before that, and for a request that ended without a response, with its session or by the shutdown.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::value::RawValue;

use super::body::EndpointBody;
use crate::{
    era::Era,
    error::RpcError,
    server::{envelope, event_buffer::ResponseKind},
};

/// Content types that a client accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedTypes {
    /// Whether a single JSON body can be sent.
    pub(super) json: bool,
    /// Whether an event stream can be sent, and so messages before the response.
    pub(super) events: bool,
}

impl AcceptedTypes {
    /// Parses the `Accept` headers; without one, everything is accepted. Quality values are ignored.
    pub(super) fn parse(headers: &HeaderMap) -> AcceptedTypes {
        let mut accepts = AcceptedTypes { json: false, events: false };
        let mut values = headers.get_all(header::ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return AcceptedTypes { json: true, events: true };
        }
        for media_range in values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')) {
            match media_range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "*/*" => accepts = AcceptedTypes { json: true, events: true },
                "application/json" | "application/*" => accepts.json = true,
                "text/event-stream" | "text/*" => accepts.events = true,
                _ => {}
            }
        }
        accepts
    }
}

/// Rejection of an HTTP request before its MCP request was started, or the answer to an MCP request that ended with its
/// session or by the shutdown.
#[derive(Debug)]
pub(super) struct EndpointError {
    pub(super) status: StatusCode,
    /// JSON-RPC id of the request, if it is known.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) error: RpcError,
}

impl EndpointError {
    /// Rejects an HTTP request as invalid.
    pub(super) fn new(status: StatusCode, message: &str) -> EndpointError {
        EndpointError { status, id: None, error: RpcError::new(RpcError::INVALID_REQUEST, message) }
    }

    /// Rejects one request with the HTTP status of its error. An internal error here is temporary: a limit was reached,
    /// or the server is not ready.
    pub(super) fn from_rpc_error(id: &RawValue, error: RpcError) -> EndpointError {
        let status = match error.code {
            RpcError::INTERNAL => StatusCode::SERVICE_UNAVAILABLE,
            RpcError::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        EndpointError { status, id: Some(id.to_owned()), error }
    }

    /// Sets the id of the request that the error answers.
    pub(super) fn with_id(self, id: &RawValue) -> EndpointError {
        EndpointError { id: Some(id.to_owned()), ..self }
    }

    /// Builds the HTTP response, with the headers that its status requires.
    pub(super) fn into_response(self) -> Response<EndpointBody> {
        let mut response = json_response(self.status, envelope::encode_error(self.id.as_deref(), self.error));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        // Limits and shutdowns pass quickly, so a short delay is enough.
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns the HTTP status of a JSON-RPC response. In 2026-07-28 some errors have their own status; legacy responses
/// are always 200.
pub(super) fn response_status(era: Era, kind: ResponseKind) -> StatusCode {
    match (era, kind) {
        (Era::Modern, ResponseKind::Error(RpcError::METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
        (
            Era::Modern,
            ResponseKind::Error(
                RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION,
            ),
        ) => StatusCode::BAD_REQUEST,
        (Era::Modern | Era::Legacy(_), ResponseKind::Result | ResponseKind::Error(_)) => StatusCode::OK,
    }
}

/// Builds a response with a JSON body.
pub(super) fn json_response(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<EndpointBody> {
    response_with_type(status, EndpointBody::full(text), "application/json")
}

/// Builds an event stream response that proxies neither cache nor buffer (`X-Accel-Buffering` is for nginx).
pub(super) fn event_stream_response(body: EndpointBody) -> Response<EndpointBody> {
    let mut response = response_with_type(StatusCode::OK, body, "text/event-stream");
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Builds a response without a body.
pub(super) fn empty_response(status: StatusCode) -> Response<EndpointBody> {
    let mut response = Response::new(EndpointBody::full(""));
    *response.status_mut() = status;
    response
}

/// Builds a response with this content type.
fn response_with_type(status: StatusCode, body: EndpointBody, content_type: &'static str) -> Response<EndpointBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
