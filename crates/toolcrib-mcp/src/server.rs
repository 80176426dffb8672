//! The server side: one endpoint for every protocol version, over HTTP and over a byte stream. What is answered is a
//! [`Service`]'s business; sessions, headers, streams, cancellation and asking back are done here.

mod envelope;
mod exchange;
mod feed;
mod greet;
mod held;
mod http;
mod job;
mod listen;
mod options;
mod outlet;
mod params;
mod shared;
mod stream;

use std::sync::Arc;

use ::http::Extensions;
use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

pub use self::{
    http::{Body, Endpoint, SessionOwner},
    options::ServerOptions,
    outlet::Outlet,
    stream::serve_stream,
};
use crate::{era::Era, error::RpcError};

/// Answers clients. It never sees a transport, a session id or a version's peculiarities.
pub trait Service: Send + Sync + 'static {
    /// What a client is told first, by `initialize` or `server/discover`.
    fn greeting(&self, peer: &Arc<Peer>) -> BoxFuture<'static, Greeting>;

    /// Answers any request but those of the protocol itself (`initialize`, `server/discover`, `ping`,
    /// `subscriptions/listen`).
    fn request(&self, request: Request) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>>;

    /// What changes for this client from now on. Ends when the client stops listening.
    fn changes(&self, peer: &Arc<Peer>) -> BoxStream<'static, Change>;

    /// The input schema of a tool this client may call, for the headers that repeat its arguments.
    fn input_schema(&self, peer: &Arc<Peer>, tool: &str) -> Option<Box<RawValue>>;

    /// The response to a request that cannot be finished because the server stops.
    fn unfinished(&self, _method: &str) -> Result<Box<RawValue>, RpcError> {
        Err(RpcError::new(RpcError::INTERNAL, "the server is stopping; try again"))
    }

    /// This client is gone and will not come back.
    fn gone(&self, peer: &Arc<Peer>);
}

/// A client: one for each session or stream; one for each request where there are no sessions.
#[derive(Debug)]
pub struct Peer {
    /// Unique in this process.
    pub id: u64,
    pub era: Era,
    /// What it calls itself. Not to be trusted with more than display.
    pub name: Option<String>,
    pub capabilities: Box<RawValue>,
    /// The query of the address it came by, without the `?`; empty over a byte stream.
    pub query: String,
    /// It is made for one request, for there is no session to tell by whether the next comes from the same client.
    pub fleeting: bool,
}

#[derive(Debug)]
pub struct Greeting {
    /// The server capabilities, a JSON object.
    pub capabilities: Box<RawValue>,
    pub instructions: Option<String>,
}

#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// As they came, without the protocol's own keys in `_meta`.
    pub params: Option<Box<RawValue>>,
    pub peer: Arc<Peer>,
    /// Fires when the client takes the request back or vanishes.
    pub cancel: CancellationToken,
    pub outlet: Outlet,
    /// What whoever took the HTTP request laid beside it; nothing over a byte stream.
    pub extensions: Extensions,
}

/// Something a client may want to read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Tools,
    Prompts,
    Resources,
    Resource { uri: String },
}
