//! Streamable HTTP, the server's end: one endpoint for every version. It knows no web framework; Host, Origin and the
//! size of a body are the business of the layer above.

mod body;
mod modern;
mod reply;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use serde_json::value::RawValue;
use tokio::time::timeout;

pub use self::body::Body;
use self::{
    body::Ids,
    reply::{Accepts, Refusal},
    session::{Session, Sessions},
};
use super::{
    Service, envelope,
    exchange::Sink,
    feed::{Feed, Reader},
    greet,
    job::Order,
    options::ServerOptions,
    params::Params,
    shared::Shared,
};
use crate::{
    era::{Era, MODERN, Version},
    error::RpcError,
    message::{self, Incoming, RawObject},
};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// Answers HTTP requests on behalf of a [`Service`]. Cheap to clone; the last one dropped ends everything.
#[derive(Debug, Clone)]
pub struct Endpoint {
    owner: Arc<Owner>,
}

/// Holds sessions and tasks to the lifetime of the endpoint.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
}

type Reply = Result<Response<Body>, Refusal>;

impl Endpoint {
    pub fn new(service: Arc<dyn Service>, options: ServerOptions) -> Endpoint {
        let owner = Owner { shared: Shared::new(service, options), sessions: Arc::default() };
        Endpoint { owner: Arc::new(owner) }
    }

    /// Answers one request. Dropping the future or the response's body takes the request back.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let reply = match head.method {
            Method::POST => self.post(&head, &body).await,
            Method::GET => self.get(&head),
            Method::DELETE => self.delete(&head),
            _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are understood")),
        };
        reply.unwrap_or_else(Refusal::response)
    }

    /// Ends all sessions and streams, and what is still being answered after a moment.
    pub async fn close(&self) {
        let Owner { shared, sessions } = &*self.owner;
        shared.tasks.close();
        shared.draining.cancel();
        sessions.end_all(shared);
        let _in_time = timeout(shared.options.farewell, shared.tasks.wait()).await;
        shared.closing.cancel();
        let _in_time = timeout(shared.options.farewell, shared.tasks.wait()).await;
    }

    async fn post(&self, head: &Parts, body: &Bytes) -> Reply {
        if !is_json(&head.headers) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Refusal::new(status, "the Content-Type of a message is `application/json`"));
        }
        let accepts = Accepts::read(&head.headers);
        if !accepts.json && !accepts.events {
            let message = "an answer is `application/json` or `text/event-stream`, which Accept excludes";
            return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, message));
        }
        let malformed = |error| Refusal { status: StatusCode::BAD_REQUEST, id: None, error };
        let text = std::str::from_utf8(body)
            .map_err(|_| malformed(RpcError::new(RpcError::PARSE, "the body is no UTF-8 text")))?;
        if text.trim_start().starts_with('[') {
            return self.batch(head, text).await;
        }
        let incoming = message::read_strictly(text).map_err(|(id, error)| {
            let id = id.map(ToOwned::to_owned);
            Refusal { status: StatusCode::BAD_REQUEST, id, error }
        })?;
        let modern = said(&head.headers, VERSION) == Some(MODERN);
        match incoming {
            Incoming::Request { id, method, params } => {
                let of = |error| Refusal::of(id, error);
                let read = Params::read(&method, params).map_err(of)?;
                if modern || read.version.is_some() {
                    return self.modern(head, id, &method, read, accepts).await.map_err(of)?;
                }
                if method == "initialize" {
                    return self.initialize(head, id, params, accepts).await;
                }
                let session = self.session(&head.headers)?;
                let feed = session.stream(self.owner.shared.options.queue);
                let order = order(id, &method, read, &feed, accepts.events);
                let reader = feed.reader(None);
                self.owner.shared.begin(session.client(), order).map_err(of)?;
                Ok(self.respond(reader, session.peer.era, accepts).await)
            }
            Incoming::Notification { method, .. } if modern => {
                crate::headers::check_standard(&head.headers, &method, None)
                    .map_err(|why| malformed(RpcError::new(RpcError::HEADER_MISMATCH, why)))?;
                Ok(reply::empty(StatusCode::ACCEPTED))
            }
            Incoming::Answer { .. } | Incoming::Refusal(_) if modern => {
                Err(Refusal::new(StatusCode::BAD_REQUEST, "there are no requests to answer in version 2026-07-28"))
            }
            other @ (Incoming::Notification { .. } | Incoming::Answer { .. } | Incoming::Refusal(_)) => {
                let session = self.session(&head.headers)?;
                take_in(&session, other);
                Ok(reply::empty(StatusCode::ACCEPTED))
            }
        }
    }

    async fn initialize(&self, head: &Parts, id: &RawValue, params: Option<&RawValue>, accepts: Accepts) -> Reply {
        let Owner { shared, sessions } = &*self.owner;
        let peer = Arc::new(greet::newcomer(params, head.uri.query().unwrap_or_default()));
        let outcome = greet::initialize(shared, &peer).await;
        let greeted = outcome.map_err(|error| Refusal::of(id, error))?;
        let Some(session) = sessions.open(shared, peer) else {
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
    async fn batch(&self, head: &Parts, text: &str) -> Reply {
        let refused = |message: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
        let shared = &self.owner.shared;
        let session = self.session(&head.headers)?;
        if session.peer.era > Era::Legacy(Version::V2025_03_26) {
            return refused("there are no batches in this version");
        }
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            let error = RpcError::new(RpcError::PARSE, "this is no JSON");
            return Err(Refusal { status: StatusCode::BAD_REQUEST, id: None, error });
        };
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
                        .and_then(|params| shared.begin(session.client(), order(id, &method, params, &feed, false)))
                        .map(|()| readers.push(reader))
                        .map_err(|error| (Some(id), error))
                }
                Ok(other) => {
                    take_in(&session, other);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err((id, error)) = begun {
                answers.push(Bytes::from(envelope::refusal(id, error)));
            }
        }
        let begun = readers.iter_mut().map(Reader::next);
        answers.extend(join_all(begun).await.into_iter().flatten().map(|message| message.text));
        if answers.is_empty() {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        }
        Ok(reply::json(StatusCode::OK, [b"[", answers.join(&b","[..]).as_slice(), b"]"].concat()))
    }

    /// The answer as one body if it is the first thing said, else a stream.
    async fn respond(&self, mut reader: Reader, era: Era, accepts: Accepts) -> Response<Body> {
        let options = &self.owner.shared.options;
        let first = match accepts.events {
            // Who waits long is told at least that somebody works.
            true => timeout(options.keep_alive, reader.next()).await.ok(),
            false => Some(reader.next().await),
        };
        match first {
            // It was taken back, so nobody reads this.
            Some(None) => reply::empty(StatusCode::ACCEPTED),
            Some(Some(message))
                if accepts.json
                    && let Some(last) = message.last =>
            {
                reply::json(reply::status(era, last), message.text)
            }
            first => {
                let ids = match era {
                    Era::Modern => Ids::None,
                    Era::Legacy(Version::V2025_11_25) => Ids::Primed,
                    Era::Legacy(_) => Ids::Each,
                };
                if ids != Ids::None {
                    reader.feed().resumable(options.resume_within);
                }
                reply::events(Body::events(reader, ids, first.flatten(), options.keep_alive))
            }
        }
    }

    /// A stream for what nobody asked for, or one that was cut.
    fn get(&self, head: &Parts) -> Reply {
        self.without_sessions(head)?;
        let session = self.session(&head.headers)?;
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

    fn delete(&self, head: &Parts) -> Reply {
        self.without_sessions(head)?;
        let session = self.session(&head.headers)?;
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

    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Refusal> {
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
        self.owner.sessions.find(id).ok_or_else(unknown)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.sessions.end_all(&self.shared);
        self.shared.closing.cancel();
    }
}

/// Anything from a client of old that needs no answer.
fn take_in(session: &Session, incoming: Incoming<'_>) {
    match incoming {
        Incoming::Notification { method, params } if method == "notifications/cancelled" => {
            let params = params.and_then(RawObject::open).unwrap_or_default();
            if let Some(id) = params.get("requestId") {
                session.desk.cancel(id);
            }
        }
        Incoming::Answer { id, outcome } => {
            session.desk.answer(id, outcome.map(ToOwned::to_owned));
        }
        Incoming::Notification { .. } | Incoming::Refusal(_) | Incoming::Request { .. } => {}
    }
}

fn order(id: &RawValue, method: &str, params: Params, feed: &Arc<Feed>, talks: bool) -> Order {
    Order { id: id.to_owned(), method: method.to_owned(), params, sink: Sink::Feed(feed.clone()), talks }
}

fn said<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = said(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}
