//! Runs requests: starts one task per request, routes it to the service, and ends it with a response, a cancellation or
//! a disconnect of the client.
//!
//! The tasks belong to the [`ServerShared`] of the endpoint or byte stream. [`run_request`] is the life of a request;
//! [`run_service`] is the part in which the service works and everything that may interrupt it is watched.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use http::Extensions;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    ClientHandle, McpPeer, McpRequest,
    client_requests::ClientRequests,
    handshake,
    params::RequestParams,
    request_state::{RequestState, ResponseChannel, StreamOptions},
    shared::ServerShared,
    sink::Sink,
    subscriptions,
};
use crate::{era::Era, error::RpcError};

/// A parsed request from either transport.
pub(super) struct IncomingRequest {
    /// JSON-RPC id, repeated in the response.
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: RequestParams,
    /// Destination of the response.
    pub(super) sink: Sink,
    /// Whether messages can be sent before the response.
    pub(super) can_stream: bool,
    /// Extensions of the HTTP request, for the service.
    pub(super) extensions: Extensions,
}

/// The client that a request belongs to.
pub(super) struct ClientContext {
    pub(super) peer: Arc<McpPeer>,
    /// The client's other requests; `None` for a stateless one.
    pub(super) client_requests: Option<Arc<ClientRequests>>,
    /// Fires when the client disconnected for good.
    pub(super) ended: CancellationToken,
    /// Whether the peer exists for this request only, so that it disconnects at its end.
    pub(super) is_one_shot: bool,
}

/// Outcome of a request: its result, or the error for the client.
type RpcResult = Result<Box<RawValue>, RpcError>;

impl ServerShared {
    /// Starts the task of a request, or resumes a suspended one. Fails when a limit is reached, the id is in use, or a
    /// `requestState` is not valid; the caller sends that error, and no task was started.
    pub(super) fn start_request(
        self: &Arc<Self>,
        client: ClientContext,
        request: IncomingRequest,
    ) -> Result<(), RpcError> {
        let IncomingRequest { id, method, params, sink, can_stream, extensions } = request;
        let ClientContext { peer, client_requests, ended, is_one_shot } = client;
        // A repeated request continues an existing task, so it is not counted as a new one.
        if peer.era == Era::Modern && self.resume(&id, &method, &params, &peer.query, &sink)? {
            return Ok(());
        }
        let max = self.options.max_requests;
        if self.tasks.len() >= max {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {max} requests at once")));
        }
        // A child, so that the end of the session or stream cancels all its requests, and one request cancels itself
        // only.
        let cancel = ended.child_token();
        if let Some(client_requests) = &client_requests {
            client_requests.register(&id, &cancel, self.options.max_requests_per_client)?;
        }
        let channel = ResponseChannel {
            id,
            progress_token: params.progress_token,
            sink: Some(sink),
            suspended_until: None,
            questions: Vec::new(),
            question_count: 0,
            closed: false,
        };
        let request = Arc::new(RequestState {
            shared: self.clone(),
            peer,
            method,
            name: params.name,
            cancel,
            client_requests,
            stream_options: StreamOptions { can_stream, wants_logs: params.wants_logs },
            channel: Mutex::new(channel),
            wake: Notify::new(),
        });
        let task = async move {
            run_request(&request, params.service_params, extensions).await;
            if is_one_shot {
                request.shared.service.on_disconnect(&request.peer);
            }
        };
        // The span of the HTTP request, so that log lines of the task show where it came from.
        self.tasks.spawn(task.in_current_span());
        Ok(())
    }
}

/// Runs a request from its first call of the service to its response. The id is released before the response is sent: a
/// client may use it again as soon as it has read the response.
async fn run_request(request: &Arc<RequestState>, params: Option<Box<RawValue>>, extensions: Extensions) {
    let outcome = run_service(request, params, extensions).await;
    // The service may finish while the request is suspended; its response waits for the client to come back.
    let client_waits = request.wait_resumed().await;
    request.forget_suspended();
    request.release_id();
    let buffer = request.event_buffer();
    match outcome {
        Some(outcome) if client_waits => request.respond(outcome).await,
        Some(_) | None => request.end(),
    }
    request.close();
    if let Some(buffer) = buffer {
        // Keep the buffer for a client that lost its stream shortly before the response.
        buffer.wait_drained().await;
    }
}

/// Routes a request to the protocol's own handlers or to the service.
fn route_request(
    request: &Arc<RequestState>,
    params: Option<Box<RawValue>>,
    extensions: Extensions,
) -> BoxFuture<'static, RpcResult> {
    match (request.method.as_str(), request.is_modern()) {
        ("server/discover", true) => handshake::discover_result(request.clone()).boxed(),
        ("subscriptions/listen", true) => subscriptions::run_subscription(request.clone(), params).boxed(),
        ("ping", false) => std::future::ready(Ok(handshake::empty_object())).boxed(),
        // Methods that exist in the other era only.
        ("initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", true)
        | ("initialize" | "server/discover" | "subscriptions/listen", false) => {
            let message = format!("method `{}` does not exist in version {}", request.method, request.peer.era);
            std::future::ready(Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message))).boxed()
        }
        _ => request.shared.service.handle_request(McpRequest {
            method: request.method.clone(),
            params,
            peer: request.peer.clone(),
            cancel: request.cancel.clone(),
            client: ClientHandle::new(request.clone()),
            extensions,
        }),
    }
}

/// Runs the service until it finishes. Returns `None` when the request was cancelled, its client disconnected, or the
/// server stopped and has responded already.
async fn run_service(
    request: &Arc<RequestState>,
    params: Option<Box<RawValue>>,
    extensions: Extensions,
) -> Option<RpcResult> {
    // A panic of the service fails this request only.
    let mut work = pin!(AssertUnwindSafe(async { route_request(request, params, extensions).await }).catch_unwind());
    let mut suspended_until: Option<Instant> = None;
    loop {
        let buffer = request.event_buffer();
        let disconnected = async {
            match (&buffer, suspended_until) {
                (Some(buffer), _) => buffer.wait_abandoned().await,
                (None, Some(deadline)) => sleep_until(deadline).await,
                // The end of a byte stream fires `cancel`.
                (None, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // First in the order: the client of a cancelled request must not get a response.
            () = request.cancel.cancelled() => break,
            outcome = &mut work => {
                let failed = |_| Err(RpcError::new(RpcError::INTERNAL, "the server failed to answer"));
                return Some(outcome.unwrap_or_else(failed));
            }
            // Polled after the work, so that concurrent questions go into one `input_required` result.
            () = request.wake.notified() => suspended_until = request.suspend().await,
            () = disconnected => break,
            () = request.shared.stopping.cancelled() => {
                let response = request.shared.service.shutdown_response(&request.method);
                // Bounded, because the client of a byte stream may have stopped reading.
                let _ = timeout(request.shared.options.cleanup_timeout, request.respond(response)).await;
                break;
            }
        }
    }
    request.forget_suspended();
    request.end();
    request.cancel.cancel();
    // Let the service clean up after the cancellation; its result is discarded.
    let _ = timeout(request.shared.options.cleanup_timeout, work).await;
    None
}
