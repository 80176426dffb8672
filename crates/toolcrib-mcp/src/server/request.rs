//! One request of a client, from its arrival to its end. [`Request`] owns the phase of the request and all rules for
//! changing it.
//!
//! ```text
//!                 ┌───────────── resume ──────────────┐
//!                 ▼                                   │
//! start ──▶ Running(route) ──────── suspend ──▶ Suspended(deadline)
//!                 └───── respond, abandon, close ─────┘
//!                                   ▼
//!                                 Ended
//! ```
//!
//! [`super::dispatch`] drives the request, the service reaches the client through
//! [`ClientHandle`](super::ClientHandle), and a repeated request resumes it. They call the methods below, none of which
//! holds a lock while it waits. The lock of the phase is taken before that of a table.
//!
//! Nothing may follow the response. The route is therefore taken out of the phase, under its lock, before the response
//! is sent; `try_send` holds the lock while it sends, and `send` is awaited by the work that produces the response.

use std::sync::{Arc, OnceLock};

use http::Extensions;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    McpPeer,
    client_requests::{Cancellation, ClientRequests, RequestId},
    envelope,
    event_buffer::{EventBuffer, MessagePriority, ResponseKind},
    input_required::{self, ClientQuestions},
    params::RequestParams,
    shared::ServerShared,
    sink::Sink,
    suspended_requests::unknown_state,
};
use crate::{
    connection::deadline_after,
    era::Era,
    error::{RpcError, WireError},
    message::RawObject,
};

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
    pub(super) extensions: Arc<Extensions>,
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

/// A request, shared by its task, the handles that the service holds, and the table of suspended requests. It has more
/// than twenty methods: all transitions, which belong into one place, and getters, because no other file may change its
/// fields.
#[derive(Debug)]
pub(super) struct Request {
    shared: Arc<ServerShared>,
    peer: Arc<McpPeer>,
    method: String,
    /// The tool, prompt or resource that the request is about.
    name: Option<String>,
    cancel: Cancellation,
    client_requests: Option<Arc<ClientRequests>>,
    can_stream: bool,
    wants_logs: bool,
    phase: Mutex<Phase>,
    /// Fires when the request was resumed or has a new question.
    wake: Notify,
}

/// Phase of a request.
#[derive(Debug)]
enum Phase {
    /// The client waits for the response.
    Running { route: Route, questions: ClientQuestions },
    /// The client has an `input_required` result and may repeat the request with this state until the deadline.
    /// 2026-07-28 only.
    Suspended { state: String, deadline: Instant, questions: ClientQuestions },
    /// No message can be sent and no question asked. An abandoned request keeps its id until the service has cleaned
    /// up, and so counts towards the maximum of its client.
    Ended { id: Option<RequestId> },
}

/// Route to a client that waits for a response; another one after the request was resumed.
#[derive(Debug)]
struct Route {
    id: RequestId,
    progress_token: Option<Box<RawValue>>,
    sink: Sink,
}

impl Request {
    /// Starts a request. Fails when the client has too many requests or the id is in use. The parameters for the
    /// service and the extensions are left to the caller.
    pub(super) fn start(
        shared: &Arc<ServerShared>,
        client: ClientContext,
        incoming: IncomingRequest,
    ) -> Result<Arc<Request>, RpcError> {
        let IncomingRequest { id, method, params, sink, can_stream, .. } = incoming;
        let ClientContext { peer, client_requests, ended, .. } = client;
        // A child, so that the end of the session or stream cancels all its requests, and one request cancels itself
        // only.
        let cancel = Cancellation { token: ended.child_token(), reason: Arc::default() };
        let id = RequestId::register(id, client_requests.as_ref(), &cancel, shared.options.max_requests_per_client)?;
        let route = Route { id, progress_token: params.progress_token, sink };
        Ok(Arc::new(Request {
            shared: shared.clone(),
            peer,
            method,
            name: params.name,
            cancel,
            client_requests,
            can_stream,
            wants_logs: params.wants_logs,
            phase: Mutex::new(Phase::Running { route, questions: ClientQuestions::default() }),
            wake: Notify::new(),
        }))
    }

    /// Sends a message without waiting, or drops it. `encode` gets the progress token of the client. Holding the lock
    /// ensures that nothing follows the response, which the specification forbids.
    pub(super) fn try_send(
        &self,
        encode: impl FnOnce(Option<&RawValue>) -> Result<String, WireError>,
        priority: MessagePriority,
    ) {
        if let Phase::Running { route, .. } = &*self.phase.lock()
            && self.can_stream
            && let Ok(text) = encode(route.progress_token.as_deref())
        {
            route.sink.try_send(text, priority);
        }
    }

    /// Sends a message and waits for room in the queue; returns `false` when there is no client to send it to. The lock
    /// is not held meanwhile, so the work of the request must wait for this before it returns.
    pub(super) async fn send(&self, text: String, priority: MessagePriority) -> bool {
        let sink = match &*self.phase.lock() {
            Phase::Running { route, .. } => route.sink.clone(),
            Phase::Suspended { .. } | Phase::Ended { .. } => return false,
        };
        sink.send(text, priority).await
    }

    /// Asks a client of 2026-07-28 and waits for the answer, which arrives with a repeated request.
    pub(super) async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let question = input_required::encode_question(method, params)?;
        let answer = match &mut *self.phase.lock() {
            Phase::Running { questions, .. } | Phase::Suspended { questions, .. } => questions.add(method, question),
            Phase::Ended { .. } if self.cancel.token.is_cancelled() => return Err(request_cancelled_error()),
            Phase::Ended { .. } => return Err(request_ended_error()),
        };
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| {
            // The question was dropped with the end of the request.
            Err(if self.cancel.token.is_cancelled() {
                request_cancelled_error()
            } else {
                RpcError::new(RpcError::INTERNAL, "the client did not answer in time")
            })
        })
    }

    /// Waits until there may be questions for [`Request::suspend`], or the request was resumed.
    pub(super) async fn wait_woken(&self) {
        self.wake.notified().await;
    }

    /// Sends the open questions to a client that waits for the response, and suspends the request. Does nothing when
    /// the service waits for no answer.
    pub(super) async fn suspend(self: &Arc<Self>) {
        let (sink, text) = {
            let mut phase = self.phase.lock();
            let Phase::Running { route, questions } = &mut *phase else { return };
            // The service may have stopped waiting for some of the answers.
            if !questions.retain_awaited() {
                return;
            }
            // Added while the phase is locked: a client that repeats the request at once finds it suspended completely.
            let state = self.shared.suspended.insert(self.clone());
            let result = questions.encode_result(&state).map_err(RpcError::from);
            let result = result.map(|result| envelope::add_result_metadata(result, &self.shared.server_info));
            let text = envelope::encode_response(route.id.value(), &result);
            let sink = route.sink.clone();
            let questions = std::mem::take(questions);
            let deadline = deadline_after(self.shared.options.ask_timeout);
            // Frees the id: the response is about to be sent, after which the client may use it again.
            *phase = Phase::Suspended { state, deadline, questions };
            (sink, text)
        };
        sink.finish(text, ResponseKind::Result).await;
    }

    /// Resumes the request with the answers of its client. `repeated` must have method, name and query of the
    /// suspended request: a state is no permission to call another tool. After an error the request stays suspended,
    /// so the right request can still resume it.
    pub(super) fn resume(
        &self,
        state: &str,
        answers: &RawObject<'_>,
        repeated: IncomingRequest,
        query: &str,
    ) -> Result<(), RpcError> {
        let IncomingRequest { id, method, params, sink, .. } = repeated;
        if self.method != method || self.name != params.name || self.peer.query != query {
            return Err(unknown_state());
        }
        let mut phase = self.phase.lock();
        let Phase::Suspended { questions, .. } = &mut *phase else { return Err(unknown_state()) };
        let max = self.shared.options.max_requests_per_client;
        let id = RequestId::register(id, self.client_requests.as_ref(), &self.cancel, max)?;
        // A state is valid once. It is gone as well when the request was cancelled to make room for another.
        if !self.shared.suspended.remove(state) {
            return Err(unknown_state());
        }
        // Questions without a valid answer are asked again when the task wakes.
        questions.answer(answers);
        let questions = std::mem::take(questions);
        *phase = Phase::Running { route: Route { id, progress_token: params.progress_token, sink }, questions };
        drop(phase);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits until the request is not suspended. Returns `false` when it was cancelled or its deadline passed, so that
    /// no client waits for the response.
    pub(super) async fn wait_resumed(&self) -> bool {
        loop {
            let deadline = match &*self.phase.lock() {
                Phase::Running { .. } => return true,
                Phase::Suspended { deadline, .. } => *deadline,
                Phase::Ended { .. } => return false,
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.cancel.token.cancelled() => return false,
                () = sleep_until(deadline) => return false,
            }
        }
    }

    /// Waits until the client has abandoned the request: its HTTP response has no reader any more, or it did not repeat
    /// a suspended request in time. To be called again after the request was suspended or resumed.
    pub(super) async fn wait_disconnected(&self) {
        let (buffer, deadline) = match &*self.phase.lock() {
            Phase::Running { route, .. } => (route.sink.event_buffer().cloned(), None),
            Phase::Suspended { deadline, .. } => (None, Some(*deadline)),
            Phase::Ended { .. } => (None, None),
        };
        match (buffer, deadline) {
            (Some(buffer), _) => buffer.wait_abandoned().await,
            (None, Some(deadline)) => sleep_until(deadline).await,
            // The end of a byte stream fires `cancel`.
            (None, None) => std::future::pending().await,
        }
    }

    /// Ends the request with a response, if its client waits for one. The id is freed before the response is sent: a
    /// client may use it again as soon as it has read the response. Returns the buffer of an HTTP response.
    pub(super) async fn respond(&self, outcome: Result<Box<RawValue>, RpcError>) -> Option<Arc<EventBuffer>> {
        let Route { id, sink, .. } = self.end()?;
        let kind = match &outcome {
            Ok(_) => ResponseKind::Result,
            Err(error) => ResponseKind::Error(error.code),
        };
        let outcome = match self.peer.era {
            Era::Modern => outcome.map(|result| envelope::add_result_metadata(result, &self.shared.server_info)),
            Era::Legacy(_) => outcome,
        };
        let text = envelope::encode_response(id.value(), &outcome);
        drop(id);
        sink.finish(text, kind).await;
        sink.event_buffer().cloned()
    }

    /// Ends the request without a response, as the specification requires for a cancelled one, and cancels the work of
    /// the service. The id stays in use until [`Request::close`].
    pub(super) fn abandon(&self) {
        let questions = {
            let mut phase = self.phase.lock();
            let (id, questions) = match std::mem::replace(&mut *phase, Phase::Ended { id: None }) {
                Phase::Running { route, questions } => {
                    route.sink.end();
                    (Some(route.id), questions)
                }
                Phase::Suspended { state, questions, .. } => {
                    self.shared.suspended.remove(&state);
                    (None, questions)
                }
                Phase::Ended { id } => (id, ClientQuestions::default()),
            };
            *phase = Phase::Ended { id };
            questions
        };
        self.cancel.token.cancel();
        // After the cancellation, so that the service sees it as the reason why its questions get no answers.
        drop(questions);
    }

    /// Ends the request without a response and frees its id.
    pub(super) fn close(&self) {
        if let Some(route) = self.end() {
            route.sink.end();
        }
    }

    /// Ends the request; fails open and later questions, and ignores later messages. Returns the route if the client
    /// waits for a response; otherwise the id is free.
    fn end(&self) -> Option<Route> {
        let mut phase = self.phase.lock();
        match std::mem::replace(&mut *phase, Phase::Ended { id: None }) {
            Phase::Running { route, .. } => Some(route),
            Phase::Suspended { state, .. } => {
                self.shared.suspended.remove(&state);
                None
            }
            Phase::Ended { .. } => None,
        }
    }

    /// Returns the state that all requests of the endpoint or byte stream share.
    pub(super) fn shared(&self) -> &Arc<ServerShared> {
        &self.shared
    }

    pub(super) fn peer(&self) -> &Arc<McpPeer> {
        &self.peer
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    /// Returns the JSON-RPC id; `None` while the request has none, because it is suspended or has ended.
    pub(super) fn id(&self) -> Option<Box<RawValue>> {
        match &*self.phase.lock() {
            Phase::Running { route: Route { id, .. }, .. } | Phase::Ended { id: Some(id) } => {
                Some(id.value().to_owned())
            }
            Phase::Suspended { .. } | Phase::Ended { id: None } => None,
        }
    }

    /// Fires when the client cancels the request or disconnects.
    pub(super) fn cancellation(&self) -> &CancellationToken {
        &self.cancel.token
    }

    /// Returns the place of the client's reason for cancelling the request.
    pub(super) fn cancel_reason(&self) -> &Arc<OnceLock<String>> {
        &self.cancel.reason
    }

    /// Returns the requests of the same client, at which a legacy client's answers to questions arrive; `None` for a
    /// stateless client.
    pub(super) fn client_requests(&self) -> Option<&Arc<ClientRequests>> {
        self.client_requests.as_ref()
    }

    /// Whether the client uses 2026-07-28.
    pub(super) fn is_modern(&self) -> bool {
        self.peer.era == Era::Modern
    }

    /// Whether messages can be sent before the response.
    pub(super) fn can_stream(&self) -> bool {
        self.can_stream
    }

    /// Whether the client sent a progress token and waits for messages.
    pub(super) fn wants_progress(&self) -> bool {
        self.can_stream && matches!(&*self.phase.lock(), Phase::Running { route, .. } if route.progress_token.is_some())
    }

    /// Whether a client of 2026-07-28 asked for log messages.
    pub(super) fn wants_logs(&self) -> bool {
        self.wants_logs
    }
}

/// The error for a question of a request that ended already.
pub(super) fn request_ended_error() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the request that this question belongs to has ended")
}

/// The error for a question of a request that was cancelled.
pub(super) fn request_cancelled_error() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the request was cancelled")
}

#[cfg(test)]
mod tests;
