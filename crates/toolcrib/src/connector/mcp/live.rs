//! A standing connection, with the process behind it where there is one, and the task that ends it when nobody uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_core::text::shown;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};
use toolcrib_mcp::{Client, Heard, Notice, WireError};

use super::McpConnector;
use super::callers::{Asking, Callers, Seat};
use super::exchange::refusal;
use super::target::{self, Reached};
use super::watched::Watched;
use crate::connections::News;
use crate::connector::{CallFailure, Terms};
use crate::guard::Server;
use crate::logs::LastWords;
use crate::redact::{RedactedJson, Redactor};

/// How long a server may take to leave once its stdin has ended.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Live {
    pub(super) client: Client,
    server: Mutex<Option<Server>>,
    last_words: LastWords,
    in_flight: AtomicUsize,
    callers: Arc<Callers>,
    used_at: Mutex<Instant>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Whether a connection is to last, so that it is worth hearing what the server says by itself.
#[derive(Debug)]
pub(super) enum Stay {
    Short,
    /// At least while something is watched over it.
    Long(Arc<Watched>),
}

/// A request under way; the connection is not idle while one is.
pub(super) struct InFlight<'a> {
    live: &'a Live,
    /// Whose it is; nobody's when we look at the connection of our own accord, which keeps no server awake.
    seat: Option<Seat>,
}

impl Live {
    pub(super) async fn connect(
        connector: &McpConnector,
        era: Option<String>,
        timeout: Duration,
        stay: Stay,
    ) -> Result<Arc<Live>, CallFailure> {
        let McpConnector { source, options, clients, .. } = connector;
        let news = connector.news.clone();
        let reached = target::reach(source, options, &connector.redactor).await.map_err(unreached)?;
        let redactor = connector.redactor.get(&source.kind);
        let Reached { target, mut server, last_words, first_words, stderr } = reached;
        let mut wire = target::wire_options(source, clients, era, timeout);
        let callers = Arc::new(Callers::default());
        let (lasts, watched) = match stay {
            Stay::Short => (false, Arc::default()),
            Stay::Long(watched) => (true, watched),
        };
        wire.listen = lasts;
        wire.handler = Some(callers.handler());
        wire.heard = Some(heard(callers.clone(), source.id.clone(), lasts.then(|| news.clone()), redactor));
        let bound = wire.handshake_timeout;
        let client = match Client::connect(target, wire).await {
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
                let failure = explain(source, doing, bound, error, now, server.as_mut(), &last_words).await;
                let failure = if is_hurried { CallFailure::Undecided(failure.into_error()) } else { failure };
                return Err(failure.map(|mut error| {
                    if let Some(words) = first_words.strange() {
                        error.message.push_str(&format!("; it printed `{words}`, so it may be no MCP server"));
                    }
                    error
                }));
            }
        };
        let live = Arc::new(Live {
            client,
            server: Mutex::new(server),
            last_words,
            in_flight: AtomicUsize::new(0),
            callers,
            used_at: Mutex::new(Instant::now()),
            tasks: Mutex::new(stderr.into_iter().collect()),
        });
        let idle = Idle { after: source.settings.idle(), watched };
        // The list is read over a temporary connection after what is announced there, so that is no reason for another.
        let news = lasts.then_some(news);
        live.own(tokio::spawn(watch(Arc::downgrade(&live), source.id.clone(), idle, news)));
        Ok(live)
    }

    /// Ends a task with the connection.
    pub(super) fn own(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    pub(super) fn usable(&self) -> bool {
        !self.client.is_closed()
    }

    pub(super) fn era(&self) -> String {
        self.client.era().to_string()
    }

    pub(super) fn begin(&self, terms: &Terms) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight { live: self, seat: Some(self.callers.enter(terms)) }
    }

    pub(super) fn begin_to_look(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight { live: self, seat: None }
    }

    /// Lets calls in flight finish, each within its own deadline, then closes.
    pub(super) async fn drain(&self) {
        while self.in_flight.load(Ordering::SeqCst) > 0 && self.usable() {
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
        let leaving = tokio::time::timeout(FAREWELL, server.wait());
        let has_left = matches!(hurry.run_until_cancelled(leaving).await, Some(Ok(_)));
        if !has_left {
            server.stop(Duration::ZERO).await;
        }
        self.last_words.heard_out().await;
    }

    pub(super) async fn explain(
        &self,
        source: &Source,
        doing: &str,
        timeout: Duration,
        error: WireError,
        now: Timestamp,
    ) -> Error {
        // Only of a dead one: others may be using it.
        let dead = !self.usable();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| dead);
        explain(source, doing, timeout, error, now, server.as_mut(), &self.last_words).await.into_error()
    }
}

impl InFlight<'_> {
    pub(super) fn asking(&self) -> Asking {
        self.seat.as_ref().map(|seat| seat.asking.clone()).unwrap_or_default()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.seat.take().is_some() {
            *self.live.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.live.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

/// Sorts what a server says: some is for the caller being served, some for all who subscribed.
fn heard(callers: Arc<Callers>, id: SourceId, news: Option<News>, redactor: Arc<Redactor>) -> Heard {
    Arc::new(move |method, params| match (method, &news) {
        ("notifications/message", _) => {
            // What a server logs may repeat what it was given.
            match params.map_or(RedactedJson::Unchanged, |params| redactor.redact_json(params)) {
                RedactedJson::Unchanged => callers.tell(method, params),
                RedactedJson::Changed(params) => callers.tell(method, Some(&params)),
                RedactedJson::Unreadable => tracing::debug!(source = %id, "a log message of the server was dropped"),
            }
        }
        ("notifications/elicitation/complete", _) => callers.tell(method, params),
        (
            "notifications/resources/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/updated",
            Some(news),
        ) => news.said(&id, method, params),
        _ => {}
    })
}

/// When a connection is idle: nobody has used it for so long, and nothing is watched over it.
struct Idle {
    after: Duration,
    watched: Arc<Watched>,
}

/// Passes on that tools changed, and ends a connection that is idle.
async fn watch(live: std::sync::Weak<Live>, id: SourceId, idle: Idle, news: Option<News>) {
    let Some(mut notices) = live.upgrade().map(|live| live.client.notices()) else { return };
    loop {
        let rest = match live.upgrade() {
            Some(live) => {
                let used_at = *live.used_at.lock().unwrap_or_else(PoisonError::into_inner);
                let rest = (used_at + idle.after).saturating_duration_since(Instant::now());
                if idle.watched.any() { idle.after } else { rest }
            }
            None => return,
        };
        tokio::select! {
            notice = notices.recv() => match notice {
                // What was missed may have been just that.
                Ok(Notice::ToolsChanged) | Err(RecvError::Lagged(_)) => {
                    if let Some(news) = &news {
                        news.tools_changed(&id);
                    }
                }
                Ok(Notice::Other { .. }) => {}
                Ok(Notice::Closed) | Err(RecvError::Closed) => {
                    // Its process may not have noticed.
                    if let Some(live) = live.upgrade() {
                        live.close().await;
                    }
                    return;
                }
            },
            () = tokio::time::sleep(rest.max(Duration::from_millis(50))) => {
                let Some(live) = live.upgrade() else { return };
                let unused = live.in_flight.load(Ordering::SeqCst) == 0 && !idle.watched.any();
                let rested = live.used_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= idle.after;
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
fn unreached(error: Error) -> CallFailure {
    if error.code == Code::ToolUnavailable { CallFailure::Lost(error) } else { CallFailure::Undecided(error) }
}

/// What went wrong, in words for people: what the wire saw, how the process ended, and its last word.
async fn explain(
    source: &Source,
    doing: &str,
    timeout: Duration,
    error: WireError,
    now: Timestamp,
    server: Option<&mut Server>,
    last_words: &LastWords,
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
        last_words.heard_out().await;
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
    if let Some(words) = last_words.last() {
        message.push_str(&format!("; it last said: {words}"));
    }
    let message = shown(&message);
    if let Some(refusal) = refusal(&error, &message, now) {
        return CallFailure::Refused(refusal);
    }
    let is_answer = matches!(error, WireError::Rpc(_));
    let error = Error::new(code, message);
    if is_answer { CallFailure::Refused(error) } else { CallFailure::Lost(error) }
}
