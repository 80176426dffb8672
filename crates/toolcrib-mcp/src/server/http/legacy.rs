//! Clients of old: the handshake, batches, streams of news, and the session all of it belongs to.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, StatusCode, request::Parts};
use serde_json::value::RawValue;

use super::{
    Endpoint, Owner, Reply, SESSION, VERSION,
    body::{Body, Ids},
    order,
    reply::{self, Accepts, Refusal},
    said,
    session::Session,
};
use crate::{
    era::{Era, MODERN, Version},
    error::RpcError,
    message::{self, Incoming},
    server::{envelope, greet, params::Params},
};

impl Endpoint {
    pub(super) async fn initialize(
        &self,
        head: &Parts,
        id: &RawValue,
        params: Option<&RawValue>,
        accepts: Accepts,
    ) -> Reply {
        let Owner { shared, sessions } = &*self.owner;
        let peer = Arc::new(greet::newcomer(params, head.uri.query().unwrap_or_default()));
        let outcome = greet::initialize(shared, &peer).await;
        let greeted = outcome.map_err(|error| Refusal::of(id, error))?;
        let Some(session) = sessions.open(shared, peer, head.extensions.get().cloned()) else {
            let error = RpcError::new(RpcError::INTERNAL, "there are too many sessions");
            return Err(Refusal::of(id, error));
        };
        let text = envelope::response(id, &Ok(greeted));
        let mut response = if accepts.json {
            reply::json(StatusCode::OK, text)
        } else {
            reply::events(Body::whole(format!("data: {text}\n\n")))
        };
        if let Ok(session) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    /// A batch, as clients up to 2025-03-26 may send it, is answered with a batch.
    pub(super) async fn batch(&self, head: &Parts, text: &str) -> Reply {
        let refused = |message: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
        let shared = &self.owner.shared;
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            let error = RpcError::new(RpcError::PARSE, "this is no JSON");
            return Err(Refusal { status: StatusCode::BAD_REQUEST, id: None, error });
        };
        let session = self.session(head)?;
        if session.peer.era > Era::Legacy(Version::V2025_03_26) {
            return refused("there are no batches in this version");
        }
        if parts.is_empty() || parts.len() > shared.options.batch_max {
            return refused("a batch has at least one message, and not too many");
        }
        let mut readers = Vec::new();
        let mut answers = Vec::new();
        for part in parts {
            let begun = match message::read_strictly(part.get()) {
                Ok(Incoming::Request { id, method, params }) => {
                    let feed = session.stream(shared.options.queue);
                    let reader = feed.reader(None);
                    Params::read(&method, params)
                        .and_then(|params| {
                            shared.begin(session.client(), order(head, id, &method, params, &feed, false))
                        })
                        .map(|()| readers.push((id, reader)))
                        .map_err(|error| (Some(id), error))
                }
                Ok(other) => {
                    session.desk.take_in(other);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err((id, error)) = begun {
                answers.push(Bytes::from(envelope::refusal(id, error)));
            }
        }
        let ended = session.client().ended;
        let begun = readers.iter_mut().map(|(id, reader)| async {
            match reader.next().await {
                Some(message) => Some(message.text),
                None => self.cut_off(&ended).map(|cut| Bytes::from(envelope::refusal(Some(id), cut.error))),
            }
        });
        answers.extend(join_all(begun).await.into_iter().flatten());
        if answers.is_empty() {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        }
        Ok(reply::json(StatusCode::OK, [b"[", answers.join(&b","[..]).as_slice(), b"]"].concat()))
    }

    /// A stream for what nobody asked for, or one that was cut.
    pub(super) fn get(&self, head: &Parts) -> Reply {
        self.without_sessions(head)?;
        let session = self.session(head)?;
        if !Accepts::read(&head.headers).events {
            return Err(Refusal::new(
                StatusCode::NOT_ACCEPTABLE,
                "a stream is `text/event-stream`, which Accept excludes",
            ));
        }
        let shared = &self.owner.shared;
        let place = said(&head.headers, "last-event-id").map(|id| {
            let (stream, message) = id.split_once('-')?;
            Some((session.find_stream(stream.parse().ok()?)?, message.parse().ok()?))
        });
        let (feed, after) = match place {
            None => (session.news.clone(), None),
            Some(Some((feed, after))) => (feed, Some(after)),
            Some(None) => {
                return Err(Refusal::new(StatusCode::BAD_REQUEST, "nothing is kept of the stream of this event"));
            }
        };
        if feed.readers() >= shared.options.streams_max {
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "this session has too many streams open"));
        }
        session.listen(shared);
        let ids = if session.peer.era == Era::Legacy(Version::V2025_11_25) && after.is_none() {
            Ids::Primed
        } else {
            Ids::Each
        };
        Ok(reply::events(Body::events(feed.reader(after), ids, None, shared.options.keep_alive)))
    }

    pub(super) fn delete(&self, head: &Parts) -> Reply {
        self.without_sessions(head)?;
        let session = self.session(head)?;
        self.owner.sessions.end(&self.owner.shared, &session.id);
        Ok(reply::empty(StatusCode::OK))
    }

    /// To whom sessions mean nothing, neither do the methods that need one.
    fn without_sessions(&self, head: &Parts) -> Result<(), Refusal> {
        match said(&head.headers, VERSION) {
            Some(version) if version != MODERN => Ok(()),
            None if head.headers.contains_key(SESSION) => Ok(()),
            Some(_) | None => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "without a session there is only POST")),
        }
    }

    pub(super) fn session(&self, head: &Parts) -> Result<Arc<Session>, Refusal> {
        let headers = &head.headers;
        // Clients before 2025-06-18 say no version; they are known by their session.
        if let Some(version) = said(headers, VERSION)
            && version.parse::<Era>().is_err()
        {
            let error = greet::unsupported(version);
            return Err(Refusal { status: StatusCode::BAD_REQUEST, id: None, error });
        }
        let Some(id) = said(headers, SESSION) else {
            let message =
                "the header `Mcp-Session-Id` is missing: begin with `initialize`, or speak version 2026-07-28";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
        };
        let unknown = || {
            Refusal::new(StatusCode::NOT_FOUND, "this session is unknown or over; begin a new one with `initialize`")
        };
        self.owner.sessions.find(id, head.extensions.get()).ok_or_else(unknown)
    }
}
