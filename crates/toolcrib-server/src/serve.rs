//! Serving on a socket: so many connections at once, each with a deadline for what it sends, and a graceful end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{Endpoint, ServerOptions};

use crate::door::enter;
use crate::house::{House, Setup};
use crate::http::routes;
use crate::surface::Surface;

/// Connections at once; more wait to be accepted.
const MOST: usize = 4096;
/// How long a client may take to say what it wants.
const HEADERS: Duration = Duration::from_secs(30);
/// How long calls in flight may go on once we are asked to leave.
const GRACE: Duration = Duration::from_secs(10);

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
pub struct Serving {
    listener: TcpListener,
    address: SocketAddr,
    house: House,
}

impl Serving {
    /// Refuses to be reached from other machines while nobody has a token.
    pub fn new(listener: TcpListener, surface: Surface, setup: Setup) -> Result<Serving> {
        let address = listener.local_addr().context(Code::Internal, "read the address of the socket")?;
        let options = ServerOptions { farewell: GRACE, ..ServerOptions::new("toolcrib", env!("CARGO_PKG_VERSION")) };
        let registry = surface.registry().clone();
        let endpoint = Endpoint::new(Arc::new(surface), options);
        Ok(Serving { listener, address, house: House::new(setup, registry, endpoint, address)? })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn house(&self) -> &House {
        &self.house
    }

    /// Serves until `leave` is ready, then lets calls in flight finish, for a while.
    pub async fn run(self, leave: impl Future<Output = ()>) {
        let Serving { listener, house, .. } = self;
        let routes = routes(&house);
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(HEADERS);
        let (graceful, tasks, abandoned) = (GracefulShutdown::new(), TaskTracker::new(), CancellationToken::new());
        let places = Arc::new(Semaphore::new(MOST));
        let (watcher, ended) = (house.clone(), abandoned.clone());
        tasks.spawn(async move { ended.run_until_cancelled(watcher.activity.watch(watcher.registry.clone())).await });

        let mut leave = pin!(leave);
        loop {
            let accepted = tokio::select! {
                () = &mut leave => break,
                accepted = accept(&listener, &places) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let (inside, routes) = (house.clone(), routes.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                enter(inside.clone(), routes.clone(), request.map(Body::new)).map(Ok::<_, Infallible>)
            });
            let connection = protocol.serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            let (abandoned, house) = (abandoned.clone(), house.clone());
            tasks.spawn(async move {
                let _counted = house.traffic.connected();
                // A client that breaks off or talks nonsense harms itself alone.
                let _ended = abandoned.run_until_cancelled(connection).await;
                drop(place);
            });
        }
        drop(listener);
        tasks.close();
        // Listeners would wait for ever.
        house.feed.close();
        // The endpoint ends what waits for news at once, and what is being answered after a while.
        let ending = futures_util::future::join(house.endpoint.close(), graceful.shutdown());
        if tokio::time::timeout(GRACE, ending).await.is_err() {
            tracing::warn!("some calls were still going on; they are cancelled");
        }
        abandoned.cancel();
        tasks.wait().await;
    }
}

/// The next connection, once there is a place for it. A failure to accept is the client's, or passes.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Small answers must not wait for more to come.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection keeps its delay");
            }
            Some((stream, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}
