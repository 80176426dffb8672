//! The client: connect, ask, list and call tools, hear what changes, close.

pub(crate) mod handshake;
mod listen;
mod rounds;
pub(crate) mod tools;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{
    sync::broadcast,
    time::{Instant, timeout, timeout_at},
};
use url::Url;

use self::handshake::{First, Greeting};
use crate::{
    connection::{Ask, Connection, Notice, Terms, Transport, after, closed},
    era::Era,
    error::WireError,
    http::{Http, legacy::LegacySse},
    options::{Options, RequestOptions, Target},
    pipe::Pipe,
};

/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to look for an older transport where the newer one was refused.
const DETOUR: Duration = Duration::from_secs(5);

/// A connection to one MCP server. Dropping it ends everything it started; [`Client::close`] does so politely.
pub struct Client {
    owner: Owner,
    era: Era,
    server: ServerSays,
}

/// What a server says about itself. Do not trust it with more than display.
#[derive(Debug, Clone)]
pub struct ServerSays {
    pub info: Option<Box<RawValue>>,
    pub capabilities: Box<RawValue>,
    pub instructions: Option<String>,
}

/// Holds the connection's tasks to its own lifetime.
struct Owner(Arc<Connection>);

impl Client {
    /// Connects and finds out how the server wants to be spoken to, all within `options.handshake_timeout`.
    pub async fn connect(target: Target, options: Options) -> Result<Client, WireError> {
        let deadline = after(options.handshake_timeout);
        let connecting = async {
            match target {
                Target::Stream { reader, writer } => {
                    let (pipe, halves) = Pipe::new(reader, writer);
                    let owner = Owner(Connection::new(Transport::Pipe(pipe), options));
                    halves.start(&owner.0);
                    let first = hinted(owner.0.options.era, First::Initialize);
                    Client::greet(owner, first, deadline).await
                }
                Target::Http { url, headers } => Client::connect_http(url, headers, options, deadline).await,
                Target::Sse { url, headers } => Client::connect_sse(url, headers, options, deadline).await,
            }
        };
        timeout_at(deadline, connecting).await.unwrap_or(Err(WireError::Timeout { sent: true }))
    }

    async fn connect_http(
        url: Url,
        headers: HeaderMap,
        options: Options,
        deadline: Instant,
    ) -> Result<Client, WireError> {
        let http = Http::new(http_client(&options)?, url.clone(), headers.clone(), options.limits.body_bytes);
        let owner = Owner(Connection::new(Transport::Http(http), options.clone()));
        let first = hinted(options.era, First::Discover);
        match Client::greet(owner, first, deadline).await {
            Err(refused @ WireError::Status { status: 400 | 404 | 405, .. }) => {
                // So answers a server of 2024 that knows POST only at another address.
                // This ends no later than the whole, so that its refusal is told and not the time it took.
                let detour = deadline.min(after(DETOUR));
                let older = timeout_at(detour, Client::connect_sse(url, headers, options, deadline)).await;
                older.ok().and_then(Result::ok).ok_or(refused)
            }
            outcome => outcome,
        }
    }

    async fn connect_sse(
        url: Url,
        headers: HeaderMap,
        options: Options,
        deadline: Instant,
    ) -> Result<Client, WireError> {
        let (sse, stream) = LegacySse::open(http_client(&options)?, url, headers, options.limits.body_bytes).await?;
        let owner = Owner(Connection::new(Transport::Sse(sse), options));
        stream.start(&owner.0);
        Client::greet(owner, First::Initialize, deadline).await
    }

    async fn greet(owner: Owner, first: First, deadline: Instant) -> Result<Client, WireError> {
        let Greeting { era, server } = handshake::greet(&owner.0, first, deadline).await?;
        if era == Era::Modern && owner.0.options.listen {
            listen::start(&owner.0, &server);
        }
        Ok(Client { owner, era, server })
    }

    pub fn era(&self) -> Era {
        self.era
    }

    pub fn server(&self) -> &ServerSays {
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
        let ask = Ask { method, params, headers: options.headers.clone(), relay: options.relay.as_ref() };
        let handler = options.handler.as_ref().or(self.owner.0.options.handler.as_ref());
        let result = rounds::request(&self.owner.0, &ask, &Terms::new(options), handler).await?;
        self.owner.0.remember(method, params);
        Ok(result)
    }

    /// What the server says from now on. A receiver that lags loses the oldest.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.owner.0.notices()
    }

    /// Whether somebody hears, or tries to hear, what a legacy server says over HTTP of its own accord. Who relies on it
    /// makes a request when not: a new session is listened to again.
    pub fn is_listening(&self) -> bool {
        match &self.owner.0.transport {
            Transport::Http(http) if self.era != Era::Modern => http.is_listening(),
            Transport::Http(_) | Transport::Pipe(_) | Transport::Sse(_) => !self.is_closed(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.owner.0.is_ended()
    }

    pub async fn closed(&self) {
        self.owner.0.until_ended().await;
    }

    /// Takes leave of the server, within two seconds.
    pub async fn close(&self) {
        let connection = &self.owner.0;
        if connection.is_ended() {
            return;
        }
        let farewell = async {
            match &connection.transport {
                Transport::Pipe(pipe) => pipe.close().await,
                Transport::Http(http) => http.close(connection.speaking()).await,
                Transport::Sse(_) => {}
            }
        };
        let _best_effort = timeout(FAREWELL, farewell).await;
        connection.end(closed(true, "it was closed on our side".to_owned()));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.end(closed(true, "it was dropped on our side".to_owned()));
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("era", &self.era).field("server", &self.server).finish_non_exhaustive()
    }
}

fn hinted(era: Option<Era>, usual: First) -> First {
    match era {
        Some(Era::Legacy(_)) => First::Initialize,
        Some(Era::Modern) => First::Discover,
        None => usual,
    }
}

fn http_client(options: &Options) -> Result<reqwest::Client, WireError> {
    options.http.clone().map_or_else(|| Options::http_client(options.connect_timeout), Ok)
}
