//! The MCP server: [`McpEndpoint`] for Streamable HTTP and [`serve_stream`] for stdio, both for every protocol version.
//!
//! A [`Service`] answers the requests. Sessions, headers, streams, cancellation and questions to the client are handled
//! here.
//!
//! A request passes: transport (`http`, `stdio`) ▶ parameters (`params`) ▶ task (`dispatch`) ▶ service ▶ response
//! (`request`, `envelope`) ▶ queue of its HTTP response (`sink`, `event_buffer`) or of the byte stream. Each request has
//! one task, and the task ends with exactly one of: a response, a cancellation, a disconnect of the client, or the
//! shutdown response of the service. The phases in between, and how one leads to another, are in `request`.

mod http;
mod options;
mod stdio;

mod dispatch;
mod request;

mod client_handle;
mod client_requests;
mod input_required;
mod suspended_requests;

mod change_notifications;
mod handshake;
mod subscriptions;

mod envelope;
mod event_buffer;
mod params;
mod shared;
mod sink;

use std::sync::Arc;

use ::http::Extensions;
use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::{
    client_handle::ClientHandle,
    http::{EndpointBody, McpEndpoint, SessionOwner},
    options::{HandlePrefix, ServerOptions},
    stdio::serve_stream,
};
use crate::{era::Era, error::RpcError};

/// Answers the requests of clients. Implementations never see a transport, a session id or a difference between
/// protocol versions, except [`McpPeer::era`]. They must not block the thread.
pub trait Service: Send + Sync + 'static {
    /// Describes the service for the result of `initialize` or `server/discover`. Bounded by
    /// [`ServerOptions::describe_timeout`]; a service that takes longer is reported as not ready.
    fn describe(&self, peer: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription>;

    /// Answers any request except those of the protocol itself (`initialize`, `server/discover`, `ping`,
    /// `subscriptions/listen`). The future continues for [`ServerOptions::cleanup_timeout`] after `request.cancel`. A
    /// panic fails this request only.
    fn handle_request(&self, request: McpRequest) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>>;

    /// Returns the changes that this client may see, from now on. The stream is dropped when the client disconnects.
    fn changes(&self, peer: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification>;

    /// Returns the input schema of a tool that this client may call, to check the headers that repeat its arguments.
    /// `None` skips the check; the call itself then fails or not in [`Service::handle_request`].
    fn input_schema(&self, peer: &Arc<McpPeer>, tool: &str) -> Option<Box<RawValue>>;

    /// Returns the response to a request of this method that cannot be finished because the server stops.
    fn shutdown_response(&self, _method: &str) -> Result<Box<RawValue>, RpcError> {
        Err(RpcError::new(RpcError::INTERNAL, "the server is stopping; try again"))
    }

    /// Called once when a client disconnected for good, so that its state can be dropped. For a stateless peer that is
    /// after each request. Must not block: it may be called while a connection is dropped.
    fn on_disconnect(&self, peer: &Arc<McpPeer>);
}

/// A client. There is one value per session or byte stream; over stateless HTTP (2026-07-28) one per request.
#[derive(Debug)]
pub struct McpPeer {
    /// Unique in this process.
    pub id: u64,
    /// Era and version of the client, for services that must know it, such as a gateway.
    pub era: Era,
    /// The client's name for itself. Untrusted: use it for display only.
    pub name: Option<String>,
    /// The client capabilities, a JSON object.
    pub capabilities: Box<RawValue>,
    /// Query of the endpoint URL that the client used, without the `?`; empty over a byte stream.
    pub query: String,
    /// Whether the value belongs to one request only: without a session, the server cannot tell whether the next
    /// request comes from the same client.
    pub is_stateless: bool,
    /// See [`McpPeer::extensions`].
    extensions: watch::Sender<Arc<Extensions>>,
}

impl McpPeer {
    /// Extensions of the last HTTP request of the session, or of the one request of a stateless peer: set by the layer
    /// above, such as the principal. Empty over a byte stream.
    pub fn extensions(&self) -> Arc<Extensions> {
        self.extensions.borrow().clone()
    }

    /// Returns a receiver that is notified of each request's extensions.
    pub fn watch_extensions(&self) -> watch::Receiver<Arc<Extensions>> {
        self.extensions.subscribe()
    }
}

/// Self-description of the service, sent in the handshake.
#[derive(Debug)]
pub struct ServiceDescription {
    /// The server capabilities, a JSON object.
    pub capabilities: Box<RawValue>,
    /// Text for the model on how to use the tools.
    pub instructions: Option<String>,
}

/// A request for the [`Service`].
#[derive(Debug)]
pub struct McpRequest {
    /// Name of the method, such as `tools/call`. Any name that the protocol does not handle itself is passed on.
    pub method: String,
    /// The parameters as the client sent them, without the hop-by-hop keys of `_meta`.
    pub params: Option<Box<RawValue>>,
    pub peer: Arc<McpPeer>,
    /// Fires when the client cancels the request or disconnects.
    pub cancel: CancellationToken,
    /// Sends notifications and questions to the client while the request runs.
    pub client: ClientHandle,
    /// Extensions of the HTTP request, set by the layer above; empty over a byte stream.
    pub extensions: Arc<Extensions>,
}

/// A change that is announced to clients, so that they read the list or the resource again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeNotification {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// The content of one resource.
    Resource { uri: String },
}
