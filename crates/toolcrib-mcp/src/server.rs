//! The server side: one endpoint for every protocol version, over HTTP and over a byte stream. What is answered is a
//! [`Service`]'s business; sessions, headers, streams, cancellation and asking back are done here.

mod client_handle;
mod dispatch;
mod envelope;
mod event_buffer;
mod handshake;
mod http;
mod input_required;
mod options;
mod params;
mod request_state;
mod shared;
mod stdio;
mod subscriptions;

use std::sync::Arc;

use ::http::Extensions;
use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

pub use self::{
    client_handle::ClientHandle,
    http::{EndpointBody, McpEndpoint, SessionOwner},
    options::ServerOptions,
    stdio::serve_stream,
};
use crate::{era::Era, error::RpcError};

/// Answers clients. It never sees a transport, a session id or a version's peculiarities.
pub trait Service: Send + Sync + 'static {
    /// What a client is told first, by `initialize` or `server/discover`.
    fn describe(&self, peer: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription>;

    /// Answers any request but those of the protocol itself (`initialize`, `server/discover`, `ping`,
    /// `subscriptions/listen`).
    fn handle_request(&self, request: McpRequest) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>>;

    /// What changes for this client from now on. Ends when the client stops listening.
    fn changes(&self, peer: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification>;

    /// The input schema of a tool this client may call, for the headers that repeat its arguments.
    fn input_schema(&self, peer: &Arc<McpPeer>, tool: &str) -> Option<Box<RawValue>>;

    /// The response to a request that cannot be finished because the server stops.
    fn shutdown_response(&self, _method: &str) -> Result<Box<RawValue>, RpcError> {
        Err(RpcError::new(RpcError::INTERNAL, "the server is stopping; try again"))
    }

    /// This client is gone and will not come back.
    fn on_disconnect(&self, peer: &Arc<McpPeer>);
}

/// A client: one for each session or stream; one for each request where there are no sessions.
#[derive(Debug)]
pub struct McpPeer {
    /// Unique in this process.
    pub id: u64,
    pub era: Era,
    /// What it calls itself. Not to be trusted with more than display.
    pub name: Option<String>,
    pub capabilities: Box<RawValue>,
    /// The query of the address it came by, without the `?`; empty over a byte stream.
    pub query: String,
    /// It is made for one request, for there is no session to tell by whether the next comes from the same client.
    pub is_stateless: bool,
}

#[derive(Debug)]
pub struct ServiceDescription {
    /// The server capabilities, a JSON object.
    pub capabilities: Box<RawValue>,
    pub instructions: Option<String>,
}

#[derive(Debug)]
pub struct McpRequest {
    pub method: String,
    /// As they came, without the protocol's own keys in `_meta`.
    pub params: Option<Box<RawValue>>,
    pub peer: Arc<McpPeer>,
    /// Fires when the client takes the request back or vanishes.
    pub cancel: CancellationToken,
    pub client: ClientHandle,
    /// What whoever took the HTTP request laid beside it; nothing over a byte stream.
    pub extensions: Extensions,
}

/// Something a client may want to read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeNotification {
    Tools,
    Prompts,
    Resources,
    Resource { uri: String },
}
