//! Runs one request to its end: the service's work, what it asks on the way, the client that takes the request back or
//! vanishes, and the answer. Each runs as one task, owned by the endpoint or stream it came by.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
};

use futures_util::{FutureExt, future::BoxFuture};
use http::Extensions;
use serde_json::value::RawValue;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Outlet, Peer, Request,
    exchange::{Exchange, Manner, Sink, Way},
    greet, listen,
    params::Params,
    shared::{Desk, Shared},
};
use crate::{era::Era, error::RpcError};

/// A request as it came.
pub(super) struct Order {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Params,
    pub(super) sink: Sink,
    pub(super) talks: bool,
    pub(super) extensions: Extensions,
}

/// Whose request it is.
pub(super) struct Client {
    pub(super) peer: Arc<Peer>,
    pub(super) desk: Option<Arc<Desk>>,
    /// Fires when the client is gone for good.
    pub(super) ended: CancellationToken,
    /// Whether the client is this one request, and gone after it.
    pub(super) single: bool,
}

type Outcome = Result<Box<RawValue>, RpcError>;

impl Shared {
    /// Begins to answer a request, or refuses it at once.
    pub(super) fn begin(self: &Arc<Self>, client: Client, order: Order) -> Result<(), RpcError> {
        let Order { id, method, params, sink, talks, extensions } = order;
        let Client { peer, desk, ended, single } = client;
        if peer.era == Era::Modern && self.resume(&id, &method, &params, &peer.query, &sink)? {
            return Ok(());
        }
        let bound = self.options.requests_max_total;
        if self.tasks.len() >= bound {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {bound} requests at once")));
        }
        let cancel = ended.child_token();
        if let Some(desk) = &desk {
            desk.enter(&id, &cancel, self.options.requests_max)?;
        }
        let way = Way {
            id,
            progress_token: params.progress_token,
            sink: Some(sink),
            held_until: None,
            asks: Vec::new(),
            asked: 0,
            closed: false,
        };
        let exchange = Arc::new(Exchange {
            shared: self.clone(),
            peer,
            method,
            name: params.name,
            cancel,
            desk,
            manner: Manner { talks, logs: params.wants_log },
            way: Mutex::new(way),
            stirred: Notify::new(),
        });
        let work = async move {
            run(&exchange, params.rest, extensions).await;
            if single {
                exchange.shared.service.gone(&exchange.peer);
            }
        };
        self.tasks.spawn(work.in_current_span());
        Ok(())
    }
}

async fn run(exchange: &Arc<Exchange>, params: Option<Box<RawValue>>, extensions: Extensions) {
    let outcome = drive(exchange, params, extensions).await;
    let waiting = exchange.returned().await;
    exchange.forget();
    exchange.leave();
    let feed = exchange.feed();
    match outcome {
        Some(outcome) if waiting => exchange.answer(outcome).await,
        Some(_) | None => exchange.end(),
    }
    exchange.close();
    if let Some(feed) = feed {
        // For a client that lost its stream shortly before the answer.
        feed.settled().await;
    }
}

/// Who answers what.
fn answering(
    exchange: &Arc<Exchange>,
    params: Option<Box<RawValue>>,
    extensions: Extensions,
) -> BoxFuture<'static, Outcome> {
    match (exchange.method.as_str(), exchange.is_modern()) {
        ("server/discover", true) => greet::discover(exchange.clone()).boxed(),
        ("subscriptions/listen", true) => listen::subscription(exchange.clone(), params).boxed(),
        ("ping", false) => std::future::ready(Ok(greet::nothing())).boxed(),
        ("initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", true)
        | ("initialize" | "server/discover" | "subscriptions/listen", false) => {
            let message = format!("there is no `{}` in version {}", exchange.method, exchange.peer.era);
            std::future::ready(Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message))).boxed()
        }
        _ => exchange.shared.service.request(Request {
            method: exchange.method.clone(),
            params,
            peer: exchange.peer.clone(),
            cancel: exchange.cancel.clone(),
            outlet: Outlet::new(exchange.clone()),
            extensions,
        }),
    }
}

/// The service's outcome; none for a request that was taken back, or that got its response because the server stops.
async fn drive(exchange: &Arc<Exchange>, params: Option<Box<RawValue>>, extensions: Extensions) -> Option<Outcome> {
    let mut work = pin!(AssertUnwindSafe(async { answering(exchange, params, extensions).await }).catch_unwind());
    let mut held_until: Option<Instant> = None;
    loop {
        let feed = exchange.feed();
        let vanished = async {
            match (&feed, held_until) {
                (Some(feed), _) => feed.abandoned().await,
                (None, Some(until)) => sleep_until(until).await,
                (None, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = exchange.cancel.cancelled() => break,
            outcome = &mut work => {
                let failed = |_| Err(RpcError::new(RpcError::INTERNAL, "the server failed to answer"));
                return Some(outcome.unwrap_or_else(failed));
            }
            // The work is looked at first, so that questions asked at once are put together.
            () = exchange.stirred.notified() => held_until = exchange.hold().await,
            () = vanished => break,
            () = exchange.shared.stopping.cancelled() => {
                let unfinished = exchange.shared.service.unfinished(&exchange.method);
                // On a byte stream this waits for a client that may have stopped reading.
                let _in_time = timeout(exchange.shared.options.farewell, exchange.answer(unfinished)).await;
                break;
            }
        }
    }
    exchange.forget();
    exchange.end();
    exchange.cancel.cancel();
    // The service may tidy up; its answer is not wanted any more.
    let _late = timeout(exchange.shared.options.farewell, work).await;
    None
}
