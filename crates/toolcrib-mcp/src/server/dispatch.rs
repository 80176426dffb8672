//! Runs requests: starts one task per request, routes it to the service, and ends it with a response, a cancellation or
//! a disconnect of the client.
//!
//! The tasks belong to the [`ServerShared`] of the endpoint or byte stream. [`run_request`] is the life of a request;
//! [`run_service`] is the part in which the service works and everything that may interrupt it is watched.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use http::Extensions;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tracing::Instrument;

use super::{
    ClientHandle, McpRequest, handshake, input_required,
    request::{ClientContext, IncomingRequest, Request},
    shared::ServerShared,
    subscriptions,
};
use crate::{era::Era, error::RpcError, message::empty_object};

/// Outcome of a request: its result, or the error for the client.
type RpcResult = Result<Box<RawValue>, RpcError>;

impl ServerShared {
    /// Starts the task of a request, or resumes a suspended one. Fails when a limit is reached, the id is in use, or a
    /// `requestState` is not valid; the caller sends that error, and no task was started.
    pub(super) fn start_request(
        self: &Arc<Self>,
        client: ClientContext,
        mut incoming: IncomingRequest,
    ) -> Result<(), RpcError> {
        // A repeated request continues an existing task, so it is not counted as a new one.
        if client.peer.era == Era::Modern
            && let Some(state) = incoming.params.request_state.take_if(|state| self.suspended.is_local(state))
        {
            let answers = incoming.params.input_responses.take();
            let answers = input_required::parse_answers(answers.as_deref())?;
            return self.suspended.find(&state)?.resume(&state, &answers, incoming, &client.peer.query);
        }
        let max = self.options.max_requests;
        if self.tasks.len() >= max {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {max} requests at once")));
        }
        let is_one_shot = client.is_one_shot;
        let params = incoming.params.service_params.take();
        let extensions = incoming.extensions.clone();
        let request = Request::start(self, client, incoming)?;
        let task = async move {
            run_request(&request, params, extensions).await;
            if is_one_shot {
                request.shared().service.on_disconnect(request.peer());
            }
        };
        // The span of the HTTP request, so that log lines of the task show where it came from.
        self.tasks.spawn(task.in_current_span());
        Ok(())
    }
}

/// Runs a request from its first call of the service to its end.
async fn run_request(request: &Arc<Request>, params: Option<Box<RawValue>>, extensions: Arc<Extensions>) {
    match run_service(request, params, extensions).await {
        // The service may finish while the request is suspended; its response waits for the client to come back.
        Some(outcome) if request.wait_resumed().await => {
            if let Some(buffer) = request.respond(outcome).await {
                // Keep the buffer for a client that lost its stream shortly before the response.
                buffer.wait_drained().await;
            }
        }
        Some(_) | None => request.close(),
    }
}

/// Routes a request to the protocol's own handlers or to the service.
fn route_request(
    request: &Arc<Request>,
    params: Option<Box<RawValue>>,
    extensions: Arc<Extensions>,
) -> BoxFuture<'static, RpcResult> {
    match (request.method(), request.is_modern()) {
        ("server/discover", true) => handshake::discover_result(request.clone()).boxed(),
        ("subscriptions/listen", true) => subscriptions::run_subscription(request.clone(), params).boxed(),
        ("ping", false) => std::future::ready(Ok(empty_object())).boxed(),
        // Methods that exist in the other era only.
        ("initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", true)
        | ("initialize" | "server/discover" | "subscriptions/listen", false) => {
            let message = format!("method `{}` does not exist in version {}", request.method(), request.peer().era);
            std::future::ready(Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message))).boxed()
        }
        _ => request.shared().service.handle_request(McpRequest {
            method: request.method().to_owned(),
            params,
            peer: request.peer().clone(),
            cancel: request.cancellation().clone(),
            client: ClientHandle::new(request.clone()),
            extensions,
        }),
    }
}

/// Runs the service until it finishes. Returns `None` when the request was cancelled, its client disconnected, or the
/// server stopped and has responded already.
async fn run_service(
    request: &Arc<Request>,
    params: Option<Box<RawValue>>,
    extensions: Arc<Extensions>,
) -> Option<RpcResult> {
    let shared = request.shared();
    // A panic of the service fails this request only.
    let mut work = pin!(AssertUnwindSafe(async { route_request(request, params, extensions).await }).catch_unwind());
    loop {
        tokio::select! {
            biased;
            // First in the order: the client of a cancelled request must not get a response.
            () = request.cancellation().cancelled() => break,
            outcome = &mut work => {
                let failed = |_| Err(RpcError::new(RpcError::INTERNAL, "the server failed to answer"));
                return Some(outcome.unwrap_or_else(failed));
            }
            // Polled after the work, so that concurrent questions go into one `input_required` result.
            () = request.wait_woken() => request.suspend().await,
            () = request.wait_disconnected() => break,
            () = shared.stopping.cancelled() => {
                let response = shared.service.shutdown_response(request.method());
                // Bounded, because the client of a byte stream may have stopped reading.
                let _ = timeout(shared.options.cleanup_timeout, request.respond(response)).await;
                break;
            }
        }
    }
    request.abandon();
    // Let the service clean up after the cancellation; its result is discarded.
    let _ = timeout(shared.options.cleanup_timeout, work).await;
    None
}
