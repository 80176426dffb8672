//! Streamable HTTP, the server's end: one endpoint for every version. It knows no web framework; Host, Origin and the
//! size of a body are the business of the layer above.

mod body;
mod legacy;
mod modern;
mod response;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
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
    dispatch::IncomingRequest,
    event_buffer::{BufferReader, EventBuffer},
    options::ServerOptions,
    params::RequestParams,
    request_state::Sink,
    shared::ServerShared,
};
use crate::{
    era::{Era, LegacyVersion, MODERN_VERSION},
    error::RpcError,
    message::{self, IncomingMessage},
};

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";

/// Answers HTTP requests on behalf of a [`Service`]. Cheap to clone; the last one dropped ends everything.
#[derive(Debug, Clone)]
pub struct McpEndpoint {
    inner: Arc<EndpointInner>,
}

/// Holds sessions and tasks to the lifetime of the endpoint.
#[derive(Debug)]
struct EndpointInner {
    shared: Arc<ServerShared>,
    sessions: Arc<McpSessions>,
}

type EndpointResult = Result<Response<EndpointBody>, EndpointError>;

impl McpEndpoint {
    pub fn new(service: Arc<dyn Service>, options: ServerOptions) -> McpEndpoint {
        let owner = EndpointInner { shared: ServerShared::new(service, options), sessions: Arc::default() };
        McpEndpoint { inner: Arc::new(owner) }
    }

    /// Answers one request. Dropping the future or the response's body takes the request back.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<EndpointBody> {
        let (head, body) = request.into_parts();
        let reply = match head.method {
            _ if self.inner.shared.draining.is_cancelled() => {
                Err(EndpointError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop"))
            }
            Method::POST => self.post(&head, &body).await,
            Method::GET => self.get(&head),
            Method::DELETE => self.delete(&head),
            _ => Err(EndpointError::new(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are understood")),
        };
        reply.unwrap_or_else(EndpointError::into_response)
    }

    /// Ends all streams, lets what is being answered finish for a while, responds to the rest that it cannot be finished,
    /// and ends the sessions.
    pub async fn close(&self) {
        let EndpointInner { shared, sessions } = &*self.inner;
        shared.draining.cancel();
        sessions.drain();
        shared.tasks.close();
        let _in_time = timeout(shared.options.drain_timeout, shared.tasks.wait()).await;
        shared.stop().await;
        sessions.end_all(shared);
        shared.closing.cancel();
        let _in_time = timeout(shared.options.cleanup_timeout, shared.tasks.wait()).await;
    }

    async fn post(&self, head: &Parts, body: &Bytes) -> EndpointResult {
        if !has_json_body(&head.headers) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(EndpointError::new(status, "the Content-Type of a message is `application/json`"));
        }
        let accepts = AcceptedTypes::parse(&head.headers);
        if !accepts.json && !accepts.events {
            let message = "an answer is `application/json` or `text/event-stream`, which Accept excludes";
            return Err(EndpointError::new(StatusCode::NOT_ACCEPTABLE, message));
        }
        let malformed = |error| EndpointError { status: StatusCode::BAD_REQUEST, id: None, error };
        let text = std::str::from_utf8(body)
            .map_err(|_| malformed(RpcError::new(RpcError::PARSE, "the body is no UTF-8 text")))?;
        if text.trim_start().starts_with('[') {
            return self.handle_batch(head, text).await;
        }
        let incoming = message::parse_strict(text).map_err(|(id, error)| {
            let id = id.map(ToOwned::to_owned);
            EndpointError { status: StatusCode::BAD_REQUEST, id, error }
        })?;
        let modern = header_text(&head.headers, VERSION_HEADER) == Some(MODERN_VERSION);
        match incoming {
            IncomingMessage::Request { id, method, params } => {
                let of = |error| EndpointError::from_rpc_error(id, error);
                let read = RequestParams::parse(&method, params).map_err(of)?;
                if modern || read.protocol_version.is_some() {
                    return self.handle_modern(head, id, &method, read, accepts).await.map_err(of)?;
                }
                if method == "initialize" {
                    return self.initialize(head, id, params, accepts).await;
                }
                let session = self.find_session(head).map_err(|refusal| refusal.with_id(id))?;
                let feed = session.open_stream(self.inner.shared.options.queued_messages_max);
                let order = incoming_request(head, id, &method, read, &feed, accepts.events);
                let reader = feed.add_reader(None);
                let client = session.client_context();
                let ended = client.ended.clone();
                self.inner.shared.start_request(client, order).map_err(of)?;
                let answer = self.build_response(reader, session.peer.era, accepts).await;
                answer.map_or_else(|| self.unanswered_response(id, &ended), Ok)
            }
            IncomingMessage::Notification { method, .. } if modern => {
                crate::headers::check_standard_headers(&head.headers, &method, None)
                    .map_err(|why| malformed(RpcError::new(RpcError::HEADER_MISMATCH, why)))?;
                Ok(response::empty_response(StatusCode::ACCEPTED))
            }
            IncomingMessage::Response { .. } | IncomingMessage::ErrorWithoutId(_) if modern => Err(EndpointError::new(
                StatusCode::BAD_REQUEST,
                "there are no requests to answer in version 2026-07-28",
            )),
            other @ (IncomingMessage::Notification { .. }
            | IncomingMessage::Response { .. }
            | IncomingMessage::ErrorWithoutId(_)) => {
                let session = self.find_session(head)?;
                session.client_requests.handle_message(other);
                Ok(response::empty_response(StatusCode::ACCEPTED))
            }
        }
    }

    /// The answer as one body if it is the first thing said, else a stream; none when nothing will be said.
    async fn build_response(
        &self,
        mut reader: BufferReader,
        era: Era,
        accepts: AcceptedTypes,
    ) -> Option<Response<EndpointBody>> {
        let options = &self.inner.shared.options;
        let first = match accepts.events {
            // Who waits long is told at least that somebody works.
            true => timeout(options.keep_alive, reader.next()).await.ok(),
            false => Some(reader.next().await),
        };
        Some(match first {
            Some(None) => return None,
            Some(Some(message))
                if accepts.json
                    && let Some(last) = message.response_kind =>
            {
                response::json_response(response::response_status(era, last), message.text)
            }
            first => {
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

    /// What becomes of a request that ended without an answer.
    fn unanswered_response(&self, id: &RawValue, ended: &CancellationToken) -> EndpointResult {
        match self.termination_error(ended) {
            Some(refusal) => Err(refusal.with_id(id)),
            // Its client took it back, so nobody reads this.
            None => Ok(response::empty_response(StatusCode::ACCEPTED)),
        }
    }

    /// Why requests of a client that `ended` are not answered any more.
    fn termination_error(&self, ended: &CancellationToken) -> Option<EndpointError> {
        let (status, message) = match self.inner.shared.draining.is_cancelled() {
            true => (StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop"),
            false => (StatusCode::NOT_FOUND, "the session is over"),
        };
        let error = RpcError::new(RpcError::INTERNAL, message);
        ended.is_cancelled().then_some(EndpointError { status, id: None, error })
    }
}

impl Drop for EndpointInner {
    fn drop(&mut self) {
        self.sessions.end_all(&self.shared);
        self.shared.draining.cancel();
        self.shared.closing.cancel();
    }
}

fn incoming_request(
    head: &Parts,
    id: &RawValue,
    method: &str,
    params: RequestParams,
    feed: &Arc<EventBuffer>,
    talks: bool,
) -> IncomingRequest {
    let (id, method, extensions) = (id.to_owned(), method.to_owned(), head.extensions.clone());
    IncomingRequest { id, method, params, sink: Sink::Http(feed.clone()), can_stream: talks, extensions }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn has_json_body(headers: &HeaderMap) -> bool {
    let kind = header_text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}
