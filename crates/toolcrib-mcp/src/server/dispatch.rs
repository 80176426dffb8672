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
    ClientHandle, McpPeer, McpRequest, handshake,
    params::RequestParams,
    request_state::{RequestState, ResponseChannel, Sink, StreamOptions},
    shared::{ClientRequests, ServerShared},
    subscriptions,
};
use crate::{era::Era, error::RpcError};

/// A request as it came.
pub(super) struct IncomingRequest {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: RequestParams,
    pub(super) sink: Sink,
    pub(super) can_stream: bool,
    pub(super) extensions: Extensions,
}

/// Whose request it is.
pub(super) struct ClientContext {
    pub(super) peer: Arc<McpPeer>,
    pub(super) client_requests: Option<Arc<ClientRequests>>,
    /// Fires when the client is gone for good.
    pub(super) ended: CancellationToken,
    /// Whether the client is this one request, and gone after it.
    pub(super) is_one_shot: bool,
}

type RpcResult = Result<Box<RawValue>, RpcError>;

impl ServerShared {
    /// Begins to answer a request, or refuses it at once.
    pub(super) fn start_request(
        self: &Arc<Self>,
        client: ClientContext,
        order: IncomingRequest,
    ) -> Result<(), RpcError> {
        let IncomingRequest { id, method, params, sink, can_stream: talks, extensions } = order;
        let ClientContext { peer, client_requests: desk, ended, is_one_shot: single } = client;
        if peer.era == Era::Modern && self.resume(&id, &method, &params, &peer.query, &sink)? {
            return Ok(());
        }
        let bound = self.options.requests_max_total;
        if self.tasks.len() >= bound {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {bound} requests at once")));
        }
        let cancel = ended.child_token();
        if let Some(desk) = &desk {
            desk.register(&id, &cancel, self.options.requests_max)?;
        }
        let way = ResponseChannel {
            id,
            progress_token: params.progress_token,
            sink: Some(sink),
            suspended_until: None,
            questions: Vec::new(),
            question_count: 0,
            closed: false,
        };
        let exchange = Arc::new(RequestState {
            shared: self.clone(),
            peer,
            method,
            name: params.name,
            cancel,
            client_requests: desk,
            stream_options: StreamOptions { can_stream: talks, wants_logs: params.wants_logs },
            channel: Mutex::new(way),
            wake: Notify::new(),
        });
        let work = async move {
            run_request(&exchange, params.service_params, extensions).await;
            if single {
                exchange.shared.service.on_disconnect(&exchange.peer);
            }
        };
        self.tasks.spawn(work.in_current_span());
        Ok(())
    }
}

async fn run_request(exchange: &Arc<RequestState>, params: Option<Box<RawValue>>, extensions: Extensions) {
    let outcome = run_service(exchange, params, extensions).await;
    let waiting = exchange.wait_resumed().await;
    exchange.forget_suspended();
    exchange.release_id();
    let feed = exchange.event_buffer();
    match outcome {
        Some(outcome) if waiting => exchange.respond(outcome).await,
        Some(_) | None => exchange.end(),
    }
    exchange.close();
    if let Some(feed) = feed {
        // For a client that lost its stream shortly before the answer.
        feed.wait_drained().await;
    }
}

/// Who answers what.
fn route_request(
    exchange: &Arc<RequestState>,
    params: Option<Box<RawValue>>,
    extensions: Extensions,
) -> BoxFuture<'static, RpcResult> {
    match (exchange.method.as_str(), exchange.is_modern()) {
        ("server/discover", true) => handshake::discover_result(exchange.clone()).boxed(),
        ("subscriptions/listen", true) => subscriptions::run_subscription(exchange.clone(), params).boxed(),
        ("ping", false) => std::future::ready(Ok(handshake::empty_object())).boxed(),
        ("initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", true)
        | ("initialize" | "server/discover" | "subscriptions/listen", false) => {
            let message = format!("there is no `{}` in version {}", exchange.method, exchange.peer.era);
            std::future::ready(Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message))).boxed()
        }
        _ => exchange.shared.service.handle_request(McpRequest {
            method: exchange.method.clone(),
            params,
            peer: exchange.peer.clone(),
            cancel: exchange.cancel.clone(),
            client: ClientHandle::new(exchange.clone()),
            extensions,
        }),
    }
}

/// The service's outcome; none for a request that was taken back, or that got its response because the server stops.
async fn run_service(
    exchange: &Arc<RequestState>,
    params: Option<Box<RawValue>>,
    extensions: Extensions,
) -> Option<RpcResult> {
    let mut work = pin!(AssertUnwindSafe(async { route_request(exchange, params, extensions).await }).catch_unwind());
    let mut held_until: Option<Instant> = None;
    loop {
        let feed = exchange.event_buffer();
        let vanished = async {
            match (&feed, held_until) {
                (Some(feed), _) => feed.wait_abandoned().await,
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
            () = exchange.wake.notified() => held_until = exchange.suspend().await,
            () = vanished => break,
            () = exchange.shared.stopping.cancelled() => {
                let unfinished = exchange.shared.service.shutdown_response(&exchange.method);
                // On a byte stream this waits for a client that may have stopped reading.
                let _in_time = timeout(exchange.shared.options.cleanup_timeout, exchange.respond(unfinished)).await;
                break;
            }
        }
    }
    exchange.forget_suspended();
    exchange.end();
    exchange.cancel.cancel();
    // The service may tidy up; its answer is not wanted any more.
    let _late = timeout(exchange.shared.options.cleanup_timeout, work).await;
    None
}
