//! Clients of old: the handshake, batches, streams of news, and the session all of it belongs to.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, StatusCode, request::Parts};
use serde_json::value::RawValue;

use super::{
    EndpointInner, EndpointResult, McpEndpoint, SESSION_HEADER, VERSION_HEADER,
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
    pub(super) async fn initialize(
        &self,
        head: &Parts,
        id: &RawValue,
        params: Option<&RawValue>,
        accepts: AcceptedTypes,
    ) -> EndpointResult {
        let EndpointInner { shared, sessions } = &*self.inner;
        let peer = Arc::new(handshake::legacy_peer(params, head.uri.query().unwrap_or_default()));
        let outcome = handshake::initialize_result(shared, &peer).await;
        let greeted = outcome.map_err(|error| EndpointError::from_rpc_error(id, error))?;
        let Some(session) = sessions.open(shared, peer, head.extensions.get().cloned()) else {
            let error = RpcError::new(RpcError::INTERNAL, "there are too many sessions");
            return Err(EndpointError::from_rpc_error(id, error));
        };
        let text = envelope::encode_response(id, &Ok(greeted));
        let mut response = if accepts.json {
            response::json_response(StatusCode::OK, text)
        } else {
            response::event_stream_response(EndpointBody::full(format!("data: {text}\n\n")))
        };
        if let Ok(session) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION_HEADER, session);
        }
        Ok(response)
    }

    /// A batch, as clients up to 2025-03-26 may send it, is answered with a batch.
    pub(super) async fn handle_batch(&self, head: &Parts, text: &str) -> EndpointResult {
        let refused = |message: &str| Err(EndpointError::new(StatusCode::BAD_REQUEST, message));
        let shared = &self.inner.shared;
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            let error = RpcError::new(RpcError::PARSE, "this is no JSON");
            return Err(EndpointError { status: StatusCode::BAD_REQUEST, id: None, error });
        };
        let session = self.find_session(head)?;
        if session.peer.era > Era::Legacy(LegacyVersion::V2025_03_26) {
            return refused("there are no batches in this version");
        }
        if parts.is_empty() || parts.len() > shared.options.batch_max {
            return refused("a batch has at least one message, and not too many");
        }
        let mut readers = Vec::new();
        let mut answers = Vec::new();
        for part in parts {
            let begun = match message::parse_strict(part.get()) {
                Ok(IncomingMessage::Request { id, method, params }) => {
                    let feed = session.open_stream(shared.options.queued_messages_max);
                    let reader = feed.add_reader(None);
                    RequestParams::parse(&method, params)
                        .and_then(|params| {
                            shared.start_request(
                                session.client_context(),
                                incoming_request(head, id, &method, params, &feed, false),
                            )
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
            if let Err((id, error)) = begun {
                answers.push(Bytes::from(envelope::encode_error(id, error)));
            }
        }
        let ended = session.client_context().ended;
        let begun = readers.iter_mut().map(|(id, reader)| async {
            match reader.next().await {
                Some(message) => Some(message.text),
                None => {
                    self.termination_error(&ended).map(|cut| Bytes::from(envelope::encode_error(Some(id), cut.error)))
                }
            }
        });
        answers.extend(join_all(begun).await.into_iter().flatten());
        if answers.is_empty() {
            return Ok(response::empty_response(StatusCode::ACCEPTED));
        }
        Ok(response::json_response(StatusCode::OK, [b"[", answers.join(&b","[..]).as_slice(), b"]"].concat()))
    }

    /// A stream for what nobody asked for, or one that was cut.
    pub(super) fn get(&self, head: &Parts) -> EndpointResult {
        self.require_session_version(head)?;
        let session = self.find_session(head)?;
        if !AcceptedTypes::parse(&head.headers).events {
            return Err(EndpointError::new(
                StatusCode::NOT_ACCEPTABLE,
                "a stream is `text/event-stream`, which Accept excludes",
            ));
        }
        let shared = &self.inner.shared;
        let place = header_text(&head.headers, "last-event-id").map(|id| {
            let (stream, message) = id.split_once('-')?;
            Some((session.find_stream(stream.parse().ok()?)?, message.parse().ok()?))
        });
        let (feed, after) = match place {
            None => (session.notifications.clone(), None),
            Some(Some((feed, after))) => (feed, Some(after)),
            Some(None) => {
                return Err(EndpointError::new(StatusCode::BAD_REQUEST, "nothing is kept of the stream of this event"));
            }
        };
        if feed.reader_count() >= shared.options.streams_max {
            return Err(EndpointError::new(StatusCode::TOO_MANY_REQUESTS, "this session has too many streams open"));
        }
        session.start_notifications(shared);
        let ids = if session.peer.era == Era::Legacy(LegacyVersion::V2025_11_25) && after.is_none() {
            EventIds::WithPriming
        } else {
            EventIds::Each
        };
        Ok(response::event_stream_response(EndpointBody::events(
            feed.add_reader(after),
            ids,
            None,
            shared.options.keep_alive,
        )))
    }

    pub(super) fn delete(&self, head: &Parts) -> EndpointResult {
        self.require_session_version(head)?;
        let session = self.find_session(head)?;
        self.inner.sessions.end(&self.inner.shared, &session.id);
        Ok(response::empty_response(StatusCode::OK))
    }

    /// To whom sessions mean nothing, neither do the methods that need one.
    fn require_session_version(&self, head: &Parts) -> Result<(), EndpointError> {
        match header_text(&head.headers, VERSION_HEADER) {
            Some(version) if version != MODERN_VERSION => Ok(()),
            None if head.headers.contains_key(SESSION_HEADER) => Ok(()),
            Some(_) | None => {
                Err(EndpointError::new(StatusCode::METHOD_NOT_ALLOWED, "without a session there is only POST"))
            }
        }
    }

    pub(super) fn find_session(&self, head: &Parts) -> Result<Arc<McpSession>, EndpointError> {
        let headers = &head.headers;
        // Clients before 2025-06-18 say no version; they are known by their session.
        if let Some(version) = header_text(headers, VERSION_HEADER)
            && version.parse::<Era>().is_err()
        {
            let error = handshake::unsupported_version(version);
            return Err(EndpointError { status: StatusCode::BAD_REQUEST, id: None, error });
        }
        let Some(id) = header_text(headers, SESSION_HEADER) else {
            let message =
                "the header `Mcp-Session-Id` is missing: begin with `initialize`, or speak version 2026-07-28";
            return Err(EndpointError::new(StatusCode::BAD_REQUEST, message));
        };
        let unknown = || {
            EndpointError::new(
                StatusCode::NOT_FOUND,
                "this session is unknown or over; begin a new one with `initialize`",
            )
        };
        self.inner.sessions.find(id, head.extensions.get()).ok_or_else(unknown)
    }
}
