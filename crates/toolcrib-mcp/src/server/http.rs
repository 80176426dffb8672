//! Streamable HTTP, the server's end: one endpoint for every version. It knows no web framework; Host, Origin and the
//! size of a body are the business of the layer above.

mod body;
mod legacy;
mod modern;
mod reply;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use self::body::Body;
pub use self::session::SessionOwner;
use self::{
    body::Ids,
    reply::{Accepts, Refusal},
    session::Sessions,
};
use super::{
    Service,
    exchange::Sink,
    feed::{Feed, Reader},
    job::Order,
    options::ServerOptions,
    params::Params,
    shared::Shared,
};
use crate::{
    era::{Era, MODERN, Version},
    error::RpcError,
    message::{self, Incoming},
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
            _ if self.owner.shared.draining.is_cancelled() => {
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop"))
            }
            Method::POST => self.post(&head, &body).await,
            Method::GET => self.get(&head),
            Method::DELETE => self.delete(&head),
            _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are understood")),
        };
        reply.unwrap_or_else(Refusal::response)
    }

    /// Ends all streams, lets what is being answered finish for a while, responds to the rest that it cannot be finished,
    /// and ends the sessions.
    pub async fn close(&self) {
        let Owner { shared, sessions } = &*self.owner;
        shared.draining.cancel();
        sessions.drain();
        shared.tasks.close();
        let _in_time = timeout(shared.options.drain_timeout, shared.tasks.wait()).await;
        shared.stop().await;
        sessions.end_all(shared);
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
                let session = self.session(head).map_err(|refusal| refusal.under(id))?;
                let feed = session.stream(self.owner.shared.options.queue);
                let order = order(head, id, &method, read, &feed, accepts.events);
                let reader = feed.reader(None);
                let client = session.client();
                let ended = client.ended.clone();
                self.owner.shared.begin(client, order).map_err(of)?;
                let answer = self.respond(reader, session.peer.era, accepts).await;
                answer.map_or_else(|| self.unanswered(id, &ended), Ok)
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
                let session = self.session(head)?;
                session.desk.take_in(other);
                Ok(reply::empty(StatusCode::ACCEPTED))
            }
        }
    }

    /// The answer as one body if it is the first thing said, else a stream; none when nothing will be said.
    async fn respond(&self, mut reader: Reader, era: Era, accepts: Accepts) -> Option<Response<Body>> {
        let options = &self.owner.shared.options;
        let first = match accepts.events {
            // Who waits long is told at least that somebody works.
            true => timeout(options.keep_alive, reader.next()).await.ok(),
            false => Some(reader.next().await),
        };
        Some(match first {
            Some(None) => return None,
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
        })
    }

    /// What becomes of a request that ended without an answer.
    fn unanswered(&self, id: &RawValue, ended: &CancellationToken) -> Reply {
        match self.cut_off(ended) {
            Some(refusal) => Err(refusal.under(id)),
            // Its client took it back, so nobody reads this.
            None => Ok(reply::empty(StatusCode::ACCEPTED)),
        }
    }

    /// Why requests of a client that `ended` are not answered any more.
    fn cut_off(&self, ended: &CancellationToken) -> Option<Refusal> {
        let (status, message) = match self.owner.shared.draining.is_cancelled() {
            true => (StatusCode::SERVICE_UNAVAILABLE, "the server is about to stop"),
            false => (StatusCode::NOT_FOUND, "the session is over"),
        };
        let error = RpcError::new(RpcError::INTERNAL, message);
        ended.is_cancelled().then_some(Refusal { status, id: None, error })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.sessions.end_all(&self.shared);
        self.shared.draining.cancel();
        self.shared.closing.cancel();
    }
}

fn order(head: &Parts, id: &RawValue, method: &str, params: Params, feed: &Arc<Feed>, talks: bool) -> Order {
    let (id, method, extensions) = (id.to_owned(), method.to_owned(), head.extensions.clone());
    Order { id, method, params, sink: Sink::Feed(feed.clone()), talks, extensions }
}

fn said<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = said(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}
