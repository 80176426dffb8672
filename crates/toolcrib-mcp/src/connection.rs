//! One connection to one server: which requests wait for an answer, what becomes of an incoming message, and which
//! tasks run on its behalf. How bytes travel is the [`Transport`]'s; what to say is the client's.

pub(crate) mod call;
pub(crate) mod compose;
mod mail;
pub(crate) mod serve;
mod watched;

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

use self::call::Pending;
pub(crate) use self::mail::{Ask, Delivered, Mail, Seen, Terms, after};
use crate::{
    client::handshake,
    era::{Era, Version},
    error::WireError,
    http::{Http, legacy::LegacySse},
    message::{self, Incoming, RawObject},
    options::{Heard, Limits, Options},
    pipe::Pipe,
};

/// What a server says of its own accord.
#[derive(Debug, Clone)]
pub enum Notice {
    ToolsChanged,
    Other { method: String, params: Option<Box<RawValue>> },
    Closed,
}

pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) options: Options,
    about: [(&'static str, Box<RawValue>); 2],
    speaking: RwLock<Era>,
    next_id: AtomicU64,
    pending: Mutex<HashMap<u64, Pending>>,
    serving: serve::Serving,
    notices: broadcast::Sender<Notice>,
    ended: CancellationToken,
    end_reason: OnceLock<WireError>,
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
    renewing: tokio::sync::Mutex<()>,
    watched: watched::Watched,
}

pub(crate) enum Transport {
    Pipe(Pipe),
    Http(Http),
    Sse(LegacySse),
}

impl Connection {
    pub(crate) fn new(transport: Transport, options: Options) -> Arc<Connection> {
        Arc::new(Connection {
            transport,
            about: compose::about(&options),
            options,
            speaking: RwLock::new(Era::Legacy(Version::LATEST)),
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            serving: serve::Serving::default(),
            notices: broadcast::channel(256).0,
            ended: CancellationToken::new(),
            end_reason: OnceLock::new(),
            tasks: Mutex::default(),
            runtime: Handle::current(),
            renewing: tokio::sync::Mutex::default(),
            watched: watched::Watched::default(),
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(crate) fn speaking(&self) -> Era {
        *self.speaking.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn speak(&self, era: Era) {
        *self.speaking.write().unwrap_or_else(PoisonError::into_inner) = era;
    }

    /// Asks, and when the server lost our session in between, begins a new one and asks again.
    pub(crate) async fn request(self: &Arc<Self>, ask: &Ask<'_>, terms: &Terms) -> Result<Box<RawValue>, WireError> {
        let session = self.transport.session();
        if let Some(answer) = self.exchange(ask, terms).await? {
            return Ok(answer);
        }
        self.renew(session, terms).await?;
        let again = self.exchange(ask, terms).await?;
        // It does not know a session that it has just given out, so it means the address.
        again.ok_or(WireError::Status { status: 404, said: String::new(), retry_after: None })
    }

    /// One request and its answer; `None` when the session was lost and the request not looked at.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        terms: &Terms,
    ) -> Result<Option<Box<RawValue>>, WireError> {
        let (call, mut answer) = self.register(ask, terms)?;
        let mut mail = self.compose(call.id, ask, terms.progress.is_some(), call.ticket.clone())?;
        let work = async {
            let delivered = tokio::select! {
                biased;
                // An answer may overtake its delivery, on another stream.
                answer = &mut answer => return call.settle(answer).map(Some),
                delivered = self.transport.deliver(self, &mut mail) => delivered,
            };
            match delivered {
                Ok(Delivered::Sent) => call.settle((&mut answer).await).map(Some),
                Ok(Delivered::SessionLost) => call.drop_quietly(Ok(None)),
                Err(error) => call.drop_quietly(Err(error)),
            }
        };
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = terms.cancel.cancelled() => Err(WireError::Cancelled { sent: call.ticket.departed() }),
            () = tokio::time::sleep_until(terms.deadline) => Err(WireError::Timeout { sent: call.ticket.departed() }),
        }
    }

    /// Sends something that needs no answer.
    pub(crate) async fn tell(self: &Arc<Self>, method: &str, text: String) -> Result<(), WireError> {
        let mut mail = Mail { id: None, method, text, headers: HeaderMap::new(), ticket: Arc::default() };
        let sending = timeout(Duration::from_secs(10), self.transport.deliver(self, &mut mail));
        sending.await.map_err(|_| WireError::Timeout { sent: true })?.map(drop)
    }

    /// Takes in what a server sent, whichever stream it came on.
    pub(crate) fn dispatch(self: &Arc<Self>, text: &str) -> Seen {
        self.dispatch_on(text, None)
    }

    /// Takes in what a server sent on the stream of the answer to a request; what it asks and says there is about that.
    pub(crate) fn dispatch_on(self: &Arc<Self>, text: &str, request: Option<u64>) -> Seen {
        let mut seen = Seen::Junk;
        for part in message::parts(text) {
            match message::read(part) {
                None => continue,
                Some(Incoming::Answer { id, outcome }) => {
                    let outcome = outcome.map(ToOwned::to_owned).map_err(WireError::Rpc);
                    self.answer(id, outcome);
                    seen = Seen::Answer(id);
                }
                Some(Incoming::Refusal(error)) => {
                    tracing::debug!(code = error.code, "the server sent an error that names no request");
                    seen = Seen::Refusal(error);
                }
                Some(Incoming::Request { id, method, params }) => {
                    self.serve(id, &method, params, self.of_request(request, |pending| pending.handler.clone()));
                    seen = seen.or_other();
                }
                Some(Incoming::Notification { method, params }) => {
                    self.hear(&method, params, || self.of_request(request, |pending| pending.heard.clone()));
                    seen = seen.or_other();
                }
            }
        }
        seen
    }

    fn of_request<T>(&self, request: Option<u64>, part: impl FnOnce(&Pending) -> Option<T>) -> Option<T> {
        part(lock(&self.pending).get(&request?)?)
    }

    /// `told` is who is told instead of who is told everything.
    fn hear(&self, method: &str, params: Option<&RawValue>, told: impl FnOnce() -> Option<Heard>) {
        let field = |name| RawObject::open(params?)?.get(name).map(ToOwned::to_owned);
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
                match (self.speaking(), id.get().parse()) {
                    // Since 2026 it is our request that ends so: a subscription. Before, it was theirs.
                    (Era::Modern, Ok(id)) => self.answer(id, Err(closed(true, "the server ended it".to_owned()))),
                    _ => self.serving.abort(id.get()),
                }
            }
            "notifications/subscriptions/acknowledged" => {}
            "notifications/tools/list_changed" => self.announce(Notice::ToolsChanged),
            other => {
                if let Some(heard) = told().as_ref().or(self.options.heard.as_ref()) {
                    heard(other, params);
                }
                self.announce(Notice::Other { method: other.to_owned(), params: params.map(ToOwned::to_owned) });
            }
        }
    }

    fn answer(&self, id: u64, outcome: Result<Box<RawValue>, WireError>) {
        if let Some(pending) = lock(&self.pending).remove(&id) {
            let _gone = pending.answer.send(outcome);
        }
    }

    pub(crate) fn announce(&self, notice: Notice) {
        let _nobody_listens = self.notices.send(notice);
    }

    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
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
        self.announce(Notice::Closed);
        lock(&self.tasks).abort_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(crate) async fn until_ended(&self) {
        self.ended.cancelled().await;
    }

    fn ended_because(&self, sent: bool) -> WireError {
        match self.end_reason.get() {
            Some(WireError::TooLarge { what, limit }) if sent => WireError::TooLarge { what, limit: *limit },
            Some(WireError::Closed { reason, .. }) => closed(sent, reason.clone()),
            Some(other) => closed(sent, other.to_string()),
            None => closed(sent, "the answer was lost".to_owned()),
        }
    }

    /// One new session for all who noticed that the old one is gone.
    async fn renew(self: &Arc<Self>, lost: Option<http::HeaderValue>, terms: &Terms) -> Result<(), WireError> {
        let turn = tokio::time::timeout_at(terms.deadline, self.renewing.lock());
        let _one_at_a_time = turn.await.map_err(|_| WireError::Timeout { sent: false })?;
        if self.transport.session() == lost {
            tracing::debug!("the server forgot the session; beginning a new one");
            let limit = self.options.connect_timeout;
            let deadline = terms.deadline.min(after(limit));
            match handshake::initialize(self, deadline).await {
                Err(WireError::Timeout { .. }) if deadline < terms.deadline => {
                    let reason = format!("the server forgot the session and did not begin another within {limit:?}");
                    return Err(WireError::Connect(reason));
                }
                outcome => outcome?,
            };
            // A server that forgot us was probably started anew, and may have changed.
            self.announce(Notice::ToolsChanged);
            self.watch_again();
        }
        Ok(())
    }
}

impl Transport {
    async fn deliver(&self, connection: &Arc<Connection>, mail: &mut Mail<'_>) -> Result<Delivered, WireError> {
        match self {
            Transport::Pipe(pipe) => pipe.deliver(mail).await.map(|()| Delivered::Sent),
            Transport::Http(http) => http.deliver(connection, mail).await,
            Transport::Sse(sse) => sse.deliver(mail).await.map(|()| Delivered::Sent),
        }
    }

    fn session(&self) -> Option<http::HeaderValue> {
        match self {
            Transport::Http(http) => http.session(),
            Transport::Pipe(_) | Transport::Sse(_) => None,
        }
    }
}

pub(crate) fn closed(sent: bool, reason: String) -> WireError {
    WireError::Closed { sent, reason }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
