//! A client's byte stream, led to a Toolcrib that runs elsewhere on this machine: many clients share one set of servers.

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
    ClientOptions, ConnectTarget, ConnectionEvent, Era, LegacyVersion, McpClient, NotificationHandler, RequestOptions,
    RpcError, ServerRequest, ServerRequestHandler, WireError,
};
use url::Url;

use crate::mcp::stopping_result;

/// Longer than any call is allowed to take at the other end.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Before looking again for one that went away.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// For one that should be there to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// To wait for a connection that is still being made, before leaving.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Cheap to clone; all clones are one bridge.
#[derive(Debug, Clone)]
pub struct Bridge {
    url: Url,
    /// What is shown to be let in.
    headers: HeaderMap,
    remote: Arc<tokio::sync::Mutex<RemoteState>>,
}

/// The other end.
#[derive(Debug, Default)]
enum RemoteState {
    #[default]
    Disconnected,
    Connected(Arc<McpClient>),
    /// Our client is gone, and nobody is to be reached for it any more.
    Closed,
}

/// What the other end says, and who hears it.
struct RemoteListener {
    remote: Arc<McpClient>,
    notices: broadcast::Receiver<ConnectionEvent>,
}

impl Bridge {
    /// Makes sure that somebody serves there.
    pub async fn open(url: Url) -> Result<Bridge> {
        Bridge::open_with_headers(url, HeaderMap::new()).await
    }

    /// The same, with a token for those who ask for one.
    pub async fn open_with_token(url: Url, token: &str) -> Result<Bridge> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            Error::new(Code::ConfigInvalid, "the token has characters that no token has; check where it comes from")
        })?;
        value.set_sensitive(true);
        Bridge::open_with_headers(url, HeaderMap::from_iter([(AUTHORIZATION, value)])).await
    }

    async fn open_with_headers(url: Url, headers: HeaderMap) -> Result<Bridge> {
        let bridge = Bridge { url, headers, remote: Arc::default() };
        let nobody = || format!("nobody serves MCP at `{}`; start `toolcrib serve` there", bridge.url);
        let found = bridge.connect(&RawValue::from_string("{}".into()).context(Code::Internal, "connect")?).await;
        let client = found.map_err(|error| match error {
            WireError::Unauthorized { status: 403, .. } => {
                let message = format!(
                    "`{}` knows us and does not let us in: the token needs the role agent, and the address must be one \
                     that it answers on",
                    bridge.url
                );
                Error::new(Code::Forbidden, message)
            }
            WireError::Unauthorized { .. } => {
                let message = format!(
                    "`{}` does not let us in; give a token of the role agent with `--token '${{env:NAME}}'`, or in TOOLCRIB_TOKEN",
                    bridge.url
                );
                Error::new(Code::Unauthorized, message)
            }
            WireError::Connect(_)
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Timeout { .. }
            | WireError::Closed { .. }
            | WireError::TooLarge { .. }
            | WireError::Rpc(_)
            | WireError::Protocol(_)
            | WireError::Cancelled { .. } => Error::new(Code::ToolUnavailable, nobody()).with_cause(error),
        })?;
        client.close().await;
        Ok(bridge)
    }

    async fn connect(&self, capabilities: &RawValue) -> std::result::Result<McpClient, WireError> {
        let mut options = ClientOptions::new("toolcrib", env!("CARGO_PKG_VERSION"));
        options.capabilities = capabilities.to_owned();
        // With a session, so that this client stays one client to the other end.
        options.era = Some(Era::Legacy(LegacyVersion::LATEST));
        McpClient::connect(ConnectTarget::Http { url: self.url.clone(), headers: self.headers.clone() }, options).await
    }

    /// The connection for a client, made anew when the other end went away.
    async fn get_or_connect(&self, peer: &McpPeer) -> std::result::Result<Arc<McpClient>, WireError> {
        let mut remote = self.remote.lock().await;
        match &*remote {
            RemoteState::Connected(client) if !client.is_closed() => return Ok(client.clone()),
            RemoteState::Connected(_) | RemoteState::Disconnected => {}
            RemoteState::Closed => return Err(WireError::Closed { sent: false, reason: "the client left".to_owned() }),
        }
        let client = Arc::new(self.connect(&peer.capabilities).await?);
        *remote = RemoteState::Connected(client.clone());
        Ok(client)
    }

    /// Takes leave of the other end, so that nothing there outlives this client.
    pub async fn close(&self) {
        // Who is still being looked for need not be told.
        let Ok(mut remote) = tokio::time::timeout(CLOSE_TIMEOUT, self.remote.lock()).await else { return };
        if let RemoteState::Connected(client) = std::mem::replace(&mut *remote, RemoteState::Closed) {
            client.close().await;
        }
    }

    async fn forward(self, request: McpRequest) -> std::result::Result<Box<RawValue>, RpcError> {
        let remote = self.get_or_connect(&request.peer).await.map_err(RpcError::from)?;
        let (progress, mut progressed) = tokio::sync::mpsc::channel(256);
        let mut options = RequestOptions::new(REQUEST_TIMEOUT);
        options.progress = request.client.wants_progress().then_some(progress);
        options.cancel = request.cancel.clone();
        options.handler = Some(server_request_handler(&request.client));
        options.on_notification = Some(notification_handler(&request.client));
        let mut asking = std::pin::pin!(remote.request(&request.method, request.params.as_deref(), &options));
        let answer = loop {
            tokio::select! {
                biased;
                Some(params) = progressed.recv() => request.client.report_progress(&params),
                answer = &mut asking => break answer,
            }
        };
        // What was said before the end is told before the answer.
        while let Ok(params) = progressed.try_recv() {
            request.client.report_progress(&params);
        }
        answer.map_err(RpcError::from)
    }

    async fn handshake(self, peer: Arc<McpPeer>) -> ServiceDescription {
        let nothing = || RawValue::from_string("{\"tools\":{\"listChanged\":true}}".into()).unwrap_or_default();
        match self.get_or_connect(&peer).await {
            Ok(remote) => ServiceDescription {
                capabilities: remote.server().capabilities.clone(),
                instructions: remote.server().instructions.clone(),
            },
            Err(error) => {
                tracing::warn!(%error, "`{}` went away", self.url);
                ServiceDescription { capabilities: nothing(), instructions: None }
            }
        }
    }

    /// What the other end says of its own accord; when it was away, everything may have changed.
    async fn next_change(&self, peer: &McpPeer, listener: &mut Option<RemoteListener>) -> ChangeNotification {
        loop {
            let Some(RemoteListener { remote, notices }) = listener else {
                match self.get_or_connect(peer).await {
                    Ok(remote) => *listener = Some(RemoteListener::new(remote)),
                    Err(_) => tokio::time::sleep(RECONNECT_INTERVAL).await,
                }
                continue;
            };
            let heard = tokio::select! {
                biased;
                heard = notices.recv() => heard,
                () = tokio::time::sleep(RECONNECT_INTERVAL) => {
                    if !remote.is_listening() {
                        // One that was started anew answers in a new session, and that is a notice.
                        let _away = remote.request("ping", None, &RequestOptions::new(PING_TIMEOUT)).await;
                    }
                    continue;
                }
            };
            match heard {
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
    fn new(remote: Arc<McpClient>) -> RemoteListener {
        RemoteListener { notices: remote.events(), remote }
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
        let begin = (self.clone(), peer.clone(), None);
        stream::unfold(begin, |(bridge, peer, mut listener)| async move {
            let change = bridge.next_change(&peer, &mut listener).await;
            Some((change, (bridge, peer, listener)))
        })
        .boxed()
    }

    /// Over a byte stream no header repeats an argument.
    fn input_schema(&self, _peer: &Arc<McpPeer>, _tool: &str) -> Option<Box<RawValue>> {
        None
    }

    fn shutdown_response(&self, method: &str) -> std::result::Result<Box<RawValue>, RpcError> {
        stopping_result(method)
    }

    /// Whoever serves the stream ends the bridge with it: [`Bridge::close`].
    fn on_disconnect(&self, _peer: &Arc<McpPeer>) {}
}

/// What the other end asks for a request, it asks on the stream of its answer; so the client is asked through that
/// request. One that cannot be asked knows what to say instead.
fn server_request_handler(outlet: &ClientHandle) -> ServerRequestHandler {
    let outlet = outlet.clone();
    Arc::new(move |asked: ServerRequest| {
        let outlet = outlet.clone();
        Box::pin(async move { outlet.send_request(&asked.method, asked.params.as_deref()).await })
    })
}

/// And so is what it says about one; the lists that change are told by [`Bridge::next`].
fn notification_handler(outlet: &ClientHandle) -> NotificationHandler {
    let outlet = outlet.clone();
    Arc::new(move |method: &str, params: Option<&RawValue>| {
        if matches!(method, "notifications/message" | "notifications/elicitation/complete") {
            outlet.notify(method, params);
        }
    })
}

fn resource_uri(params: Option<&RawValue>) -> Option<String> {
    let params: serde_json::Value = serde_json::from_str(params?.get()).ok()?;
    Some(params.get("uri")?.as_str()?.to_owned())
}
