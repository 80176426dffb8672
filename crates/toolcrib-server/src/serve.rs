//! The HTTP server: accept loop, bounded number of connections, timeouts for slow clients, and graceful shutdown.
//!
//! hyper's HTTP/1 server is driven directly, because axum's `serve` offers neither connection limits nor a shutdown
//! that answers unfinished requests.
//!
//! A connection is accepted, identified (local or not), admitted by [`HttpConnections`], must send its first byte, and
//! is then served by hyper, request by request. The shutdown has three stages, each signalled by a token: `closing`
//! (idle connections close, requests go on), [`AppState`]'s `stopping` (unfinished requests get an error), `aborted`
//! (what is left is dropped). Every request that was sent before the shutdown began gets a response, unless its client
//! does not read it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{McpEndpoint, ServerOptions};

use crate::auth::ConnectionPeer;
use crate::bodies::{BodyDiscarder, ResponseBody};
use crate::connections::{HttpConnection, HttpConnections, NoCapacity};
use crate::mcp::McpService;
use crate::middleware::{RouterService, handle_request};
use crate::position::{POSITION_HEADER, STALE_HEADER, stale_seconds};
use crate::router::build_router;
use crate::state::{AppState, ServerConfig};

/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a closing connection may take to write the rest of a response. Also bounds how long a rejected client may
/// go on sending.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for tokio's reactor to report data that arrived before the shutdown. Without the delay, a
/// connection whose request has arrived but was not reported yet would be closed as idle.
const READINESS_DELAY: Duration = Duration::from_millis(50);
/// How long the responses to unfinished requests may take to be written after the drain timeout. Together with
/// [`CANCEL_TIMEOUT`] it is the one second that [`HttpServer::run`] may take beyond the drain timeout.
const FINAL_RESPONSE_TIMEOUT: Duration = Duration::from_millis(750);
/// How long to wait for cancelled tasks to end.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum number of connections taken from the kernel's accept queue when the shutdown begins: the backlog of tokio's
/// listeners.
const MAX_QUEUED_CONNECTIONS: usize = 1_024;
/// Pause after a failed accept, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Limits of connections and of the shutdown. The defaults fit the ten seconds of a whole shutdown: six for requests,
/// one for responses, three for the servers that the registry started.
///
/// The times of health checks in examples/cluster/haproxy.cfg leave these seven seconds to a node: one that refuses
/// connections is still finishing its calls.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Maximum number of open connections. Beyond it a new connection closes the one that has been idle longest.
    pub max_connections: usize,
    /// How long a new connection may take to send its first byte. A connection that sends nothing in this time is
    /// closed: it would hold a place that others wait for.
    pub first_byte_timeout: Duration,
    /// How long requests in progress may continue after the shutdown began. [`HttpServer::run`] returns at most one
    /// second later.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            max_connections: 4096,
            first_byte_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(6),
        }
    }
}

/// Binds a listening socket. The error names the option to change. An address in use is a `CONFLICT`; an address that
/// this machine does not have, or a port that needs privileges, is `CONFIG_INVALID`.
pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let bind_error = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            let message = format!("`{address}` is in use; choose another with `--listen`, or port 0 for any free port");
            return Error::new(Code::Conflict, message).with_retryable(false).with_cause(error);
        }
        Error::new(Code::ConfigInvalid, format!("cannot listen on `{address}`: {error}")).with_cause(error)
    };
    TcpListener::bind(address).await.map_err(bind_error)
}

/// Serves the MCP service, the REST API and the console of one registry on a socket.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    app_state: AppState,
    limits: ServerLimits,
}

impl HttpServer {
    /// Creates a server with default limits. Fails when the socket is reachable from other machines and no token exists.
    pub fn new(listener: TcpListener, service: McpService, config: ServerConfig) -> Result<HttpServer> {
        HttpServer::with_limits(listener, service, config, ServerLimits::default())
    }

    /// Creates a server with the given limits; otherwise like [`HttpServer::new`].
    pub fn with_limits(
        listener: TcpListener,
        service: McpService,
        config: ServerConfig,
        limits: ServerLimits,
    ) -> Result<HttpServer> {
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let registry = service.registry().clone();
        let options = ServerOptions { drain_timeout: limits.drain_timeout, ..service.server_options() };
        let endpoint = McpEndpoint::new(Arc::new(service), options);
        Ok(HttpServer { listener, address, app_state: AppState::new(config, registry, endpoint, address)?, limits })
    }

    /// Address of the socket, with the actual port when it was bound to port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// State to reload the configuration of, and to create login links with, while the server runs.
    pub fn app_state(&self) -> &AppState {
        &self.app_state
    }

    /// Serves until `shutdown` completes. Then it accepts no more connections, closes idle ones and event streams, gives
    /// requests in progress [`ServerLimits::drain_timeout`] to finish, and answers the others with an error.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let HttpServer { listener, app_state: app, limits, .. } = self;
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let handler = Arc::new(ConnectionHandler {
            router: build_router(&app),
            app: app.clone(),
            protocol,
            connections: HttpConnections::new(limits.max_connections),
            first_byte_timeout: limits.first_byte_timeout,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            aborted: CancellationToken::new(),
        });
        // Ends all connections when this future is dropped before the shutdown.
        let _abort_guard = handler.aborted.clone().drop_guard();
        // Before the first request, which may belong to one of them.
        app.auth.end_former_admin_sessions().await;
        let watching = async move { app.activity.watch(app.registry.clone()).await };
        let _activity_task = AbortOnDropHandle::new(tokio::spawn(watching));

        // Each connection gets a task of its own in the tracker, by which the shutdown waits for all of them.
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(handler.tasks.spawn(handler.clone().serve_connection(stream))),
                    Err(error) => handler.handle_accept_error(&error).await,
                },
            }
        }
        // The listener is gone from here on. Connections that were established before are served like the others.
        for stream in accept_queued(listener) {
            handler.tasks.spawn(handler.clone().serve_connection(stream));
        }
        handler.drain(limits.drain_timeout).await;
    }
}

/// Accepts the connections that the kernel has already established. Closing the socket would reset them, although their
/// clients may have sent a request.
fn accept_queued(listener: TcpListener) -> Vec<TcpStream> {
    // The socket is non-blocking, so an empty queue is an error. Unlike tokio's `accept`, this does not depend on whether
    // the reactor has noticed the connection.
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    std::iter::from_fn(|| listener.accept().ok())
        .take(MAX_QUEUED_CONNECTIONS)
        .filter_map(|(stream, _)| {
            stream.set_nonblocking(true).ok()?;
            TcpStream::from_std(stream).ok()
        })
        .collect()
}

/// Serves single connections; shared by all of them.
struct ConnectionHandler {
    app: AppState,
    router: RouterService,
    protocol: http1::Builder,
    connections: Arc<HttpConnections>,
    first_byte_timeout: Duration,
    /// Tasks of all connections, and those that discard request bodies.
    tasks: TaskTracker,
    /// Cancelled when the shutdown begins: idle connections close.
    closing: CancellationToken,
    /// Cancelled at the end of the shutdown: the remaining connections are dropped.
    aborted: CancellationToken,
}

impl ConnectionHandler {
    /// Handles a failed accept. Either the client gave up, or file descriptors or memory are exhausted; then closing an
    /// idle connection frees some. The accept loop waits here meanwhile, so no further connection is accepted during
    /// the pause.
    async fn handle_accept_error(&self, error: &std::io::Error) {
        use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        let closed = self.connections.close_oldest_idle();
        tracing::warn!(%error, closed_an_idle_connection = closed, "a connection could not be accepted");
        tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
    }

    /// Serves one connection from accept to close.
    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        // Nagle's algorithm would delay small responses.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        // Before the first await: later the client may have closed its socket or passed it to another process.
        let peer = Arc::new(self.app.auth.identify_peer(&stream));
        // `biased`, because an available permit must win over the shutdown: the client may have sent its request
        // already.
        let permit = tokio::select! {
            biased;
            permit = self.connections.acquire(&self.closing) => permit,
            () = self.closing.cancelled() => return,
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(no_capacity) => return self.reject(stream, no_capacity).await,
        };
        let _connection_guard = self.app.http_metrics.track_connection();
        let connection = &permit.connection;
        // The whole life of the connection is inside one future, so that `aborted` can end it at any point.
        let serving = async {
            // Wait for the first byte with a short timeout of its own: hyper's timeout for the head is much longer.
            let mut byte = [0];
            let first_byte = timeout(self.first_byte_timeout, stream.peek(&mut byte));
            let closed = async {
                connection.wait_until_closing().await;
                // A request that was sent before the shutdown began still gets its response.
                if self.closing.is_cancelled() {
                    tokio::time::sleep(READINESS_DELAY).await;
                }
            };
            let has_data = tokio::select! {
                biased;
                first_byte = first_byte => matches!(first_byte, Ok(Ok(1))),
                () = closed => false,
            };
            if has_data {
                self.serve_requests(stream, connection, &peer).await;
            }
        };
        // `None` when the shutdown aborted the connection; there is nothing left to do in either case.
        let _ = self.aborted.run_until_cancelled(serving).await;
    }

    /// Runs hyper on the connection until the client closes it, or until it is to be closed and is idle.
    async fn serve_requests(&self, stream: TcpStream, connection: &Arc<HttpConnection>, peer: &Arc<ConnectionPeer>) {
        let discarder = BodyDiscarder { tasks: self.tasks.clone(), closing: self.closing.clone() };
        // The connection counts as busy from here until the body of the response is written or dropped, which may be
        // long after the handler has returned: an event stream is never idle.
        let service = service_fn(|request: Request<Incoming>| {
            let active_request = connection.begin_request();
            let (head, body) = request.into_parts();
            let body = discarder.wrap_request_body(&head.headers, body);
            let request = Request::from_parts(head, body);
            let response = handle_request(self.app.clone(), self.router.clone(), Arc::clone(peer), request);
            async move { Ok::<_, Infallible>(response.await.map(|body| ResponseBody::new(body, active_request))) }
        });
        let mut serving = pin!(self.protocol.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            // Errors are the client's: a connection that broke off, or a malformed request.
            _ = &mut serving => return,
            () = connection.wait_until_closing() => {}
        }
        // Without a request there is no response to flush.
        if !connection.has_had_request() {
            return;
        }
        // hyper finishes the response in progress, announces `Connection: close`, and then reads no further request.
        serving.as_mut().graceful_shutdown();
        // hyper starts requests within this task, so none can start between the timeout and the check.
        if timeout(FLUSH_TIMEOUT, &mut serving).await.is_err() && !connection.is_idle() {
            // As above, an error concerns this client alone.
            let _ = serving.await;
        }
    }

    /// Answers a connection beyond the limit with 503. Closing a socket with unread data resets it, and the client loses
    /// the response; so the connections that had waited, whose number is bounded, may send a little longer.
    async fn reject(&self, mut stream: TcpStream, no_capacity: NoCapacity<'_>) {
        tracing::warn!("a connection was refused: the limit is reached and all connections are busy");
        let body = Error::new(Code::ToolUnavailable, "all connections are busy; try again").envelope().to_string();
        let length = body.len();
        let registry = &self.app.registry;
        let position = registry.position();
        let stale = stale_seconds(registry).map(|seconds| format!("{STALE_HEADER}: {seconds}\r\n")).unwrap_or_default();
        let response = format!(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Retry-After: 1\r\n{POSITION_HEADER}: {position}\r\n{stale}Connection: close\r\n\r\n{body}"
        );
        // The send buffer of a new connection is empty, so a short response fits without waiting.
        let Ok(_) = stream.try_write(response.as_bytes()) else { return };
        if let NoCapacity::TimedOut(_waiting_permit) = no_capacity {
            let lingering = async {
                stream.shutdown().await?;
                while stream.read(&mut [0; 1024]).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            // Best effort: the response was written already.
            let _ = self.aborted.run_until_cancelled(timeout(FLUSH_TIMEOUT, lingering)).await;
        }
    }

    /// Graceful shutdown: waits for requests in progress, answers the rest, then drops what is left.
    async fn drain(&self, drain_timeout: Duration) {
        // Order matters: first nothing new may begin, then idle connections close, then the endless streams.
        self.tasks.close();
        self.closing.cancel();
        // Event streams never end by themselves.
        self.app.event_feed.closed.cancel();
        let requests = async {
            if timeout(drain_timeout, self.tasks.wait()).await.is_err() {
                tracing::warn!("some requests did not finish in time; each gets a response that says so");
                self.app.stopping.cancel();
                self.tasks.wait().await;
            }
        };
        // The MCP endpoint drains its own requests concurrently, with the same timeout, and answers those that still
        // arrive over accepted connections: a balancer that has just sent one would lose it. The outer timeout is the
        // last bound for clients that do not read. Without it, one of them could hold up the process for ever.
        let draining = futures_util::future::join(self.app.endpoint.close_after(self.tasks.wait()), requests);
        if timeout(drain_timeout + FINAL_RESPONSE_TIMEOUT, draining).await.is_err() {
            tracing::warn!("some clients did not read their response in time; their connections are closed");
        }
        self.aborted.cancel();
        // A task that is still running after this is dropped with the runtime.
        let _ = timeout(CANCEL_TIMEOUT, self.tasks.wait()).await;
    }
}
