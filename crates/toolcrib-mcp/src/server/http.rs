//! The server's Streamable HTTP transport: one endpoint for every protocol version.
//!
//! It depends on no web framework. The layer above checks Host and Origin, authenticates, and bounds request bodies.
//!
//! A POST with the version header or the `_meta` version of 2026-07-28 is stateless (`modern`); all others belong to a
//! session (`legacy`, `session`). Either way the request runs in its own task and writes into an event buffer, and the
//! HTTP response is chosen by the first message in it: a JSON body if that is the response, an event stream otherwise
//! (`response`, `body`). GET and DELETE exist for sessions only.

mod legacy;
mod modern;
mod session;

mod body;
mod response;

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri, header, request::Parts};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use self::body::EndpointBody;
pub use self::session::SessionOwner;
use self::{
    body::EventIds,
    response::{AcceptedTypes, EndpointError},
    session::McpSessions,
};
use super::{
    Service,
    event_buffer::{BufferReader, EventBuffer},
    options::ServerOptions,
    params::RequestParams,
    request::IncomingRequest,
    shared::ServerShared,
    sink::Sink,
};
use crate::{
    era::{Era, LegacyVersion, MODERN_VERSION},
    error::RpcError,
    message::{self, IncomingMessage},
};

/// Header with the session id of legacy clients.
const SESSION_HEADER: &str = "mcp-session-id";
/// Header with the protocol version; required since 2025-06-18.
const VERSION_HEADER: &str = "mcp-protocol-version";

/// Answers HTTP requests with a [`Service`]. Cheap to clone; dropping the last clone ends all sessions and requests.
#[derive(Debug, Clone)]
pub struct McpEndpoint {
    inner: Arc<EndpointInner>,
}

/// Owner of the sessions and tasks; ends them on drop.
#[derive(Debug)]
struct EndpointInner {
    shared: Arc<ServerShared>,
    sessions: Arc<McpSessions>,
}

/// Head of an HTTP request.
#[derive(Debug)]
struct RequestHead {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// Shared by the peer and the MCP request, so that they are not copied for every request.
    extensions: Arc<Extensions>,
}

impl RequestHead {
    /// Splits a request into head and body.
    fn split(request: Request<Bytes>) -> (RequestHead, Bytes) {
        let (Parts { method, uri, headers, extensions, .. }, body) = request.into_parts();
        (RequestHead { method, uri, headers, extensions: Arc::new(extensions) }, body)
    }
}

/// An HTTP response, or the rejection of the request.
type EndpointResult = Result<Response<EndpointBody>, EndpointError>;

impl McpEndpoint {
    /// Creates an endpoint. It starts no task before the first request.
    pub fn new(service: Arc<dyn Service>, options: ServerOptions) -> McpEndpoint {
        let inner = EndpointInner { shared: ServerShared::new(service, options), sessions: Arc::default() };
        McpEndpoint { inner: Arc::new(inner) }
    }

    /// Answers one HTTP request. Dropping the future or the response body cancels the MCP request; one of the legacy
    /// era with a resumable stream only after [`ServerOptions::resume_window`].
    pub async fn handle(&self, request: Request<Bytes>) -> Response<EndpointBody> {
        let (head, body) = RequestHead::split(request);
        let result = match head.method {
            // Earlier for GET: a new stream would be ended at once.
            _ if self.inner.shared.stopping.is_cancelled() => Err(stopping_error()),
            Method::GET if self.inner.shared.draining.is_cancelled() => Err(stopping_error()),
            Method::POST => self.post(&head, &body).await,
            Method::GET => self.get(&head),
            Method::DELETE => self.delete(&head),
            _ => Err(EndpointError::new(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are supported")),
        };
        result.unwrap_or_else(EndpointError::into_response)
    }

    /// Stops the endpoint: ends event streams, lets requests in progress finish for
    /// [`ServerOptions::drain_timeout`], sends the others [`Service::shutdown_response`], rejects new ones, and ends all
    /// sessions.
    pub async fn close(&self) {
        self.close_after(std::future::ready(())).await;
    }

    /// Like [`McpEndpoint::close`], but goes on accepting requests until `idle` completes, within the same timeout: a
    /// request may already be on its way over a connection that was accepted before.
    pub async fn close_after(&self, idle: impl Future<Output = ()>) {
        let EndpointInner { shared, sessions } = &*self.inner;
        // The three phases of `ServerShared`, in order; each ends early when no task is left.
        shared.draining.cancel();
        sessions.drain();
        // `wait` returns only after `close`.
        shared.tasks.close();
        // Timeouts are no errors here: the next step ends what is left.
        let drained = async {
            idle.await;
            shared.tasks.wait().await;
        };
        let _ = timeout(shared.options.drain_timeout, drained).await;
        shared.stop().await;
        sessions.end_all(shared);
        shared.closing.cancel();
        let _ = timeout(shared.options.cleanup_timeout, shared.tasks.wait()).await;
    }

    /// Handles a POST: one message, or a batch of a legacy client.
    async fn post(&self, head: &RequestHead, body: &Bytes) -> EndpointResult {
        if !has_json_body(&head.headers) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(EndpointError::new(status, "the Content-Type of a message must be `application/json`"));
        }
        let accepts = AcceptedTypes::parse(&head.headers);
        if !accepts.json && !accepts.events {
            let message = "Accept must allow `application/json` or `text/event-stream`";
            return Err(EndpointError::new(StatusCode::NOT_ACCEPTABLE, message));
        }
        // Content errors are JSON-RPC errors with HTTP 400, and without an id as long as none was parsed.
        let malformed = |error| EndpointError { status: StatusCode::BAD_REQUEST, id: None, error };
        let text = std::str::from_utf8(body)
            .map_err(|_| malformed(RpcError::new(RpcError::PARSE, "the body is not UTF-8")))?;
        if text.trim_start().starts_with('[') {
            return self.handle_batch(head, text).await;
        }
        let incoming = message::parse_strict(text).map_err(|(id, error)| {
            let id = id.map(ToOwned::to_owned);
            EndpointError { status: StatusCode::BAD_REQUEST, id, error }
        })?;
        // The era follows from the message, not from earlier requests: one address serves clients of both.
        let modern = header_text(&head.headers, VERSION_HEADER) == Some(MODERN_VERSION);
        match incoming {
            IncomingMessage::Request { id, method, params } => {
                let with_id = |error| EndpointError::from_rpc_error(id, error);
                let request_params = RequestParams::parse(&method, params).map_err(with_id)?;
                // The version in `_meta` suffices, so that a missing header is reported as such.
                if modern || request_params.protocol_version.is_some() {
                    let result = self.handle_modern(head, id, &method, request_params, accepts).await;
                    return result.map_err(with_id)?;
                }
                if method == "initialize" {
                    return self.initialize(head, id, params, accepts).await;
                }
                let session = self.find_session(head).map_err(|error| error.with_id(id))?;
                let buffer = session.open_stream(self.inner.shared.options.max_queued_messages);
                let request = incoming_request(head, id, &method, request_params, &buffer, accepts.events);
                // Added before the start, so that the request does not look abandoned.
                let reader = buffer.add_reader(None);
                let client = session.client_context();
                let ended = client.ended.clone();
                self.inner.shared.start_request(client, request).map_err(with_id)?;
                let response = self.build_response(reader, session.peer.era, accepts).await;
                response.map_or_else(|| self.unanswered_response(id, &ended), Ok)
            }
            IncomingMessage::Notification { method, .. } if modern => {
                crate::headers::check_standard_headers(&head.headers, &method, None)
                    .map_err(|why| malformed(RpcError::new(RpcError::HEADER_MISMATCH, why)))?;
                Ok(response::empty_response(StatusCode::ACCEPTED))
            }
            IncomingMessage::Response { .. } | IncomingMessage::ErrorWithoutId(_) if modern => {
                let message = "servers of version 2026-07-28 send no requests that could be answered";
                Err(EndpointError::new(StatusCode::BAD_REQUEST, message))
            }
            other @ (IncomingMessage::Notification { .. }
            | IncomingMessage::Response { .. }
            | IncomingMessage::ErrorWithoutId(_)) => {
                let session = self.find_session(head)?;
                session.client_requests.handle_message(other);
                Ok(response::empty_response(StatusCode::ACCEPTED))
            }
        }
    }

    /// Waits for the first message and builds the HTTP response: a JSON body if the message is the response, otherwise
    /// an event stream. Returns `None` when the request ends without a message. A client that accepts no event stream
    /// waits for the response; messages before it are not produced, since such a request cannot stream.
    async fn build_response(
        &self,
        mut reader: BufferReader,
        era: Era,
        accepts: AcceptedTypes,
    ) -> Option<Response<EndpointBody>> {
        let options = &self.inner.shared.options;
        let first = if accepts.events {
            // Switch to an event stream after `keep_alive`, so that the client sees that the connection is alive.
            timeout(options.keep_alive, reader.next()).await.ok()
        } else {
            Some(reader.next().await)
        };
        Some(match first {
            Some(None) => return None,
            Some(Some(message))
                if accepts.json
                    && let Some(kind) = message.response_kind =>
            {
                response::json_response(response::response_status(era, kind), message.text)
            }
            first => {
                // Event ids are what makes a stream resumable; 2026-07-28 has neither.
                let ids = match era {
                    Era::Modern => EventIds::None,
                    Era::Legacy(LegacyVersion::V2025_11_25) => EventIds::WithPriming,
                    Era::Legacy(_) => EventIds::Each,
                };
                if ids != EventIds::None {
                    reader.buffer().set_resume_window(options.resume_window);
                }
                response::event_stream_response(EndpointBody::events(reader, ids, first.flatten(), options.keep_alive))
            }
        })
    }

    /// Builds the HTTP response of a request that ended without a JSON-RPC response: it was cancelled by its client,
    /// with its session, or by the shutdown.
    fn unanswered_response(&self, id: &RawValue, ended: &CancellationToken) -> EndpointResult {
        match self.termination_error(ended) {
            Some(error) => Err(error.with_id(id)),
            // The client cancelled the request and ignores the response.
            None => Ok(response::empty_response(StatusCode::ACCEPTED)),
        }
    }

    /// Returns the error for requests that were ended together with the session or the server, and `None` while
    /// `ended` has not fired.
    fn termination_error(&self, ended: &CancellationToken) -> Option<EndpointError> {
        let (status, message) = if self.inner.shared.draining.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
        } else {
            (StatusCode::NOT_FOUND, "the session has ended")
        };
        let error = RpcError::new(RpcError::INTERNAL, message);
        ended.is_cancelled().then_some(EndpointError { status, id: None, error })
    }
}

/// Rejection of a request that comes too late.
fn stopping_error() -> EndpointError {
    EndpointError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}

impl Drop for EndpointInner {
    fn drop(&mut self) {
        self.sessions.end_all(&self.shared);
        self.shared.draining.cancel();
        self.shared.closing.cancel();
    }
}

/// Builds the request whose messages go to `buffer`.
fn incoming_request(
    head: &RequestHead,
    id: &RawValue,
    method: &str,
    params: RequestParams,
    buffer: &Arc<EventBuffer>,
    can_stream: bool,
) -> IncomingRequest {
    IncomingRequest {
        id: id.to_owned(),
        method: method.to_owned(),
        params,
        sink: Sink::Http(buffer.clone()),
        can_stream,
        extensions: head.extensions.clone(),
    }
}

/// Returns a header as trimmed text; `None` if it is absent or not ASCII.
fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Whether the content type is JSON, whatever its parameters.
fn has_json_body(headers: &HeaderMap) -> bool {
    let content_type = header_text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}
