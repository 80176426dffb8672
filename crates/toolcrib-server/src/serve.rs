//! Serving on a socket: so many connections at once, each with a deadline for what it sends, and a graceful end.

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
use crate::router::build_router;
use crate::state::{AppState, ServerConfig};

/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the rest of a response may take to be written when its connection is closed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it takes at most until tokio knows that there is something to read on a connection.
const READINESS_DELAY: Duration = Duration::from_millis(50);
/// How long responses to unfinished requests may take to be written.
const FINAL_RESPONSE_TIMEOUT: Duration = Duration::from_millis(750);
/// How long it takes at most until a cancelled task is gone.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(250);
/// Connections that are accepted at once from the queue of the operating system when the server begins to stop; it has
/// room for no more.
const MAX_QUEUED_CONNECTIONS: usize = 1_024;
/// Before a failed accept is tried again.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// What is limited of all connections, and of the end.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections at once. A new one beyond it takes the place of the one that has been idle longest.
    pub connections: usize,
    /// How long a new connection may take to send its first byte.
    pub first_byte_timeout: Duration,
    /// How long calls in flight may go on once the server is asked to leave. [`Serving::run`] ends one second later.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections: 4096,
            first_byte_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(6),
        }
    }
}

/// A socket that is ours.
pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let cannot = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            let message = format!("`{address}` is taken; give another with `--listen`, or port 0 for any that is free");
            return Error::new(Code::Conflict, message).with_retryable(false).with_cause(error);
        }
        Error::new(Code::ConfigInvalid, format!("cannot listen on `{address}`: {error}")).with_cause(error)
    };
    TcpListener::bind(address).await.map_err(cannot)
}

/// A surface on a socket.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    app_state: AppState,
    limits: ServerLimits,
}

impl HttpServer {
    /// Refuses to be reached from other machines while nobody has a token.
    pub fn new(listener: TcpListener, surface: McpService, setup: ServerConfig) -> Result<HttpServer> {
        HttpServer::with_limits(listener, surface, setup, ServerLimits::default())
    }

    pub fn with_limits(
        listener: TcpListener,
        surface: McpService,
        setup: ServerConfig,
        limits: ServerLimits,
    ) -> Result<HttpServer> {
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let options = ServerOptions {
            drain_timeout: limits.drain_timeout,
            ..ServerOptions::new("toolcrib", env!("CARGO_PKG_VERSION"))
        };
        let registry = surface.registry().clone();
        let endpoint = McpEndpoint::new(Arc::new(surface), options);
        Ok(HttpServer { listener, address, app_state: AppState::new(setup, registry, endpoint, address)?, limits })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn app_state(&self) -> &AppState {
        &self.app_state
    }

    /// Serves until `leave` is ready. Then it accepts no more connections, closes idle ones and streams of events, lets
    /// requests in progress finish for [`Limits::drain_timeout`], and responds to the others that they cannot be.
    pub async fn run(self, leave: impl Future<Output = ()>) {
        let HttpServer { listener, app_state: house, limits, .. } = self;
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let server = Arc::new(ConnectionHandler {
            router: build_router(&house),
            app: house.clone(),
            protocol,
            connections: HttpConnections::new(limits.connections),
            first_byte_timeout: limits.first_byte_timeout,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            aborted: CancellationToken::new(),
        });
        let _ends_all = server.aborted.clone().drop_guard();
        let watcher = house.clone();
        let watching = async move { watcher.activity.watch(watcher.registry.clone()).await };
        let _watching = AbortOnDropHandle::new(tokio::spawn(watching));

        let mut leave = pin!(leave);
        loop {
            tokio::select! {
                () = &mut leave => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(server.tasks.spawn(server.clone().serve_connection(stream))),
                    Err(error) => server.handle_accept_error(&error).await,
                },
            }
        }
        for stream in accept_queued(listener) {
            server.tasks.spawn(server.clone().serve_connection(stream));
        }
        server.drain(limits.drain_timeout).await;
    }
}

/// The connections that the operating system has accepted already; closing the socket would reset them.
fn accept_queued(listener: TcpListener) -> Vec<TcpStream> {
    // It does not block, so the queue ends with an error. Unlike tokio's, it looks at the queue itself.
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    std::iter::from_fn(|| listener.accept().ok())
        .take(MAX_QUEUED_CONNECTIONS)
        .filter_map(|(stream, _)| {
            stream.set_nonblocking(true).ok()?;
            TcpStream::from_std(stream).ok()
        })
        .collect()
}

/// What all connections share.
struct ConnectionHandler {
    app: AppState,
    router: RouterService,
    protocol: http1::Builder,
    connections: Arc<HttpConnections>,
    first_byte_timeout: Duration,
    /// Every connection.
    tasks: TaskTracker,
    /// Fires when the server begins to stop: idle connections close.
    closing: CancellationToken,
    /// Fires at the end, for all that is left.
    aborted: CancellationToken,
}

impl ConnectionHandler {
    /// A failure to accept is the client's, or a lack of file descriptors or memory, which an idle connection gives back.
    async fn handle_accept_error(&self, error: &std::io::Error) {
        use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        let closed = self.connections.close_oldest_idle();
        tracing::warn!(%error, closed_an_idle_connection = closed, "a connection could not be accepted");
        tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        // Small answers must not wait for more to come.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        // Before anything is waited for: later the client may have handed its end on, or closed it.
        let peer = Arc::new(self.app.auth.identify_peer(&stream));
        let permit = tokio::select! {
            biased;
            permit = self.connections.acquire(&self.closing) => permit,
            () = self.closing.cancelled() => return,
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(full) => return self.reject(stream, full).await,
        };
        let _counted = self.app.http_metrics.track_connection();
        let connection = &permit.connection;
        let serving = async {
            let mut byte = [0];
            let first_byte = timeout(self.first_byte_timeout, stream.peek(&mut byte));
            let closed = async {
                connection.wait_until_closing().await;
                // What was sent before the server began to stop gets its response.
                if self.closing.is_cancelled() {
                    tokio::time::sleep(READINESS_DELAY).await;
                }
            };
            let spoke = tokio::select! {
                biased;
                first_byte = first_byte => matches!(first_byte, Ok(Ok(1))),
                () = closed => false,
            };
            if spoke {
                self.serve_requests(stream, connection, &peer).await;
            }
        };
        // A client that breaks off or talks nonsense harms itself alone.
        let _ended = self.aborted.run_until_cancelled(serving).await;
    }

    async fn serve_requests(&self, stream: TcpStream, connection: &Arc<HttpConnection>, peer: &Arc<ConnectionPeer>) {
        let discard = BodyDiscarder { tasks: self.tasks.clone(), closing: self.closing.clone() };
        let service = service_fn(|request: Request<Incoming>| {
            let active = connection.begin_request();
            let (head, body) = request.into_parts();
            let body = discard.wrap_request_body(&head.headers, body);
            let request = Request::from_parts(head, body);
            let entering = handle_request(self.app.clone(), self.router.clone(), Arc::clone(peer), request);
            async move { Ok::<_, Infallible>(entering.await.map(|body| ResponseBody::new(body, active))) }
        });
        let mut serving = pin!(self.protocol.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            _ended = &mut serving => return,
            () = connection.wait_until_closing() => {}
        }
        // Without a request there was no response that could still be on its way.
        if !connection.has_had_request() {
            return;
        }
        serving.as_mut().graceful_shutdown();
        // Requests begin within this very task, so that none begins between the two.
        if timeout(FLUSH_TIMEOUT, &mut serving).await.is_err() && !connection.is_idle() {
            let _ended = serving.await;
        }
    }

    /// Tells a client that there is no place for it. The response is lost for one that still sends when the connection
    /// is closed, so a bounded number of them may send a little longer.
    async fn reject(&self, mut stream: TcpStream, full: NoCapacity<'_>) {
        tracing::warn!("a connection was refused: there are too many, and all are busy");
        let body = Error::new(Code::ToolUnavailable, "all connections are busy; try again").envelope().to_string();
        let length = body.len();
        let response = format!(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Retry-After: 1\r\nConnection: close\r\n\r\n{body}"
        );
        let Ok(_) = stream.try_write(response.as_bytes()) else { return };
        if let NoCapacity::TimedOut(_waiting_place) = full {
            let lingering = async {
                stream.shutdown().await?;
                while stream.read(&mut [0; 1024]).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _in_time = self.aborted.run_until_cancelled(timeout(FLUSH_TIMEOUT, lingering)).await;
        }
    }

    async fn drain(&self, drain_timeout: Duration) {
        self.tasks.close();
        self.closing.cancel();
        // Listeners would wait for ever.
        self.app.event_feed.close();
        let requests = async {
            if timeout(drain_timeout, self.tasks.wait()).await.is_err() {
                tracing::warn!("some requests did not finish in time; each gets a response that says so");
                self.app.stopping.cancel();
                self.tasks.wait().await;
            }
        };
        // The endpoint does the same for what came over MCP, in the same time.
        let ending = futures_util::future::join(self.app.endpoint.close(), requests);
        if timeout(drain_timeout + FINAL_RESPONSE_TIMEOUT, ending).await.is_err() {
            tracing::warn!("some connections did not take their response in time; they are closed");
        }
        self.aborted.cancel();
        let _in_time = timeout(CANCEL_TIMEOUT, self.tasks.wait()).await;
    }
}
