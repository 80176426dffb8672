//! MCP service that forwards everything to another Toolcrib over HTTP (`toolcrib mcp --connect URL`). Several clients
//! on stdio can so share the connections of one `toolcrib serve`.
//!
//! ```text
//! client ── stdio ── Bridge ── HTTP, one session ── toolcrib serve ── sources
//! ```
//!
//! The bridge knows no tools and keeps no state but the connection. It survives a restart of the remote: the next
//! request, or the watch for changes, connects again, and the client is told that its tools may have changed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{ChangeNotification, ClientHandle, McpPeer, McpRequest, Service, ServiceDescription};
use toolcrib_mcp::{
    ClientOptions, ConnectTarget, ConnectionEvent, Era, LegacyVersion, McpClient, NotificationHandler, ProgressHandler,
    RequestOptions, RpcError, ServerRequest, ServerRequestHandler, WireError,
};
use url::Url;

use crate::mcp::stopping_result;

/// Timeout of a forwarded request: longer than the remote allows a call to take, so that its own timeout comes first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pause between attempts to reach a remote that is gone. Also the interval at which a connection without an event
/// stream is checked.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of the ping that detects a restarted remote.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long [`Bridge::close`] waits for a connection attempt in progress. The process ends anyway; a remote that hangs
/// must not keep it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Forwards the requests of one client to a remote Toolcrib. Cheap to clone; all clones share one connection.
#[derive(Debug, Clone)]
pub struct Bridge {
    url: Url,
    /// Carries the bearer token, if any.
    headers: HeaderMap,
    /// An async lock, because it is held while a connection is made.
    remote: Arc<tokio::sync::Mutex<RemoteState>>,
}

/// State of the connection to the remote.
#[derive(Debug, Default)]
enum RemoteState {
    #[default]
    Disconnected,
    /// May have been closed meanwhile; `get_or_connect` checks.
    Connected(Arc<McpClient>),
    /// The client has disconnected; no further connection is opened for it.
    Closed,
}

/// Subscription to the notifications of one connection.
struct RemoteListener {
    remote: Arc<McpClient>,
    events: broadcast::Receiver<ConnectionEvent>,
}

impl Bridge {
    /// Opens a bridge after checking that an MCP server answers at `url`.
    pub async fn open(url: Url) -> Result<Bridge> {
        Bridge::open_with_headers(url, HeaderMap::new()).await
    }

    /// Opens a bridge that authenticates with a bearer token.
    pub async fn open_with_token(url: Url, token: &str) -> Result<Bridge> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            Error::new(Code::ConfigInvalid, "the token contains invalid characters; check where it comes from")
        })?;
        // Keeps the token out of debug output.
        value.set_sensitive(true);
        Bridge::open_with_headers(url, HeaderMap::from_iter([(AUTHORIZATION, value)])).await
    }

    /// The error of a failed probe tells what to do: start the remote, send a token, or send another one.
    async fn open_with_headers(url: Url, headers: HeaderMap) -> Result<Bridge> {
        let bridge = Bridge { url, headers, remote: Arc::default() };
        // A connection without the client's capabilities, closed again: the client has not introduced itself yet.
        // This makes a wrong URL or token an error at the start, where a person sees it, and not at the first request.
        let probe = bridge.connect(&RawValue::from_string("{}".into()).context(Code::Internal, "connect")?).await;
        probe.map_err(|error| bridge.describe_failure(error))?.close().await;
        Ok(bridge)
    }

    /// Says why the probe failed, and what to do.
    fn describe_failure(&self, error: WireError) -> Error {
        let url = &self.url;
        if let WireError::Unauthorized { status: 403, .. } = error {
            let message = format!(
                "`{url}` refuses access: the token needs the role agent, and the host of the URL must be one that the \
                 server accepts"
            );
            return Error::new(Code::Forbidden, message);
        }
        if let WireError::Unauthorized { .. } = error {
            let message = format!(
                "`{url}` requires a token; create one with the role `agent` and pass it with \
                 `--token '${{env:NAME}}'`, or in TOOLCRIB_TOKEN"
            );
            return Error::new(Code::Unauthorized, message);
        }
        let attempt = if let WireError::Connect(reason) = &error {
            // The reason names the URL.
            format!("cannot connect: {reason}")
        } else {
            format!("cannot connect to `{url}`: {error}")
        };
        let message = format!("{attempt}; is `toolcrib serve` running there?");
        Error::new(Code::ToolUnavailable, message).with_cause(error)
    }

    /// Connects to the remote with the capabilities of the client.
    async fn connect(&self, capabilities: &RawValue) -> std::result::Result<McpClient, WireError> {
        let mut options = ClientOptions::new("toolcrib", env!("CARGO_PKG_VERSION"));
        options.capabilities = capabilities.to_owned();
        // A legacy version has sessions, so that the remote sees all requests as those of one client.
        options.era = Some(Era::Legacy(LegacyVersion::LATEST));
        McpClient::connect(ConnectTarget::Http { url: self.url.clone(), headers: self.headers.clone() }, options).await
    }

    /// Returns the connection to the remote, reconnecting if it was closed. The lock is held while connecting, so that
    /// concurrent requests share the attempt.
    async fn get_or_connect(&self, peer: &McpPeer) -> std::result::Result<Arc<McpClient>, WireError> {
        let mut remote = self.remote.lock().await;
        match &*remote {
            RemoteState::Connected(client) if !client.is_closed() => return Ok(client.clone()),
            RemoteState::Connected(_) | RemoteState::Disconnected => {}
            RemoteState::Closed => {
                return Err(WireError::Closed { sent: false, reason: "the client disconnected".to_owned() });
            }
        }
        let client = Arc::new(self.connect(&peer.capabilities).await?);
        *remote = RemoteState::Connected(client.clone());
        Ok(client)
    }

    /// Closes the connection, so that the remote ends the client's session and subscriptions.
    pub async fn close(&self) {
        // While a connection attempt holds the lock there is no session to end.
        let Ok(mut remote) = tokio::time::timeout(CLOSE_TIMEOUT, self.remote.lock()).await else { return };
        if let RemoteState::Connected(client) = std::mem::replace(&mut *remote, RemoteState::Closed) {
            client.close().await;
        }
    }

    /// Forwards a request and passes progress, notifications and server requests back while it runs.
    async fn forward(self, request: McpRequest) -> std::result::Result<Box<RawValue>, RpcError> {
        let remote = self.get_or_connect(&request.peer).await.map_err(RpcError::from)?;
        let progress: Option<ProgressHandler> = request.client.wants_progress().then(|| {
            let client = request.client.clone();
            Arc::new(move |params: &RawValue| client.report_progress(params)) as ProgressHandler
        });
        let handler = server_request_handler(&request.client);
        let on_notification = notification_handler(&request.client);
        let cancel_reason = request.client.cancel_reason();
        let options = RequestOptions {
            progress: progress.as_ref(),
            // When the client cancels or disconnects, the request is cancelled at the remote too.
            cancel: Some(&request.cancel),
            cancel_reason: Some(&cancel_reason),
            handler: Some(&handler),
            on_notification: Some(&on_notification),
            ..RequestOptions::new(REQUEST_TIMEOUT)
        };
        let result = remote.request(&request.method, request.params.as_deref(), &options).await;
        result.map_err(RpcError::from)
    }

    /// Returns the capabilities and instructions of the remote. If it cannot be reached now, the client still connects
    /// and gets `tools/list_changed` once the remote is reachable.
    async fn handshake(self, peer: Arc<McpPeer>) -> ServiceDescription {
        let tools_only = || RawValue::from_string("{\"tools\":{\"listChanged\":true}}".into()).unwrap_or_default();
        match self.get_or_connect(&peer).await {
            Ok(remote) => ServiceDescription {
                capabilities: remote.server().capabilities.clone(),
                instructions: remote.server().instructions.clone(),
            },
            Err(error) => {
                tracing::warn!(%error, "`{}` cannot be reached any more", self.url);
                ServiceDescription { capabilities: tools_only(), instructions: None }
            }
        }
    }

    /// Waits for the next change notification of the remote. After a reconnect it reports that the tools changed, because
    /// notifications may have been missed.
    async fn next_change(&self, peer: &McpPeer, listener: &mut Option<RemoteListener>) -> ChangeNotification {
        loop {
            // No notification can arrive without a connection, so one is made even if the client sends no request.
            let Some(RemoteListener { remote, events }) = listener else {
                match self.get_or_connect(peer).await {
                    Ok(remote) => *listener = Some(RemoteListener::new(remote)),
                    Err(_) => tokio::time::sleep(RECONNECT_INTERVAL).await,
                }
                continue;
            };
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = tokio::time::sleep(RECONNECT_INTERVAL) => {
                    if !remote.is_listening() {
                        // Without an event stream only a request shows that the remote was restarted: the MCP client then
                        // opens a new session, which it reports as an event.
                        let _ = remote.request("ping", None, &RequestOptions::new(PING_TIMEOUT)).await;
                    }
                    continue;
                }
            };
            match event {
                Ok(ConnectionEvent::ToolsChanged) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    return ChangeNotification::Tools;
                }
                Ok(ConnectionEvent::Other { method, params }) => match method.as_str() {
                    "notifications/prompts/list_changed" => return ChangeNotification::Prompts,
                    "notifications/resources/list_changed" => return ChangeNotification::Resources,
                    "notifications/resources/updated" => {
                        if let Some(uri) = resource_uri(params.as_deref()) {
                            return ChangeNotification::Resource { uri };
                        }
                    }
                    _ => {}
                },
                Ok(ConnectionEvent::Closed) | Err(broadcast::error::RecvError::Closed) => {
                    tokio::time::sleep(RECONNECT_INTERVAL).await;
                    *listener = None;
                    if let Ok(remote) = self.get_or_connect(peer).await {
                        *listener = Some(RemoteListener::new(remote));
                        return ChangeNotification::Tools;
                    }
                }
            }
        }
    }
}

impl RemoteListener {
    /// Subscribes to the events of a connection from now on.
    fn new(remote: Arc<McpClient>) -> RemoteListener {
        RemoteListener { events: remote.events(), remote }
    }
}

impl Service for Bridge {
    fn describe(&self, peer: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription> {
        Box::pin(self.clone().handshake(peer.clone()))
    }

    fn handle_request(&self, request: McpRequest) -> BoxFuture<'static, std::result::Result<Box<RawValue>, RpcError>> {
        Box::pin(self.clone().forward(request))
    }

    fn changes(&self, peer: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
        let initial = (self.clone(), peer.clone(), None);
        stream::unfold(initial, |(bridge, peer, mut listener)| async move {
            let change = bridge.next_change(&peer, &mut listener).await;
            Some((change, (bridge, peer, listener)))
        })
        .boxed()
    }

    /// Schemas are needed only to check the `Mcp-Param-…` headers of HTTP requests; a byte stream has none.
    fn input_schema(&self, _peer: &Arc<McpPeer>, _tool: &str) -> Option<Box<RawValue>> {
        None
    }

    fn shutdown_response(&self, method: &str) -> std::result::Result<Box<RawValue>, RpcError> {
        stopping_result(method)
    }

    /// The owner of the byte stream calls [`Bridge::close`] when the stream ends.
    fn on_disconnect(&self, _peer: &Arc<McpPeer>) {}
}

/// Forwards requests of the remote (such as `elicitation/create`) to the client, as part of the request they belong to:
/// the remote sends them on the response stream of that request. For a client that does not support the method,
/// [`ClientHandle::send_request`] returns the error.
fn server_request_handler(client: &ClientHandle) -> ServerRequestHandler {
    let client = client.clone();
    Arc::new(move |request: ServerRequest| {
        let client = client.clone();
        Box::pin(async move { client.send_request(&request.method, request.params.as_deref()).await })
    })
}

/// Forwards log messages and elicitation notices of a request to the client. Notifications about changed lists go through
/// [`Bridge::next_change`].
fn notification_handler(client: &ClientHandle) -> NotificationHandler {
    let client = client.clone();
    Arc::new(move |method: &str, params: Option<&RawValue>| {
        if matches!(method, "notifications/message" | "notifications/elicitation/complete") {
            client.notify(method, params);
        }
    })
}

/// Returns the `uri` in the parameters of `notifications/resources/updated`.
fn resource_uri(params: Option<&RawValue>) -> Option<String> {
    let params: serde_json::Value = serde_json::from_str(params?.get()).ok()?;
    Some(params.get("uri")?.as_str()?.to_owned())
}
