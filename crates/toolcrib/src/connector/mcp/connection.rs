//! A standing connection, with the process behind it where there is one, and the task that ends it when nobody uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_core::text::sanitize;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};
use toolcrib_mcp::{ConnectionEvent, McpClient, NotificationHandler, WireError};

use super::McpConnector;
use super::active_calls::{ActiveCalls, CallGuard, PendingQuestions};
use super::subscriptions::SubscriptionSet;
use super::target::{self, OpenTarget};
use super::upstream_request::rejection_error;
use crate::connections::SourceEvents;
use crate::connector::{CallContext, CallFailure};
use crate::guard::ServerProcess;
use crate::redact::{RedactedJson, Redactor};
use crate::server_logs::StderrTail;

/// How long a server may take to leave once its stdin has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct McpConnection {
    pub(super) client: McpClient,
    server: Mutex<Option<ServerProcess>>,
    stderr_tail: StderrTail,
    in_flight: AtomicUsize,
    active_calls: Arc<ActiveCalls>,
    last_used_at: Mutex<Instant>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Whether a connection is to last, so that it is worth hearing what the server says by itself.
#[derive(Debug)]
pub(super) enum Lifetime {
    Temporary,
    /// At least while something is watched over it.
    Persistent(Arc<SubscriptionSet>),
}

/// A request under way; the connection is not idle while one is.
pub(super) struct RequestGuard<'a> {
    connection: &'a McpConnection,
    /// Whose it is; nobody's when we look at the connection of our own accord, which keeps no server awake.
    call_guard: Option<CallGuard>,
}

impl McpConnection {
    pub(super) async fn connect(
        connector: &McpConnector,
        era: Option<String>,
        timeout: Duration,
        stay: Lifetime,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        let McpConnector { source, options, clients, .. } = connector;
        let news = connector.source_events.clone();
        let reached = target::open_target(source, options, &connector.redactor).await.map_err(start_failure)?;
        let redactor = connector.redactor.get(&source.kind);
        let OpenTarget { target, mut server, stderr_tail: last_words, first_output: first_words, stderr_task: stderr } =
            reached;
        let mut wire = target::wire_options(source, clients, era, timeout);
        let callers = Arc::new(ActiveCalls::default());
        let (lasts, watched) = match stay {
            Lifetime::Temporary => (false, Arc::default()),
            Lifetime::Persistent(watched) => (true, watched),
        };
        wire.listen = lasts;
        wire.handler = Some(callers.handler());
        wire.on_notification =
            Some(route_notifications(callers.clone(), source.id.clone(), lasts.then(|| news.clone()), redactor));
        let bound = wire.handshake_timeout;
        let client = match McpClient::connect(target, wire).await {
            Ok(client) => client,
            Err(error) => {
                let doing = if server.is_none() && bound == source.settings.connect_timeout() {
                    "connecting and waiting for the response to `server/discover` or `initialize`; \
                     `connect_timeout` sets this limit"
                } else {
                    "connecting"
                };
                // A caller that waits for less time than the source may take says nothing about the source.
                let settings = &source.settings;
                let own = if server.is_none() { settings.connect_timeout() } else { settings.call_timeout() };
                let is_hurried = matches!(error, WireError::Timeout { .. }) && bound < own;
                let now = options.clock.now();
                let failure = describe_failure(source, doing, bound, error, now, server.as_mut(), &last_words).await;
                let failure = if is_hurried { CallFailure::Inconclusive(failure.into_error()) } else { failure };
                return Err(failure.map_error(|mut error| {
                    if let Some(words) = first_words.non_protocol_line() {
                        error.message.push_str(&format!("; it printed `{words}`, so it may be no MCP server"));
                    }
                    error
                }));
            }
        };
        let live = Arc::new(McpConnection {
            client,
            server: Mutex::new(server),
            stderr_tail: last_words,
            in_flight: AtomicUsize::new(0),
            active_calls: callers,
            last_used_at: Mutex::new(Instant::now()),
            tasks: Mutex::new(stderr.into_iter().collect()),
        });
        let idle = IdlePolicy { timeout: source.settings.idle(), subscriptions: watched };
        // The list is read over a temporary connection after what is announced there, so that is no reason for another.
        let news = lasts.then_some(news);
        live.track_task(tokio::spawn(monitor_connection(Arc::downgrade(&live), source.id.clone(), idle, news)));
        Ok(live)
    }

    /// Ends a task with the connection.
    pub(super) fn track_task(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    pub(super) fn era(&self) -> String {
        self.client.era().to_string()
    }

    pub(super) fn begin_call(&self, terms: &CallContext) -> RequestGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        RequestGuard { connection: self, call_guard: Some(self.active_calls.register(terms)) }
    }

    pub(super) fn begin_discovery(&self) -> RequestGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        RequestGuard { connection: self, call_guard: None }
    }

    /// Lets calls in flight finish, each within its own deadline, then closes.
    pub(super) async fn drain(&self) {
        while self.in_flight.load(Ordering::SeqCst) > 0 && self.is_usable() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.close().await;
    }

    /// Takes leave of the server and ends its process with all it started.
    pub(super) async fn close(&self) {
        self.close_until(&CancellationToken::new()).await;
    }

    /// As [`Live::close`], but a server that has not left by the time `hurry` is cancelled is ended at once.
    pub(super) async fn close_until(&self, hurry: &CancellationToken) {
        hurry.run_until_cancelled(self.client.close()).await;
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut server) = server else { return };
        let leaving = tokio::time::timeout(SHUTDOWN_TIMEOUT, server.wait());
        let has_left = matches!(hurry.run_until_cancelled(leaving).await, Some(Ok(_)));
        if !has_left {
            server.stop(Duration::ZERO).await;
        }
        self.stderr_tail.drain().await;
    }

    pub(super) async fn explain_failure(
        &self,
        source: &Source,
        doing: &str,
        timeout: Duration,
        error: WireError,
        now: Timestamp,
    ) -> Error {
        // Only of a dead one: others may be using it.
        let dead = !self.is_usable();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| dead);
        describe_failure(source, doing, timeout, error, now, server.as_mut(), &self.stderr_tail).await.into_error()
    }
}

impl RequestGuard<'_> {
    pub(super) fn pending_questions(&self) -> PendingQuestions {
        self.call_guard.as_ref().map(|seat| seat.pending_questions.clone()).unwrap_or_default()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.call_guard.take().is_some() {
            *self.connection.last_used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.connection.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for McpConnection {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

/// Sorts what a server says: some is for the caller being served, some for all who subscribed.
fn route_notifications(
    callers: Arc<ActiveCalls>,
    id: SourceId,
    news: Option<SourceEvents>,
    redactor: Arc<Redactor>,
) -> NotificationHandler {
    Arc::new(move |method, params| match (method, &news) {
        ("notifications/message", _) => {
            // What a server logs may repeat what it was given.
            match params.map_or(RedactedJson::Unchanged, |params| redactor.redact_json(params)) {
                RedactedJson::Unchanged => callers.forward_notification(method, params),
                RedactedJson::Changed(params) => callers.forward_notification(method, Some(&params)),
                RedactedJson::Unreadable => tracing::debug!(source = %id, "a log message of the server was dropped"),
            }
        }
        ("notifications/elicitation/complete", _) => callers.forward_notification(method, params),
        (
            "notifications/resources/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/updated",
            Some(news),
        ) => news.notify(&id, method, params),
        _ => {}
    })
}

/// When a connection is idle: nobody has used it for so long, and nothing is watched over it.
struct IdlePolicy {
    timeout: Duration,
    subscriptions: Arc<SubscriptionSet>,
}

/// Passes on that tools changed, and ends a connection that is idle.
async fn monitor_connection(
    live: std::sync::Weak<McpConnection>,
    id: SourceId,
    idle: IdlePolicy,
    news: Option<SourceEvents>,
) {
    let Some(mut notices) = live.upgrade().map(|live| live.client.events()) else { return };
    loop {
        let rest = match live.upgrade() {
            Some(live) => {
                let used_at = *live.last_used_at.lock().unwrap_or_else(PoisonError::into_inner);
                let rest = (used_at + idle.timeout).saturating_duration_since(Instant::now());
                if idle.subscriptions.has_any() { idle.timeout } else { rest }
            }
            None => return,
        };
        tokio::select! {
            notice = notices.recv() => match notice {
                // What was missed may have been just that.
                Ok(ConnectionEvent::ToolsChanged) | Err(RecvError::Lagged(_)) => {
                    if let Some(news) = &news {
                        news.tools_changed(&id);
                    }
                }
                Ok(ConnectionEvent::Other { .. }) => {}
                Ok(ConnectionEvent::Closed) | Err(RecvError::Closed) => {
                    // Its process may not have noticed.
                    if let Some(live) = live.upgrade() {
                        live.close().await;
                    }
                    return;
                }
            },
            () = tokio::time::sleep(rest.max(Duration::from_millis(50))) => {
                let Some(live) = live.upgrade() else { return };
                let unused = live.in_flight.load(Ordering::SeqCst) == 0 && !idle.subscriptions.has_any();
                let rested = live.last_used_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= idle.timeout;
                if unused && rested {
                    tracing::debug!(server_name = %id, "idle; its connection ends");
                    live.close().await;
                    return;
                }
            }
        }
    }
}

/// A server that does not start is in trouble; a definition that cannot be used is not its fault.
fn start_failure(error: Error) -> CallFailure {
    if error.code == Code::ToolUnavailable { CallFailure::Unavailable(error) } else { CallFailure::Inconclusive(error) }
}

/// What went wrong, in words for people: what the wire saw, how the process ended, and its last word.
async fn describe_failure(
    source: &Source,
    doing: &str,
    timeout: Duration,
    error: WireError,
    now: Timestamp,
    server: Option<&mut ServerProcess>,
    last_words: &StderrTail,
) -> CallFailure {
    let id = &source.id;
    let exit = match (&error, server) {
        (WireError::Closed { .. }, Some(server)) => {
            let waited = tokio::time::timeout(Duration::from_millis(500), server.wait()).await;
            waited.ok().and_then(std::result::Result::ok)
        }
        _ => None,
    };
    if exit.is_some() {
        last_words.drain().await;
    }
    let (code, mut message) = match (&error, exit) {
        (_, Some(status)) => (Code::ToolUnavailable, format!("it ended while {doing} ({status})")),
        (WireError::Timeout { .. }, _) => {
            (Code::ToolUnavailable, format!("no answer within {} while {doing}", format_duration(timeout)))
        }
        (WireError::Connect(_), _) => (Code::ToolUnavailable, error.to_string()),
        (WireError::Unauthorized { login_helps: false, .. }, _) => (Code::ToolExecutionFailed, error.to_string()),
        (WireError::Unauthorized { login_helps: true, .. }, _) => {
            let hint = format!(
                "give it a token: `auth: {{ bearer: \"${{env:NAME}}\" }}` or TOOLCRIB_SOURCE_{}_TOKEN",
                id.as_str().to_uppercase()
            );
            (Code::AuthRequired, format!("{error}; {hint}"))
        }
        (
            WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. }
            | WireError::TooLarge { .. }
            | WireError::Rpc(_)
            | WireError::Protocol(_)
            | WireError::Cancelled { .. },
            _,
        ) => (Code::ToolExecutionFailed, error.to_string()),
    };
    if let Some(words) = last_words.last_line() {
        message.push_str(&format!("; it last said: {words}"));
    }
    let message = sanitize(&message);
    if let Some(refusal) = rejection_error(&error, &message, now) {
        return CallFailure::Rejected(refusal);
    }
    let is_answer = matches!(error, WireError::Rpc(_));
    let error = Error::new(code, message);
    if is_answer { CallFailure::Rejected(error) } else { CallFailure::Unavailable(error) }
}
