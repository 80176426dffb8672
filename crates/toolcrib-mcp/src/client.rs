//! The client: connect, ask, list and call tools, hear what changes, close.

mod change_subscription;
pub(crate) mod handshake;
mod input_required;
pub(crate) mod tools;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{
    sync::broadcast,
    time::{Instant, timeout, timeout_at},
};
use url::Url;

use self::handshake::{FirstProbe, HandshakeResult};
use crate::{
    connection::{
        ClientTransport, ConnectionEvent, OutgoingRequest, RequestContext, WireConnection, closed_error, deadline_after,
    },
    era::Era,
    error::WireError,
    http::{HttpTransport, legacy_sse::LegacySseTransport},
    options::{ClientOptions, ConnectTarget, RequestOptions},
    stdio::StdioTransport,
};

/// How long a farewell may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to look for an older transport where the newer one was refused.
const SSE_FALLBACK_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to one MCP server. Dropping it ends everything it started; [`Client::close`] does so politely.
pub struct McpClient {
    connection: ConnectionOwner,
    era: Era,
    server: ServerDescription,
}

/// What a server says about itself. Do not trust it with more than display.
#[derive(Debug, Clone)]
pub struct ServerDescription {
    pub info: Option<Box<RawValue>>,
    pub capabilities: Box<RawValue>,
    pub instructions: Option<String>,
}

/// Holds the connection's tasks to its own lifetime.
struct ConnectionOwner(Arc<WireConnection>);

impl McpClient {
    /// Connects and finds out how the server wants to be spoken to, all within `options.handshake_timeout`.
    pub async fn connect(target: ConnectTarget, options: ClientOptions) -> Result<McpClient, WireError> {
        let deadline = deadline_after(options.handshake_timeout);
        let connecting = async {
            match target {
                ConnectTarget::Stream { reader, writer } => {
                    let (pipe, halves) = StdioTransport::new(reader, writer);
                    let owner = ConnectionOwner(WireConnection::new(ClientTransport::Stdio(pipe), options));
                    halves.start(&owner.0);
                    let first = first_probe(owner.0.options.era, FirstProbe::Initialize);
                    McpClient::handshake(owner, first, deadline).await
                }
                ConnectTarget::Http { url, headers } => McpClient::connect_http(url, headers, options, deadline).await,
                ConnectTarget::Sse { url, headers } => McpClient::connect_sse(url, headers, options, deadline).await,
            }
        };
        timeout_at(deadline, connecting).await.unwrap_or(Err(WireError::Timeout { sent: true }))
    }

    async fn connect_http(
        url: Url,
        headers: HeaderMap,
        options: ClientOptions,
        deadline: Instant,
    ) -> Result<McpClient, WireError> {
        let http = HttpTransport::new(http_client(&options)?, url.clone(), headers.clone(), options.limits.body_bytes);
        let owner = ConnectionOwner(WireConnection::new(ClientTransport::Http(http), options.clone()));
        let first = first_probe(options.era, FirstProbe::Discover);
        match McpClient::handshake(owner, first, deadline).await {
            Err(refused @ WireError::Status { status: 400 | 404 | 405, .. }) => {
                // So answers a server of 2024 that knows POST only at another address.
                // This ends no later than the whole, so that its refusal is told and not the time it took.
                let detour = deadline.min(deadline_after(SSE_FALLBACK_TIMEOUT));
                let older = timeout_at(detour, McpClient::connect_sse(url, headers, options, deadline)).await;
                older.ok().and_then(Result::ok).ok_or(refused)
            }
            outcome => outcome,
        }
    }

    async fn connect_sse(
        url: Url,
        headers: HeaderMap,
        options: ClientOptions,
        deadline: Instant,
    ) -> Result<McpClient, WireError> {
        let (sse, stream) =
            LegacySseTransport::open(http_client(&options)?, url, headers, options.limits.body_bytes).await?;
        let owner = ConnectionOwner(WireConnection::new(ClientTransport::Sse(sse), options));
        stream.start(&owner.0);
        McpClient::handshake(owner, FirstProbe::Initialize, deadline).await
    }

    async fn handshake(owner: ConnectionOwner, first: FirstProbe, deadline: Instant) -> Result<McpClient, WireError> {
        let HandshakeResult { era, server } = handshake::negotiate(&owner.0, first, deadline).await?;
        if era == Era::Modern && owner.0.options.listen {
            change_subscription::start(&owner.0, &server);
        }
        Ok(McpClient { connection: owner, era, server })
    }

    pub fn era(&self) -> Era {
        self.era
    }

    pub fn server(&self) -> &ServerDescription {
        &self.server
    }

    /// Makes any request; `params` is an object. When the server asks for input (`input_required`), a handler answers
    /// and the request is repeated; without a handler that result is returned as it is.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, WireError> {
        let ask = OutgoingRequest { method, params, headers: options.headers.clone(), relay: options.relay.as_ref() };
        let handler = options.handler.as_ref().or(self.connection.0.options.handler.as_ref());
        let result =
            input_required::request_with_input(&self.connection.0, &ask, &RequestContext::new(options), handler)
                .await?;
        self.connection.0.track_subscription(method, params);
        Ok(result)
    }

    /// What the server says from now on. A receiver that lags loses the oldest.
    pub fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.connection.0.events()
    }

    /// Whether somebody hears, or tries to hear, what a legacy server says over HTTP of its own accord. Who relies on it
    /// makes a request when not: a new session is listened to again.
    pub fn is_listening(&self) -> bool {
        match &self.connection.0.transport {
            ClientTransport::Http(http) if self.era != Era::Modern => http.is_listening(),
            ClientTransport::Http(_) | ClientTransport::Stdio(_) | ClientTransport::Sse(_) => !self.is_closed(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.connection.0.is_ended()
    }

    pub async fn wait_closed(&self) {
        self.connection.0.wait_ended().await;
    }

    /// Takes leave of the server, within two seconds.
    pub async fn close(&self) {
        let connection = &self.connection.0;
        if connection.is_ended() {
            return;
        }
        let farewell = async {
            match &connection.transport {
                ClientTransport::Stdio(pipe) => pipe.close().await,
                ClientTransport::Http(http) => http.close(connection.era()).await,
                ClientTransport::Sse(_) => {}
            }
        };
        let _best_effort = timeout(CLOSE_TIMEOUT, farewell).await;
        connection.end(closed_error(true, "it was closed on our side".to_owned()));
    }
}

impl Drop for ConnectionOwner {
    fn drop(&mut self) {
        self.0.end(closed_error(true, "it was dropped on our side".to_owned()));
    }
}

impl std::fmt::Debug for McpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("era", &self.era).field("server", &self.server).finish_non_exhaustive()
    }
}

fn first_probe(era: Option<Era>, usual: FirstProbe) -> FirstProbe {
    match era {
        Some(Era::Legacy(_)) => FirstProbe::Initialize,
        Some(Era::Modern) => FirstProbe::Discover,
        None => usual,
    }
}

fn http_client(options: &ClientOptions) -> Result<reqwest::Client, WireError> {
    options.http.clone().map_or_else(|| ClientOptions::http_client(options.connect_timeout), Ok)
}
