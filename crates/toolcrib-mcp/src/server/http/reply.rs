//! Responses: which status an outcome has, and when it is a stream.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::value::RawValue;

use super::body::Body;
use crate::{
    era::Era,
    error::RpcError,
    server::{envelope, feed::Last},
};

/// What a client takes as an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    pub(super) fn read(headers: &HeaderMap) -> Accepts {
        let mut accepts = Accepts { json: false, events: false };
        let mut said = headers.get_all(header::ACCEPT).iter().peekable();
        if said.peek().is_none() {
            return Accepts { json: true, events: true };
        }
        for part in said.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')) {
            match part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "*/*" => accepts = Accepts { json: true, events: true },
                "application/json" | "application/*" => accepts.json = true,
                "text/event-stream" | "text/*" => accepts.events = true,
                _ => {}
            }
        }
        accepts
    }
}

/// A request that is not looked at any further.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) id: Option<Box<RawValue>>,
    pub(super) error: RpcError,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: &str) -> Refusal {
        Refusal { status, id: None, error: RpcError::new(RpcError::INVALID_REQUEST, message) }
    }

    /// Refuses one request, with the status its error has.
    pub(super) fn of(id: &RawValue, error: RpcError) -> Refusal {
        let status = match error.code {
            RpcError::INTERNAL => StatusCode::SERVICE_UNAVAILABLE,
            RpcError::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal { status, id: Some(id.to_owned()), error }
    }

    pub(super) fn under(self, id: &RawValue) -> Refusal {
        Refusal { id: Some(id.to_owned()), ..self }
    }

    pub(super) fn response(self) -> Response<Body> {
        let mut response = json(self.status, envelope::refusal(self.id.as_deref(), self.error));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The status of an answer: since 2026 some errors have one of their own.
pub(super) fn status(era: Era, last: Last) -> StatusCode {
    match (era, last) {
        (Era::Modern, Last::Error(RpcError::METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
        (
            Era::Modern,
            Last::Error(RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION),
        ) => StatusCode::BAD_REQUEST,
        (Era::Modern | Era::Legacy(_), Last::Result | Last::Error(_)) => StatusCode::OK,
    }
}

pub(super) fn json(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<Body> {
    respond(status, Body::whole(text), "application/json")
}

pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = respond(StatusCode::OK, body, "text/event-stream");
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::whole(""));
    *response.status_mut() = status;
    response
}

fn respond(status: StatusCode, body: Body, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
