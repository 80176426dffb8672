//! One connection to one server: which requests wait for an answer, what becomes of an incoming message, and which
//! tasks run on its behalf. How bytes travel is the [`Transport`]'s; what to say is the client's.

pub(crate) mod encode;
pub(crate) mod in_flight;
mod outgoing;
mod resource_subscriptions;
pub(crate) mod server_requests;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, atomic::AtomicU64},
    time::Duration,
};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{runtime::Handle, sync::broadcast, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use self::in_flight::PendingRequest;
pub(crate) use self::outgoing::{
    DeliveryStatus, DispatchOutcome, OutgoingMessage, OutgoingRequest, RequestContext, deadline_after,
};
use crate::{
    client::handshake,
    era::{Era, LegacyVersion},
    error::WireError,
    http::{HttpTransport, legacy_sse::LegacySseTransport},
    message::{self, IncomingMessage, RawObject},
    options::{ClientLimits, ClientOptions, NotificationHandler},
    stdio::StdioTransport,
};

/// What a server says of its own accord.
#[derive(Debug, Clone)]
pub enum ConnectionEvent {
    ToolsChanged,
    Other { method: String, params: Option<Box<RawValue>> },
    Closed,
}

pub(crate) struct WireConnection {
    pub(crate) transport: ClientTransport,
    pub(crate) options: ClientOptions,
    client_meta: [(&'static str, Box<RawValue>); 2],
    era: RwLock<Era>,
    next_id: AtomicU64,
    pending: Mutex<HashMap<u64, PendingRequest>>,
    server_requests: server_requests::ActiveServerRequests,
    events: broadcast::Sender<ConnectionEvent>,
    ended: CancellationToken,
    end_reason: OnceLock<WireError>,
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
    renewal_lock: tokio::sync::Mutex<()>,
    subscribed_resources: resource_subscriptions::SubscribedResources,
}

pub(crate) enum ClientTransport {
    Stdio(StdioTransport),
    Http(HttpTransport),
    Sse(LegacySseTransport),
}

impl WireConnection {
    pub(crate) fn new(transport: ClientTransport, options: ClientOptions) -> Arc<WireConnection> {
        Arc::new(WireConnection {
            transport,
            client_meta: encode::client_meta(&options),
            options,
            era: RwLock::new(Era::Legacy(LegacyVersion::LATEST)),
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            server_requests: server_requests::ActiveServerRequests::default(),
            events: broadcast::channel(256).0,
            ended: CancellationToken::new(),
            end_reason: OnceLock::new(),
            tasks: Mutex::default(),
            runtime: Handle::current(),
            renewal_lock: tokio::sync::Mutex::default(),
            subscribed_resources: resource_subscriptions::SubscribedResources::default(),
        })
    }

    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.options.limits
    }

    pub(crate) fn era(&self) -> Era {
        *self.era.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_era(&self, era: Era) {
        *self.era.write().unwrap_or_else(PoisonError::into_inner) = era;
    }

    /// Asks, and when the server lost our session in between, begins a new one and asks again.
    pub(crate) async fn request(
        self: &Arc<Self>,
        ask: &OutgoingRequest<'_>,
        terms: &RequestContext,
    ) -> Result<Box<RawValue>, WireError> {
        let session = self.transport.session();
        if let Some(answer) = self.request_once(ask, terms).await? {
            return Ok(answer);
        }
        self.renew_session(session, terms).await?;
        let again = self.request_once(ask, terms).await?;
        // It does not know a session that it has just given out, so it means the address.
        again.ok_or(WireError::Status { status: 404, body: String::new(), retry_after: None })
    }

    /// One request and its answer; `None` when the session was lost and the request not looked at.
    pub(crate) async fn request_once(
        self: &Arc<Self>,
        ask: &OutgoingRequest<'_>,
        terms: &RequestContext,
    ) -> Result<Option<Box<RawValue>>, WireError> {
        let (call, mut answer) = self.register_request(ask, terms)?;
        let mut mail = self.encode_request(call.id, ask, terms.progress.is_some(), call.send_state.clone())?;
        let work = async {
            let delivered = tokio::select! {
                biased;
                // An answer may overtake its delivery, on another stream.
                answer = &mut answer => return call.resolve(answer).map(Some),
                delivered = self.transport.send(self, &mut mail) => delivered,
            };
            match delivered {
                Ok(DeliveryStatus::Sent) => call.resolve((&mut answer).await).map(Some),
                Ok(DeliveryStatus::SessionLost) => call.unregister(Ok(None)),
                Err(error) => call.unregister(Err(error)),
            }
        };
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = terms.cancel.cancelled() => Err(WireError::Cancelled { sent: call.send_state.is_sent() }),
            () = tokio::time::sleep_until(terms.deadline) => Err(WireError::Timeout { sent: call.send_state.is_sent() }),
        }
    }

    /// Sends something that needs no answer.
    pub(crate) async fn send_message(self: &Arc<Self>, method: &str, text: String) -> Result<(), WireError> {
        let mut mail =
            OutgoingMessage { id: None, method, text, headers: HeaderMap::new(), send_state: Arc::default() };
        let sending = timeout(Duration::from_secs(10), self.transport.send(self, &mut mail));
        sending.await.map_err(|_| WireError::Timeout { sent: true })?.map(drop)
    }

    /// Takes in what a server sent, whichever stream it came on.
    pub(crate) fn dispatch(self: &Arc<Self>, text: &str) -> DispatchOutcome {
        self.dispatch_for_request(text, None)
    }

    /// Takes in what a server sent on the stream of the answer to a request; what it asks and says there is about that.
    pub(crate) fn dispatch_for_request(self: &Arc<Self>, text: &str, request: Option<u64>) -> DispatchOutcome {
        let mut seen = DispatchOutcome::Ignored;
        for part in message::split_batch(text) {
            match message::parse(part) {
                None => continue,
                Some(IncomingMessage::Response { id, outcome }) => {
                    let outcome = outcome.map(ToOwned::to_owned).map_err(WireError::Rpc);
                    self.complete_request(id, outcome);
                    seen = DispatchOutcome::Response(id);
                }
                Some(IncomingMessage::ErrorWithoutId(error)) => {
                    tracing::debug!(code = error.code, "the server sent an error that names no request");
                    seen = DispatchOutcome::ErrorWithoutId(error);
                }
                Some(IncomingMessage::Request { id, method, params }) => {
                    self.handle_server_request(
                        id,
                        &method,
                        params,
                        self.read_pending(request, |pending| pending.handler.clone()),
                    );
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

    fn read_pending<T>(&self, request: Option<u64>, part: impl FnOnce(&PendingRequest) -> Option<T>) -> Option<T> {
        part(lock(&self.pending).get(&request?)?)
    }

    /// `told` is who is told instead of who is told everything.
    fn on_notification(
        &self,
        method: &str,
        params: Option<&RawValue>,
        told: impl FnOnce() -> Option<NotificationHandler>,
    ) {
        let field = |name| RawObject::parse(params?)?.get(name).map(ToOwned::to_owned);
        match method {
            "notifications/progress" => {
                let id = field("progressToken").and_then(|token| token.get().trim_matches('"').parse::<u64>().ok());
                let sink = id.and_then(|id| lock(&self.pending).get(&id)?.progress.clone());
                if let (Some(sink), Some(params)) = (sink, params) {
                    let _full_or_gone = sink.try_send(params.to_owned());
                }
            }
            "notifications/cancelled" => {
                let Some(id) = field("requestId") else { return };
                match (self.era(), id.get().parse()) {
                    // Since 2026 it is our request that ends so: a subscription. Before, it was theirs.
                    (Era::Modern, Ok(id)) => {
                        self.complete_request(id, Err(closed_error(true, "the server ended it".to_owned())))
                    }
                    _ => self.server_requests.cancel(id.get()),
                }
            }
            "notifications/subscriptions/acknowledged" => {}
            "notifications/tools/list_changed" => self.publish(ConnectionEvent::ToolsChanged),
            other => {
                if let Some(heard) = told().as_ref().or(self.options.on_notification.as_ref()) {
                    heard(other, params);
                }
                self.publish(ConnectionEvent::Other {
                    method: other.to_owned(),
                    params: params.map(ToOwned::to_owned),
                });
            }
        }
    }

    fn complete_request(&self, id: u64, outcome: Result<Box<RawValue>, WireError>) {
        if let Some(pending) = lock(&self.pending).remove(&id) {
            let _gone = pending.response.send(outcome);
        }
    }

    pub(crate) fn publish(&self, notice: ConnectionEvent) {
        let _nobody_listens = self.events.send(notice);
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.events.subscribe()
    }

    /// Runs something for as long as the connection lives.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if !self.is_ended() {
            tasks.spawn_on(task, &self.runtime);
        }
    }

    /// Ends the connection: who waits is told why, and all tasks stop.
    pub(crate) fn end(&self, reason: WireError) {
        if self.end_reason.set(reason).is_err() {
            return;
        }
        self.ended.cancel();
        lock(&self.pending).clear();
        self.publish(ConnectionEvent::Closed);
        lock(&self.tasks).abort_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(crate) async fn wait_ended(&self) {
        self.ended.cancelled().await;
    }

    fn end_error(&self, sent: bool) -> WireError {
        match self.end_reason.get() {
            Some(WireError::TooLarge { what, limit }) if sent => WireError::TooLarge { what, limit: *limit },
            Some(WireError::Closed { reason, .. }) => closed_error(sent, reason.clone()),
            Some(other) => closed_error(sent, other.to_string()),
            None => closed_error(sent, "the answer was lost".to_owned()),
        }
    }

    /// One new session for all who noticed that the old one is gone.
    async fn renew_session(
        self: &Arc<Self>,
        lost: Option<http::HeaderValue>,
        terms: &RequestContext,
    ) -> Result<(), WireError> {
        let turn = tokio::time::timeout_at(terms.deadline, self.renewal_lock.lock());
        let _one_at_a_time = turn.await.map_err(|_| WireError::Timeout { sent: false })?;
        if self.transport.session() == lost {
            tracing::debug!("the server forgot the session; beginning a new one");
            let limit = self.options.connect_timeout;
            let deadline = terms.deadline.min(deadline_after(limit));
            match handshake::initialize(self, deadline).await {
                Err(WireError::Timeout { .. }) if deadline < terms.deadline => {
                    let reason = format!("the server forgot the session and did not begin another within {limit:?}");
                    return Err(WireError::Connect(reason));
                }
                outcome => outcome?,
            };
            // A server that forgot us was probably started anew, and may have changed.
            self.publish(ConnectionEvent::ToolsChanged);
            self.resubscribe();
        }
        Ok(())
    }
}

impl ClientTransport {
    async fn send(
        &self,
        connection: &Arc<WireConnection>,
        mail: &mut OutgoingMessage<'_>,
    ) -> Result<DeliveryStatus, WireError> {
        match self {
            ClientTransport::Stdio(pipe) => pipe.send(mail).await.map(|()| DeliveryStatus::Sent),
            ClientTransport::Http(http) => http.send(connection, mail).await,
            ClientTransport::Sse(sse) => sse.send(mail).await.map(|()| DeliveryStatus::Sent),
        }
    }

    fn session(&self) -> Option<http::HeaderValue> {
        match self {
            ClientTransport::Http(http) => http.session(),
            ClientTransport::Stdio(_) | ClientTransport::Sse(_) => None,
        }
    }
}

pub(crate) fn closed_error(sent: bool, reason: String) -> WireError {
    WireError::Closed { sent, reason }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
