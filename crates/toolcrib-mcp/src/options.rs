//! Parameters of the client: server address, options and limits of a connection, options and callbacks of a request.
//!
//! [`ClientOptions`] live as long as the connection, [`RequestOptions`] as long as one request. A callback of the
//! request takes precedence over the same callback of the connection.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{connection::deadline_after, era::Era, error::RpcError, message::empty_object};

/// Address of the server and transport to reach it. `Debug` prints the transport only: URL and headers may contain
/// secrets.
pub enum ConnectTarget {
    /// A byte stream with one message per line, such as stdout and stdin of a child process. The caller owns the
    /// process.
    Stream { reader: Box<dyn AsyncRead + Send + Unpin>, writer: Box<dyn AsyncWrite + Send + Unpin> },
    /// Streamable HTTP, with a fallback to HTTP+SSE if the server supports nothing newer.
    Http { url: Url, headers: HeaderMap },
    /// HTTP+SSE of 2024-11-05.
    Sse { url: Url, headers: HeaderMap },
}

/// Options of a connection.
#[derive(Clone)]
pub struct ClientOptions {
    /// Name and version announced to the server as `clientInfo`.
    pub client_name: String,
    pub client_version: String,
    /// Maximum time for TCP and TLS, unless `http` is set, and for a new session after the server lost the old one.
    pub connect_timeout: Duration,
    /// Maximum time for all of [`McpClient::connect`](crate::McpClient::connect).
    pub handshake_timeout: Duration,
    /// Bounds on messages and lists of the server.
    pub limits: ClientLimits,
    /// The era negotiated last time. Saves a round trip if it still holds, and does no harm otherwise.
    pub era: Option<Era>,
    /// The only era to speak, and in the legacy era the version to offer. `None` negotiates.
    pub protocol: Option<Era>,
    /// The client capabilities to declare, a JSON object. Declare only what `handler` can answer.
    pub capabilities: Box<RawValue>,
    /// Answers the server's requests, other than `ping`.
    pub handler: Option<ServerRequestHandler>,
    /// Called for each notification that the wire does not handle itself, before later messages are processed. It must
    /// not block.
    pub on_notification: Option<NotificationHandler>,
    /// Whether to open a stream over HTTP for notifications that belong to no request. Not worth it for a short
    /// connection.
    pub listen: bool,
    /// An HTTP client to share between connections. Its redirect policy applies, so it should come from
    /// [`ClientOptions::http_client`].
    pub http: Option<reqwest::Client>,
}

/// Bounds on what a server may send. Beyond them a request fails with [`WireError::TooLarge`](crate::WireError). A line
/// that is too long, or an event of legacy HTTP+SSE, also ends the connection, because any request may be waiting for
/// it.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Maximum bytes of one line of a byte stream.
    pub max_line_bytes: usize,
    /// Maximum bytes of one HTTP body or one event of a stream.
    pub max_body_bytes: usize,
    /// Maximum number of pages of one list. Real servers send one; a server that never stops paging must still end.
    pub max_pages: usize,
    /// Maximum number of tools, prompts or resources of one list.
    pub max_tools: usize,
    /// Maximum bytes of all pages of one list together.
    pub max_list_bytes: usize,
}

/// Deadline, cancellation and callbacks of one request. Borrowed, because they belong to the caller of the request.
#[derive(Clone)]
pub struct RequestOptions<'a> {
    /// Covers the whole request: sending, waiting, the renewal of a session and all `input_required` rounds.
    pub deadline: Instant,
    /// Receives the parameters of each progress notification. If set, the request carries a progress token.
    pub progress: Option<&'a ProgressHandler>,
    /// Cancels the request, also on the server.
    pub cancel: Option<&'a CancellationToken>,
    /// Answers the server's requests that belong to this request, instead of [`ClientOptions::handler`]: those in an
    /// `input_required` result, and over HTTP those on the response stream.
    pub handler: Option<&'a ServerRequestHandler>,
    /// Receives the notifications on the response stream over HTTP, instead of [`ClientOptions::on_notification`].
    pub on_notification: Option<&'a NotificationHandler>,
    /// Set when the request is made on behalf of a client of 2026-07-28.
    pub relay: Option<Relay<'a>>,
    /// Capabilities to declare to a server of 2026-07-28 with this request, instead of those of the client or the relay.
    pub capabilities: Option<&'a RawValue>,
    /// Whether to call a tool as a task, which it may require of clients of 2025-11-25. No effect on a server without
    /// tasks and in 2026-07-28, where the server decides.
    pub as_task: bool,
    /// Reason for the cancellation, set before `cancel` fires; passed on to the server.
    pub cancel_reason: Option<&'a Arc<OnceLock<String>>>,
    /// Whether to send the request in the form of 2026-07-28 over a legacy connection. Only for a server that
    /// [`McpClient::probe_modern`](crate::McpClient::probe_modern) found to accept it.
    pub modern: bool,
    /// Headers of the request over HTTP. They replace headers of the connection with the same name.
    pub headers: HeaderMap,
}

/// Marks a request that is relayed for a client of 2026-07-28. A server of that version gets that client's
/// capabilities, and its `input_required` result is returned for that client to answer. With a legacy server the relay
/// has no effect: the handler answers its requests.
#[derive(Debug, Clone, Copy)]
pub struct Relay<'a> {
    /// The client's capabilities, instead of [`ClientOptions::capabilities`].
    pub capabilities: &'a RawValue,
    /// The client's `inputResponses`, if it answers an earlier `input_required` result, and its `requestState`.
    pub input_responses: Option<&'a RawValue>,
    pub request_state: Option<&'a RawValue>,
}

/// Answers a request of the server: `elicitation/create`, `sampling/createMessage`, `roots/list`. Runs in a task of the
/// connection, or for an `input_required` result under the deadline of the request. A panic becomes a JSON-RPC error.
pub type ServerRequestHandler =
    Arc<dyn Fn(ServerRequest) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> + Send + Sync>;

/// Receives the parameters of a progress notification. Called while the stream is read, so it must not block.
pub type ProgressHandler = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Receives the method and the parameters of a notification. Called while the stream is read, so it must not block.
pub type NotificationHandler = Arc<dyn Fn(&str, Option<&RawValue>) + Send + Sync>;

/// A request from the server to the client. Method and parameters are untrusted.
#[derive(Debug, Clone)]
pub struct ServerRequest {
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

impl ClientOptions {
    /// Default options: 5 s to connect, 30 s for the handshake, no capabilities.
    pub fn new(client_name: impl Into<String>, client_version: impl Into<String>) -> ClientOptions {
        ClientOptions {
            client_name: client_name.into(),
            client_version: client_version.into(),
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(30),
            limits: ClientLimits::default(),
            era: None,
            protocol: None,
            capabilities: empty_object(),
            handler: None,
            on_notification: None,
            listen: true,
            http: None,
        }
    }
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        const MIB: usize = 1024 * 1024;
        ClientLimits {
            // One message may carry images and other binary content as Base64, so the bound is generous. The bound of
            // the list is higher than that of one page, which is a message itself.
            max_line_bytes: 32 * MIB,
            max_body_bytes: 32 * MIB,
            max_pages: 200,
            max_tools: 20_000,
            max_list_bytes: 64 * MIB,
        }
    }
}

impl RequestOptions<'_> {
    /// Options without callbacks, for a request that ends within `timeout` from now.
    pub fn new(timeout: Duration) -> RequestOptions<'static> {
        RequestOptions::with_deadline(deadline_after(timeout))
    }

    /// Options without callbacks.
    pub fn with_deadline(deadline: Instant) -> RequestOptions<'static> {
        RequestOptions {
            deadline,
            progress: None,
            cancel: None,
            handler: None,
            on_notification: None,
            relay: None,
            capabilities: None,
            as_task: false,
            cancel_reason: None,
            modern: false,
            headers: HeaderMap::new(),
        }
    }

    /// Waits until the caller cancels the request.
    pub(crate) async fn cancelled(&self) {
        match self.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for ConnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectTarget::Stream { .. } => f.write_str("Stream"),
            ConnectTarget::Http { .. } => f.write_str("Http"),
            ConnectTarget::Sse { .. } => f.write_str("Sse"),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Callbacks have no useful representation.
        let mut debug = f.debug_struct("ClientOptions");
        debug.field("client_name", &self.client_name).field("limits", &self.limits).field("era", &self.era);
        debug.finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
