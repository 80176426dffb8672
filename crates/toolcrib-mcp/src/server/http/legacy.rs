//! Legacy HTTP clients: `initialize`, batches, GET event streams, DELETE, and the lookup of their session.
//!
//! A request with an unknown session id is answered with 404, upon which a client begins a new session; that is how
//! clients survive a restart of this process. Requests in a session that are not batches are started in `http`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;

use super::{
    EndpointInner, EndpointResult, McpEndpoint, RequestHead, SESSION_HEADER, VERSION_HEADER,
    body::{EndpointBody, EventIds},
    header_text, incoming_request,
    response::{self, AcceptedTypes, EndpointError},
    session::McpSession,
};
use crate::{
    era::{Era, LegacyVersion, MODERN_VERSION},
    error::RpcError,
    message::{self, IncomingMessage},
    server::{envelope, handshake, params::RequestParams},
};

impl McpEndpoint {
    /// Answers `initialize` and opens a session, whose id is in the response header.
    pub(super) async fn initialize(
        &self,
        head: &RequestHead,
        id: &RawValue,
        params: Option<&RawValue>,
        accepts: AcceptedTypes,
    ) -> EndpointResult {
        let EndpointInner { shared, sessions } = &*self.inner;
        let peer = handshake::legacy_peer(params, head.uri.query().unwrap_or_default());
        peer.set_extensions(head.extensions.clone());
        let peer = Arc::new(peer);
        let outcome = handshake::initialize_result(shared, &peer).await;
        let result = outcome.map_err(|error| EndpointError::from_rpc_error(id, error))?;
        // Opened last, so that a service which is not ready leaves no session behind.
        let Some(session) = sessions.open(shared, peer, head.extensions.get().cloned()) else {
            let error = RpcError::new(RpcError::INTERNAL, "too many sessions; try again later");
            return Err(EndpointError::from_rpc_error(id, error));
        };
        let text = envelope::encode_response(id, &Ok(result));
        let mut response = if accepts.json {
            response::json_response(StatusCode::OK, text)
        } else {
            // A client that accepts event streams only.
            response::event_stream_response(EndpointBody::single_event(&text))
        };
        if let Ok(session) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION_HEADER, session);
        }
        Ok(response)
    }

    /// Answers a batch, which clients up to 2025-03-26 may send, with a batch of responses. An invalid message in it is
    /// answered with an error; the others run.
    pub(super) async fn handle_batch(&self, head: &RequestHead, text: &str) -> EndpointResult {
        let rejected = |message: &str| Err(EndpointError::new(StatusCode::BAD_REQUEST, message));
        let shared = &self.inner.shared;
        let Ok(messages) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            let error = RpcError::new(RpcError::PARSE, "not JSON");
            return Err(EndpointError { status: StatusCode::BAD_REQUEST, id: None, error });
        };
        let session = self.find_session(head)?;
        if session.peer.era > Era::Legacy(LegacyVersion::V2025_03_26) {
            return rejected("this protocol version has no batches");
        }
        if messages.is_empty() || messages.len() > shared.options.max_batch_messages {
            return rejected(&format!("a batch must have 1 to {} messages", shared.options.max_batch_messages));
        }
        // Start all requests, then wait for their responses concurrently.
        let mut readers = Vec::new();
        let mut responses = Vec::new();
        for message in messages {
            let started = match message::parse_strict(message.get()) {
                Ok(IncomingMessage::Request { id, method, params }) => {
                    let buffer = session.open_stream(shared.options.max_queued_messages);
                    let reader = buffer.add_reader(None);
                    RequestParams::parse(&method, params)
                        .and_then(|params| {
                            // The responses share one body, so there is no stream for other messages.
                            let request = incoming_request(head, id, &method, params, &buffer, false);
                            shared.start_request(session.client_context(), request)
                        })
                        .map(|()| readers.push((id, reader)))
                        .map_err(|error| (Some(id), error))
                }
                Ok(other) => {
                    session.client_requests.handle_message(other);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err((id, error)) = started {
                responses.push(Bytes::from(envelope::encode_error(id, error)));
            }
        }
        // A request that was cancelled has no response; one that ended with its session or the server gets an error.
        let ended = session.client_context().ended;
        let waiting = readers.iter_mut().map(|(id, reader)| async {
            match reader.next().await {
                Some(message) => Some(message.text),
                None => self
                    .termination_error(&ended)
                    .map(|termination| Bytes::from(envelope::encode_error(Some(id), termination.error))),
            }
        });
        responses.extend(join_all(waiting).await.into_iter().flatten());
        // A batch of notifications only, or one whose requests were all cancelled.
        if responses.is_empty() {
            return Ok(response::empty_response(StatusCode::ACCEPTED));
        }
        Ok(response::json_response(StatusCode::OK, [b"[", responses.join(&b","[..]).as_slice(), b"]"].concat()))
    }

    /// Opens the event stream for notifications, or with `Last-Event-ID` resumes an interrupted stream. The id decides
    /// which stream that is: the one for notifications (number 0) or that of a request.
    pub(super) fn get(&self, head: &RequestHead) -> EndpointResult {
        self.require_session_version(head)?;
        let session = self.find_session(head)?;
        if !AcceptedTypes::parse(&head.headers).events {
            return Err(EndpointError::new(StatusCode::NOT_ACCEPTABLE, "Accept must allow `text/event-stream`"));
        }
        let shared = &self.inner.shared;
        // An event id has the form `STREAM-MESSAGE`.
        let position = header_text(&head.headers, "last-event-id").map(|id| {
            let (stream, message) = id.split_once('-')?;
            Some((session.find_stream(stream.parse().ok()?)?, message.parse().ok()?))
        });
        let (buffer, after) = match position {
            None => (session.notifications.clone(), None),
            Some(Some((buffer, after))) => (buffer, Some(after)),
            Some(None) => {
                let message = "the stream of this event is unknown or expired";
                return Err(EndpointError::new(StatusCode::BAD_REQUEST, message));
            }
        };
        // Readers of dead connections count until they are noticed, so more than one must be allowed.
        if buffer.reader_count() >= shared.options.max_readers_per_stream {
            let message = "this event stream has too many open connections";
            return Err(EndpointError::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        session.start_notifications(shared);
        // A resumed stream needs no priming event: its client knows a position already.
        let ids = if session.peer.era == Era::Legacy(LegacyVersion::V2025_11_25) && after.is_none() {
            EventIds::WithPriming
        } else {
            EventIds::Each
        };
        let body = EndpointBody::events(buffer.add_reader(after), ids, None, shared.options.keep_alive);
        Ok(response::event_stream_response(body))
    }

    /// Ends the session.
    pub(super) fn delete(&self, head: &RequestHead) -> EndpointResult {
        self.require_session_version(head)?;
        let session = self.find_session(head)?;
        self.inner.sessions.end(&self.inner.shared, &session.id);
        Ok(response::empty_response(StatusCode::OK))
    }

    /// Rejects GET and DELETE from clients of 2026-07-28, which has no sessions.
    fn require_session_version(&self, head: &RequestHead) -> Result<(), EndpointError> {
        match header_text(&head.headers, VERSION_HEADER) {
            Some(version) if version != MODERN_VERSION => Ok(()),
            None if head.headers.contains_key(SESSION_HEADER) => Ok(()),
            Some(_) | None => {
                Err(EndpointError::new(StatusCode::METHOD_NOT_ALLOWED, "only POST is supported without a session"))
            }
        }
    }

    /// Returns the session of a request. It must belong to the same [`SessionOwner`](super::SessionOwner); a session of
    /// another owner is reported as unknown, so that ids cannot be probed.
    pub(super) fn find_session(&self, head: &RequestHead) -> Result<Arc<McpSession>, EndpointError> {
        let headers = &head.headers;
        // Clients before 2025-06-18 send no version header; their session determines the version.
        if let Some(version) = header_text(headers, VERSION_HEADER)
            && version.parse::<Era>().is_err()
        {
            let error = handshake::unsupported_version(version);
            return Err(EndpointError { status: StatusCode::BAD_REQUEST, id: None, error });
        }
        let Some(id) = header_text(headers, SESSION_HEADER) else {
            let message = "the header `Mcp-Session-Id` is missing: begin with `initialize`, or use version 2026-07-28";
            return Err(EndpointError::new(StatusCode::BAD_REQUEST, message));
        };
        let unknown = || {
            EndpointError::new(StatusCode::NOT_FOUND, "unknown or expired session; begin a new one with `initialize`")
        };
        let session = self.inner.sessions.find(id, head.extensions.get()).ok_or_else(unknown)?;
        // The rights of the owner may have changed since the last request, such as the claims in its access token.
        session.peer.set_extensions(head.extensions.clone());
        Ok(session)
    }
}
