//! The MCP client: connects, negotiates the protocol version, sends requests and closes.
//!
//! Request correlation and incoming messages are handled by [`WireConnection`], bytes by its transport. This module
//! chooses the transport and the order of probes; `handshake` negotiates, `lists` reads lists page by page, `tools` lists
//! and calls tools, `input_required` answers questions of servers of 2026-07-28, `change_subscription` listens for list
//! changes and `resource_listener` for changes of resources.
//!
//! A connection can be used by any number of concurrent requests. It ends when the client is closed or dropped, when
//! the server closes its end, or when a line or an event of legacy HTTP+SSE exceeds its bound; all pending requests
//! then fail.

mod change_subscription;
pub(crate) mod handshake;
mod input_required;
pub(crate) mod lists;
mod resource_listener;
mod tasks;
pub(crate) mod tools;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{
    sync::broadcast,
    time::{Instant, timeout, timeout_at},
};
use url::Url;

use self::{
    handshake::{FirstProbe, HandshakeResult},
    resource_listener::ResourceListener,
};
use crate::{
    connection::{ClientTransport, ConnectionEvent, OutgoingRequest, WireConnection, closed_error, deadline_after},
    era::Era,
    error::WireError,
    http::{HttpTransport, legacy_sse::LegacySseTransport},
    message::RawObject,
    options::{ClientOptions, ConnectTarget, RequestOptions},
    stdio::StdioTransport,
};

/// Maximum time for an orderly [`McpClient::close`]; then the connection is dropped. A server that does not read its
/// stdin would otherwise block the caller for ever.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time to try legacy HTTP+SSE after Streamable HTTP was rejected. A server of 2024-11-05 names its endpoint in
/// the first event, so it needs no longer; an ordinary web server that holds the GET open must not use up the
/// handshake.
const SSE_FALLBACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to one MCP server. Dropping it ends all its tasks; [`McpClient::close`] also ends the session on the
/// server.
pub struct McpClient {
    connection: ConnectionOwner,
    era: Era,
    server: ServerDescription,
    may_speak_other_era: bool,
    /// Subscriptions to resources at a server of 2026-07-28.
    resource_listener: ResourceListener,
}

/// The server's self-description from `initialize` or `server/discover`. Untrusted: use it for display only.
#[derive(Debug, Clone)]
pub struct ServerDescription {
    /// `serverInfo` as the server sent it: a name and a version.
    pub info: Option<Box<RawValue>>,
    /// The server capabilities, a JSON object; `{}` when the server sent none.
    pub capabilities: Box<RawValue>,
    pub instructions: Option<String>,
}

/// RAII owner of a connection: ends it, and with it all its tasks, on drop. The tasks themselves hold the `Arc`, so
/// that its reference count never reaches zero while they run.
struct ConnectionOwner(Arc<WireConnection>);

impl McpClient {
    /// Connects and negotiates the protocol version, all within `options.handshake_timeout`. The process behind a
    /// stream belongs to the caller and is not ended when this fails.
    pub async fn connect(target: ConnectTarget, options: ClientOptions) -> Result<McpClient, WireError> {
        let deadline = deadline_after(options.handshake_timeout);
        let connecting = async {
            match target {
                ConnectTarget::Stream { reader, writer } => {
                    // The tasks need the connection, and the connection the transport; so the tasks start last.
                    let (stdio, tasks) = StdioTransport::new(reader, writer);
                    let owner = ConnectionOwner(WireConnection::new(ClientTransport::Stdio(stdio), options));
                    tasks.start(&owner.0);
                    let first = first_probe(owner.0.options.era, FirstProbe::Initialize);
                    McpClient::handshake(owner, first, deadline).await
                }
                ConnectTarget::Http { url, headers } => McpClient::connect_http(url, headers, options, deadline).await,
                ConnectTarget::Sse { url, headers } => McpClient::connect_sse(url, headers, options, deadline).await,
            }
        };
        timeout_at(deadline, connecting).await.unwrap_or(Err(WireError::Timeout { sent: true }))
    }

    /// Connects over Streamable HTTP, and over legacy HTTP+SSE when the server rejects the POST. An error of the
    /// fallback is discarded, since the rejection of the POST is what most users can act on.
    async fn connect_http(
        url: Url,
        headers: HeaderMap,
        options: ClientOptions,
        deadline: Instant,
    ) -> Result<McpClient, WireError> {
        let http =
            HttpTransport::new(http_client(&options)?, url.clone(), headers.clone(), options.limits.max_body_bytes);
        let owner = ConnectionOwner(WireConnection::new(ClientTransport::Http(http), options.clone()));
        let first = first_probe(options.era, FirstProbe::Discover);
        match McpClient::handshake(owner, first, deadline).await {
            Err(rejected @ WireError::Status { status: 400 | 404 | 405, .. }) => {
                // A server of 2024-11-05 rejects the POST like this: it accepts POST at another address only, which
                // its event stream names. The fallback ends before the whole handshake does, so that the caller gets
                // the rejection and not a timeout.
                let fallback_deadline = deadline.min(deadline_after(SSE_FALLBACK_TIMEOUT));
                let fallback = McpClient::connect_sse(url, headers, options, deadline);
                let fallback = timeout_at(fallback_deadline, fallback).await;
                fallback.ok().and_then(Result::ok).ok_or(rejected)
            }
            outcome => outcome,
        }
    }

    /// Connects over HTTP+SSE of 2024-11-05, which has no modern era to probe for.
    async fn connect_sse(
        url: Url,
        headers: HeaderMap,
        options: ClientOptions,
        deadline: Instant,
    ) -> Result<McpClient, WireError> {
        let (sse, stream) =
            LegacySseTransport::open(http_client(&options)?, url, headers, options.limits.max_body_bytes).await?;
        let owner = ConnectionOwner(WireConnection::new(ClientTransport::Sse(sse), options));
        stream.start(&owner.0);
        let client = McpClient::handshake(owner, FirstProbe::Initialize, deadline).await?;
        Ok(McpClient { may_speak_other_era: false, ..client })
    }

    /// Runs the handshake, then subscribes to list changes in the modern era.
    async fn handshake(owner: ConnectionOwner, first: FirstProbe, deadline: Instant) -> Result<McpClient, WireError> {
        // If this fails, dropping `owner` ends the connection and its tasks.
        let HandshakeResult { era, server, may_speak_other_era } =
            handshake::negotiate(&owner.0, first, deadline).await?;
        if era == Era::Modern && owner.0.options.listen {
            change_subscription::start(&owner.0, &server);
        }
        let resource_listener = ResourceListener::default();
        Ok(McpClient { connection: owner, era, server, may_speak_other_era, resource_listener })
    }

    /// Returns the negotiated protocol era. Pass it as [`ClientOptions::era`] next time to save a round trip.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Whether the server may speak the other era too. False when it has rejected that era during the handshake, and
    /// over HTTP+SSE, which has one era only.
    pub fn may_speak_other_era(&self) -> bool {
        self.may_speak_other_era
    }

    /// Asks a legacy server over this connection whether it accepts requests of 2026-07-28 as well. False when it
    /// rejects the question or does not answer in time.
    pub async fn probe_modern(&self, timeout: Duration) -> bool {
        let request = OutgoingRequest::new("server/discover", None);
        let response = self.connection.0.request_once(&request, &RequestOptions::new(timeout)).await;
        let Ok(Some(result)) = response else { return false };
        RawObject::parse(&result).is_some_and(|fields| handshake::supports_modern(&fields))
    }

    /// Returns the description that the server sent during the handshake.
    pub fn server(&self) -> &ServerDescription {
        &self.server
    }

    /// Sends any request; `params` must be an object. `resources/subscribe` and `resources/unsubscribe`, which
    /// 2026-07-28 does not have, change a subscription of that version. When the server requires input (`input_required`), the handler
    /// provides it and the request is repeated; without a handler the `input_required` result is returned unchanged.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: &RequestOptions<'_>,
    ) -> Result<Box<RawValue>, WireError> {
        if self.era == Era::Modern && matches!(method, "resources/subscribe" | "resources/unsubscribe") {
            return self.change_resource_subscription(method, params, options).await;
        }
        let request = OutgoingRequest { method, params, headers: options.headers.clone() };
        let handler = options.handler.or(self.connection.0.options.handler.as_ref());
        let result = input_required::request_with_input(&self.connection.0, &request, options, handler).await?;
        // Only after success: a subscription that the server rejected must not be made again in the next session.
        self.connection.0.track_subscription(method, params);
        Ok(result)
    }

    /// Subscribes to events of the connection from now on. A receiver that lags loses the oldest events, so a caller
    /// that must not miss a change of the tool list treats `Lagged` as one.
    pub fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.connection.0.events()
    }

    /// Whether the client receives, or is reconnecting to receive, notifications that belong to no request.
    ///
    /// Legacy HTTP servers send these on a separate GET stream, which may fail for good. A caller that relies on it
    /// then makes a request: the client opens the stream again with the next session.
    pub fn is_listening(&self) -> bool {
        match &self.connection.0.transport {
            ClientTransport::Http(http) if self.era != Era::Modern => http.is_listening(),
            ClientTransport::Http(_) | ClientTransport::Stdio(_) | ClientTransport::Sse(_) => !self.is_closed(),
        }
    }

    /// Whether the connection ended, by either side or by an error.
    pub fn is_closed(&self) -> bool {
        self.connection.0.is_ended()
    }

    /// Waits until the connection ends. Returns at once if it has ended already.
    pub async fn wait_closed(&self) {
        self.connection.0.wait_ended().await;
    }

    /// Closes the connection in an orderly way, within two seconds: flushes and closes the server's stdin, or
    /// deletes the HTTP session.
    pub async fn close(&self) {
        let connection = &self.connection.0;
        if connection.is_ended() {
            return;
        }
        let closing = async {
            match &connection.transport {
                ClientTransport::Stdio(stdio) => stdio.close().await,
                ClientTransport::Http(http) => http.close(connection.era()).await,
                // The server notices the closed event stream; `end` closes it.
                ClientTransport::Sse(_) => {}
            }
        };
        // Best effort: the connection ends below either way.
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
        connection.end(closed_error(true, "closed by this client".to_owned()));
    }
}

impl Drop for ConnectionOwner {
    fn drop(&mut self) {
        self.0.end(closed_error(true, "dropped by this client".to_owned()));
    }
}

impl std::fmt::Debug for McpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpClient").field("era", &self.era).field("server", &self.server).finish_non_exhaustive()
    }
}

/// Chooses the first probe from the era of an earlier connection, or the transport's default.
fn first_probe(era: Option<Era>, default: FirstProbe) -> FirstProbe {
    match era {
        Some(Era::Legacy(_)) => FirstProbe::Initialize,
        Some(Era::Modern) => FirstProbe::Discover,
        None => default,
    }
}

/// Returns the caller's HTTP client, or builds the default one.
fn http_client(options: &ClientOptions) -> Result<reqwest::Client, WireError> {
    options.http.clone().map_or_else(|| ClientOptions::http_client(options.connect_timeout), Ok)
}
