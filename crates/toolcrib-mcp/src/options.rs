//! What a caller hands in: where to connect, as whom, within which bounds.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{era::Era, error::RpcError};

/// Where the server is.
pub enum ConnectTarget {
    /// A byte stream with one message a line, such as a child's stdout and stdin. Whose process it is, is not ours.
    Stream { reader: Box<dyn AsyncRead + Send + Unpin>, writer: Box<dyn AsyncWrite + Send + Unpin> },
    /// Streamable HTTP; a server that turns out to speak only HTTP+SSE is found too.
    Http { url: Url, headers: HeaderMap },
    /// HTTP+SSE of 2024-11-05.
    Sse { url: Url, headers: HeaderMap },
}

#[derive(Clone)]
pub struct ClientOptions {
    pub client_name: String,
    pub client_version: String,
    /// For TCP and TLS, unless `http` is given, and for beginning another session where the server forgot the old one.
    pub connect_timeout: Duration,
    /// For all of [`Client::connect`](crate::Client::connect).
    pub handshake_timeout: Duration,
    pub limits: ClientLimits,
    /// What this server spoke last time.
    pub era: Option<Era>,
    /// The client capabilities to announce, a JSON object. Announce only what `handler` can answer.
    pub capabilities: Box<RawValue>,
    /// Answers the server's requests, other than `ping`.
    pub handler: Option<ServerRequestHandler>,
    /// Told of each notification that is nothing to the wire itself, before what came after it is looked at. It must
    /// not wait.
    pub on_notification: Option<NotificationHandler>,
    /// Whether to hear, over HTTP, what the server says of its own accord. A short visit need not.
    pub listen: bool,
    /// A client to share; its redirect policy then counts, and it should be [`Options::http_client`]'s.
    pub http: Option<reqwest::Client>,
}

/// Bounds on what a server may send.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// One line of a byte stream.
    pub line_bytes: usize,
    /// One HTTP body, or one event of a stream.
    pub body_bytes: usize,
    /// Of one tool list: its pages, its tools, its bytes.
    pub pages: usize,
    pub tools: usize,
    pub list_bytes: usize,
}

/// How one request is to be made.
#[derive(Clone)]
pub struct RequestOptions {
    pub timeout: Duration,
    /// Gets the parameters of each progress notification. One that does not keep up misses some.
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub cancel: CancellationToken,
    /// Answers what the server asks for this one request, instead of [`Options::handler`]: by its result
    /// (`input_required`), or over HTTP on the stream of its answer.
    pub handler: Option<ServerRequestHandler>,
    /// Told of what comes on the stream of the answer over HTTP, instead of [`Options::heard`].
    pub on_notification: Option<NotificationHandler>,
    pub relay: Option<Relay>,
    /// Sent with it over HTTP.
    pub headers: HeaderMap,
}

/// A request that is made for a client of 2026-07-28. A server of that version reads it as that client made it, and what
/// it wants to know first (`input_required`) is the result, for that client to answer. Older servers see nothing of
/// this, and ask a handler.
#[derive(Debug, Clone)]
pub struct Relay {
    /// The client's capabilities, instead of [`Options::capabilities`].
    pub capabilities: Box<RawValue>,
    /// Its `inputResponses` and `requestState`, where it was asked before.
    pub input_responses: Option<Box<RawValue>>,
    pub request_state: Option<Box<RawValue>>,
}

/// Answers a request of the server: `elicitation/create`, `sampling/createMessage`, `roots/list`.
pub type ServerRequestHandler =
    Arc<dyn Fn(ServerRequest) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> + Send + Sync>;

/// Hears the method and the parameters of a notification.
pub type NotificationHandler = Arc<dyn Fn(&str, Option<&RawValue>) + Send + Sync>;

#[derive(Debug, Clone)]
pub struct ServerRequest {
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

impl ClientOptions {
    pub fn new(client_name: impl Into<String>, client_version: impl Into<String>) -> ClientOptions {
        ClientOptions {
            client_name: client_name.into(),
            client_version: client_version.into(),
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(30),
            limits: ClientLimits::default(),
            era: None,
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
        ClientLimits { line_bytes: 32 * MIB, body_bytes: 32 * MIB, pages: 200, tools: 20_000, list_bytes: 64 * MIB }
    }
}

impl RequestOptions {
    pub fn new(timeout: Duration) -> RequestOptions {
        let cancel = CancellationToken::new();
        let headers = HeaderMap::new();
        RequestOptions { timeout, progress: None, cancel, handler: None, on_notification: None, relay: None, headers }
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
        let mut shown = f.debug_struct("Options");
        shown.field("client_name", &self.client_name).field("limits", &self.limits).field("era", &self.era);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}
