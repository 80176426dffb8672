//! The client's connection to one server: request correlation, dispatch of incoming messages, session renewal, and
//! ownership of all background tasks.
//!
//! Bytes are moved by the [`ClientTransport`]; [`McpClient`](crate::McpClient) decides which requests to send.
//!
//! A request takes an id, registers in the table of pending requests (`in_flight`), is encoded for the era (`encode`)
//! and sent by the transport. Whatever arrives, on whichever stream, comes through [`WireConnection::dispatch`]: a
//! response completes the pending request with its id, a request of the server goes to a handler (`server_requests`), a
//! notification to a callback or to the receivers of [`ConnectionEvent`]s.
//!
//! Invariant: each registered request is completed exactly once, by its response, by an error of the transport, by its
//! deadline or cancellation, or by the end of the connection.

mod outgoing;

pub(crate) mod encode;
pub(crate) mod in_flight;
mod resource_subscriptions;
pub(crate) mod server_requests;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use http::HeaderMap;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::{runtime::Handle, sync::broadcast, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use self::in_flight::PendingRequest;
pub(crate) use self::outgoing::{DeliveryStatus, DispatchOutcome, OutgoingMessage, OutgoingRequest, deadline_after};
use crate::{
    client::handshake,
    era::{Era, LegacyVersion},
    error::WireError,
    http::{HttpTransport, legacy_sse::LegacySseTransport},
    message::{self, IncomingMessage, RawObject},
    options::{ClientLimits, ClientOptions, NotificationHandler, ProgressHandler, RequestOptions},
    stdio::StdioTransport,
};

/// Maximum time to send a message that expects no response. Such messages have no caller whose deadline would apply.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// `_meta` key of a notification that names the subscription it belongs to: the id of the `subscriptions/listen` request.
pub(crate) const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// Number of events kept for a receiver that lags; older ones are dropped. Reading from the server never waits for a
/// receiver.
const EVENT_CAPACITY: usize = 256;

/// Event of a connection that belongs to no request.
#[derive(Debug, Clone)]
pub enum ConnectionEvent {
    /// The tool list changed, or may have changed while no notification could arrive.
    ToolsChanged,
    /// Any other notification that the connection does not handle itself.
    Other { method: String, params: Option<Box<RawValue>> },
    /// The connection ended. Always the last event.
    Closed,
}

/// See [`ProgressHandler`].
type WeakProgressHandler = std::sync::Weak<dyn Fn(&RawValue) + Send + Sync>;

/// Shared state of a connection. Its tasks hold it by `Arc`; [`WireConnection::end`] stops them.
///
/// More than twelve fields and twenty methods: both directions of a connection share its lifetime, its tables of pending
/// requests and its end.
pub(crate) struct WireConnection {
    pub(crate) transport: ClientTransport,
    pub(crate) options: ClientOptions,
    /// `_meta` entries of every request of 2026-07-28, encoded once.
    client_meta: [(&'static str, Box<RawValue>); 2],
    /// The era in use; changes while the handshake probes the server.
    era: RwLock<Era>,
    /// Id of the next request. Ids are never reused, so a late response cannot reach another request.
    next_id: AtomicU64,
    /// Requests that wait for a response, by id.
    pending: Mutex<HashMap<u64, PendingRequest>>,
    /// Progress handlers of calls that became tasks, by the id of the call, which is their progress token. Weak: the
    /// handler lives as long as its caller waits.
    task_progress: Mutex<Vec<(u64, WeakProgressHandler)>>,
    /// Requests of a legacy server that are being answered.
    server_requests: server_requests::ActiveServerRequests,
    events: broadcast::Sender<ConnectionEvent>,
    /// Fires when the connection ends, after `end_reason` is set.
    ended: CancellationToken,
    end_reason: OnceLock<WireError>,
    /// Background tasks: readers, writers, handlers and subscriptions. Aborted by [`WireConnection::end`].
    tasks: Mutex<JoinSet<()>>,
    /// The runtime of the caller that connected: a request may be dropped on a thread without one.
    runtime: Handle,
    /// Held while a lost session is renewed, so that concurrent requests share one new session.
    renewal_lock: tokio::sync::Mutex<()>,
    /// Resources to subscribe to again in a new session.
    subscribed_resources: resource_subscriptions::SubscribedResources,
}

/// How messages reach the server.
pub(crate) enum ClientTransport {
    Stdio(StdioTransport),
    Http(HttpTransport),
    Sse(LegacySseTransport),
}

impl WireConnection {
    /// Creates the connection. The caller starts the tasks of its transport.
    pub(crate) fn new(transport: ClientTransport, options: ClientOptions) -> Arc<WireConnection> {
        Arc::new(WireConnection {
            transport,
            client_meta: encode::client_meta(&options),
            options,
            era: RwLock::new(Era::Legacy(LegacyVersion::LATEST)),
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            task_progress: Mutex::default(),
            server_requests: server_requests::ActiveServerRequests::default(),
            events: broadcast::channel(EVENT_CAPACITY).0,
            ended: CancellationToken::new(),
            end_reason: OnceLock::new(),
            tasks: Mutex::default(),
            runtime: Handle::current(),
            renewal_lock: tokio::sync::Mutex::default(),
            subscribed_resources: resource_subscriptions::SubscribedResources::default(),
        })
    }

    /// Returns the bounds on what the server may send.
    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.options.limits
    }

    /// Returns the era that requests are encoded for.
    pub(crate) fn era(&self) -> Era {
        *self.era.read()
    }

    /// Sets the era for further requests.
    pub(crate) fn set_era(&self, era: Era) {
        *self.era.write() = era;
    }

    /// Sends a request and waits for its response. When the server lost the session, begins a new one and repeats the
    /// request once. That is safe for any tool: a server that rejects the session has not processed the request.
    pub(crate) async fn request(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<Box<RawValue>, WireError> {
        // Remembered before the request, so that a session which another request renewed meanwhile is not renewed
        // again.
        let session = self.transport.session();
        if let Some(response) = self.request_once(request, options).await? {
            return Ok(response);
        }
        self.renew_session(session, options).await?;
        let repeated = self.request_once(request, options).await?;
        // The server rejects a session that it created a moment ago, so its 404 is about the address.
        repeated.ok_or(WireError::Status { status: 404, body: String::new(), retry_after: None })
    }

    /// Sends a request once; returns `None` when the session was lost, so that the server did not process it.
    pub(crate) async fn request_once(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<Option<Box<RawValue>>, WireError> {
        // If this future is dropped, the `InFlightRequest` notifies the server.
        // Registered before it is sent: over a separate stream, the response may be read before `send` returns.
        let (in_flight, mut response) = self.register_request(request, options)?;
        let send_state = in_flight.send_state.clone();
        let mut message = self.encode_request(in_flight.id, request, options, send_state)?;
        let exchange = async {
            let delivery = tokio::select! {
                biased;
                // The response may arrive on another stream before the POST completes.
                response = &mut response => return in_flight.resolve(response).map(Some),
                delivery = self.transport.send(self, &mut message) => delivery,
            };
            // Over Streamable HTTP the response was dispatched before `send` returned, so this wait ends at once. Over
            // the other transports it lasts until the reader dispatches the response.
            match delivery {
                Ok(DeliveryStatus::Sent) => in_flight.resolve((&mut response).await).map(Some),
                Ok(DeliveryStatus::SessionLost) => in_flight.unregister(Ok(None)),
                Err(error) => in_flight.unregister(Err(error)),
            }
        };
        tokio::pin!(exchange);
        let sent = || in_flight.send_state.is_sent();
        // A response that is there already wins over a deadline that passed at the same time.
        tokio::select! {
            biased;
            outcome = &mut exchange => outcome,
            () = options.cancelled() => {
                in_flight.send_cancel_reason().await;
                Err(WireError::Cancelled { sent: sent() })
            }
            () = tokio::time::sleep_until(options.deadline) => Err(WireError::Timeout { sent: sent() }),
        }
    }

    /// Sends a notification or a response: a message that expects no response.
    pub(crate) async fn send_message(self: &Arc<Self>, method: &str, text: String) -> Result<(), WireError> {
        let mut message =
            OutgoingMessage { id: None, method, text, headers: HeaderMap::new(), send_state: Arc::default() };
        let sending = timeout(SEND_TIMEOUT, self.transport.send(self, &mut message));
        sending.await.map_err(|_| WireError::Timeout { sent: true })?.map(drop)
    }

    /// Handles text that did not come from the event stream of a request.
    pub(crate) fn dispatch(self: &Arc<Self>, text: &str) -> DispatchOutcome {
        self.dispatch_for_request(text, None)
    }

    /// Handles text from the response stream of `request`; requests and notifications on it go to the handlers of that
    /// request. Returns what the text was.
    pub(crate) fn dispatch_for_request(self: &Arc<Self>, text: &str, request: Option<u64>) -> DispatchOutcome {
        let mut seen = DispatchOutcome::Ignored;
        // In order, and without waiting: the progress of a request is handed over before its result.
        for message in message::split_batch(text) {
            match message::parse(message) {
                None => continue,
                Some(IncomingMessage::Response { id, outcome }) => {
                    let outcome = outcome.map(ToOwned::to_owned).map_err(WireError::Rpc);
                    self.complete_request(id, outcome);
                    seen = DispatchOutcome::Response(id);
                }
                Some(IncomingMessage::ErrorWithoutId(error)) => {
                    tracing::debug!(code = error.code, "the server sent an error without a request id");
                    seen = DispatchOutcome::ErrorWithoutId(error);
                }
                Some(IncomingMessage::Request { id, method, params }) => {
                    let handler = self.read_pending(request, |pending| pending.handler.clone());
                    self.handle_server_request(id, &method, params, handler);
                    seen = seen.or_other();
                }
                Some(IncomingMessage::Notification { method, params }) => {
                    self.on_notification(&method, params, || {
                        self.read_pending(request, |pending| pending.on_notification.clone())
                    });
                    seen = seen.or_other();
                }
            }
        }
        seen
    }

    /// Reads a field of the pending request `request`; `None` when it is answered already.
    fn read_pending<T>(&self, request: Option<u64>, field: impl FnOnce(&PendingRequest) -> Option<T>) -> Option<T> {
        field(self.pending.lock().get(&request?)?)
    }

    /// Handles a notification. `request_handler` returns the handler of the request it belongs to, which takes
    /// precedence over the handler of the connection.
    pub(crate) fn on_notification(
        &self,
        method: &str,
        params: Option<&RawValue>,
        request_handler: impl FnOnce() -> Option<NotificationHandler>,
    ) {
        let field = |name| RawObject::parse(params?)?.get(name).map(ToOwned::to_owned);
        match method {
            "notifications/progress" => {
                // The token is the id of the request; some servers send it back as a string.
                let id = field("progressToken").and_then(|token| token.get().trim_matches('"').parse::<u64>().ok());
                let handler = id.and_then(|id| match self.pending.lock().get(&id) {
                    Some(pending) => pending.progress.clone(),
                    None => self.find_task_progress(id),
                });
                if let (Some(handler), Some(params)) = (handler, params) {
                    handler(params);
                }
            }
            "notifications/cancelled" => {
                let Some(id) = field("requestId") else { return };
                match (self.era(), id.get().parse()) {
                    // In 2026-07-28 the server ends a subscription of ours like this; before, it cancelled a request
                    // of its own.
                    (Era::Modern, Ok(id)) => {
                        let error = closed_error(true, "the server cancelled the request".to_owned());
                        self.complete_request(id, Err(error));
                    }
                    _ => self.server_requests.cancel(id.get()),
                }
            }
            "notifications/subscriptions/acknowledged" => {
                // Over stdio the notification is no part of the request's own stream, but it names the request.
                let subscription = || {
                    let meta = field("_meta")?;
                    let meta = RawObject::parse(&meta)?;
                    let id = meta.get(SUBSCRIPTION_KEY)?;
                    id.get().trim_matches('"').parse().ok()
                };
                let handler = request_handler()
                    .or_else(|| self.read_pending(subscription(), |pending| pending.on_notification.clone()));
                if let Some(handler) = handler {
                    handler(method, params);
                }
            }
            "notifications/tools/list_changed" => self.publish(ConnectionEvent::ToolsChanged),
            other => {
                if let Some(handler) = request_handler().as_ref().or(self.options.on_notification.as_ref()) {
                    handler(other, params);
                }
                self.publish(ConnectionEvent::Other {
                    method: other.to_owned(),
                    params: params.map(ToOwned::to_owned),
                });
            }
        }
    }

    /// Keeps the progress handler of a call after its response, which may be a task.
    fn keep_task_progress(&self, id: u64, handler: &ProgressHandler) {
        let mut handlers = self.task_progress.lock();
        handlers.retain(|(_, handler)| handler.strong_count() > 0);
        handlers.push((id, Arc::downgrade(handler)));
    }

    /// Returns the progress handler of a call that became a task.
    fn find_task_progress(&self, id: u64) -> Option<ProgressHandler> {
        let handlers = self.task_progress.lock();
        handlers.iter().find(|(token, _)| *token == id)?.1.upgrade()
    }

    /// Hands the response to the request that waits for it. Unknown ids are ignored: the request may have timed out.
    fn complete_request(&self, id: u64, outcome: Result<Box<RawValue>, WireError>) {
        if let Some(pending) = self.pending.lock().remove(&id) {
            // The receiver is gone when the request was cancelled just now.
            let _ = pending.response.send(outcome);
        }
    }

    /// Sends an event to all receivers. Never waits; a receiver that lags loses the oldest events.
    pub(crate) fn publish(&self, event: ConnectionEvent) {
        // Fails without receivers, which is fine.
        let _ = self.events.send(event);
    }

    /// Subscribes to events from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.events.subscribe()
    }

    /// Spawns a task that is aborted when the connection ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        // Finished tasks stay in the set until joined.
        while tasks.try_join_next().is_some() {}
        if !self.is_ended() {
            tasks.spawn_on(task, &self.runtime);
        }
    }

    /// Ends the connection: pending requests fail with `reason`, and all tasks are aborted. Later calls do nothing, so
    /// the first reason is the one that is reported.
    pub(crate) fn end(&self, reason: WireError) {
        if self.end_reason.set(reason).is_err() {
            return;
        }
        // Before the table is cleared: `register_request` inserts first and checks this afterwards, so no request is
        // missed.
        self.ended.cancel();
        // Drops the senders; each waiting request then reads `end_reason`.
        self.pending.lock().clear();
        self.publish(ConnectionEvent::Closed);
        self.tasks.lock().abort_all();
    }

    /// Whether [`WireConnection::end`] was called.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the connection ends.
    pub(crate) async fn wait_ended(&self) {
        self.ended.cancelled().await;
    }

    /// Builds the error of a request that ended with the connection. `sent`: whether the server may have received it. A
    /// line over the limit is reported as such to the requests that may have been waiting for it.
    fn end_error(&self, sent: bool) -> WireError {
        match self.end_reason.get() {
            Some(WireError::TooLarge { what, limit }) if sent => WireError::TooLarge { what, limit: *limit },
            Some(WireError::Closed { reason, .. }) => closed_error(sent, reason.clone()),
            Some(other) => closed_error(sent, other.to_string()),
            None => closed_error(sent, "the response was lost".to_owned()),
        }
    }

    /// Replaces the session `lost`, unless a concurrent request did so already.
    async fn renew_session(
        self: &Arc<Self>,
        lost: Option<http::HeaderValue>,
        options: &RequestOptions<'_>,
    ) -> Result<(), WireError> {
        // All requests of a lost session arrive here; the first one renews it and the others find the new one.
        let locking = tokio::time::timeout_at(options.deadline, self.renewal_lock.lock());
        let _guard = locking.await.map_err(|_| WireError::Timeout { sent: false })?;
        if self.transport.session() == lost {
            tracing::debug!("the server lost the session; beginning a new one");
            // Bounded like a new connection, not by the deadline of the request alone, which may be minutes away. The
            // caller then learns that the server is gone, as an error that allows a retry.
            let limit = self.options.connect_timeout;
            let deadline = options.deadline.min(deadline_after(limit));
            match handshake::initialize(self, deadline).await {
                Err(WireError::Timeout { .. }) if deadline < options.deadline => {
                    let reason = format!("the server lost the session and did not begin another within {limit:?}");
                    return Err(WireError::Connect(reason));
                }
                outcome => outcome?,
            };
            // A server that lost its sessions was probably restarted, and its tools may have changed.
            self.publish(ConnectionEvent::ToolsChanged);
            self.resubscribe();
        }
        Ok(())
    }
}

impl ClientTransport {
    /// Sends a message. Over Streamable HTTP this returns only when the response was received and dispatched; over the
    /// other transports as soon as the message is queued or accepted.
    async fn send(
        &self,
        connection: &Arc<WireConnection>,
        message: &mut OutgoingMessage<'_>,
    ) -> Result<DeliveryStatus, WireError> {
        match self {
            ClientTransport::Stdio(stdio) => stdio.send(message).await.map(|()| DeliveryStatus::Sent),
            ClientTransport::Http(http) => http.send(connection, message).await,
            ClientTransport::Sse(sse) => sse.send(message).await.map(|()| DeliveryStatus::Sent),
        }
    }

    /// Returns the session id that the server assigned, which only Streamable HTTP has.
    fn session(&self) -> Option<http::HeaderValue> {
        match self {
            ClientTransport::Http(http) => http.session(),
            ClientTransport::Stdio(_) | ClientTransport::Sse(_) => None,
        }
    }
}

/// The error of a closed connection.
pub(crate) fn closed_error(sent: bool, reason: String) -> WireError {
    WireError::Closed { sent, reason }
}
