//! One MCP connection with its server process, if any: connecting, closing, explaining failures, and the task that
//! closes the connection when it is idle.
//!
//! The life of a connection: `connect` starts the process or opens the HTTP target and completes the handshake; guards
//! count the requests in flight; `monitor_connection` closes it after the idle time or when the server ends it; `close`
//! ends the process tree. Whether a connection is shared, and when a new one is opened, is decided in `connection_pool`
//! and in `super`.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_connector::EraPreference;
use toolcrib_core::text::sanitize;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, SourceId};
use toolcrib_mcp::{ConnectionEvent, Era, McpClient, NotificationHandler, WireError};

use super::McpConnector;
use super::active_calls::{ActiveCalls, CallGuard, PendingQuestions};
use super::call_failure::rejection_error;
use super::stderr_tail::StderrTail;
use super::subscriptions::SubscriptionSet;
use super::target::{self, OpenTarget};
use crate::connector::{CallContext, CallFailure};
use crate::connectors::SourceEvents;
use crate::guard::ServerProcess;
use crate::redact::{RedactedJson, Redactor};
use crate::secret::ReferenceValues;

/// Time for a server to exit after its stdin was closed. On Unix its process tree then gets SIGTERM, and SIGKILL after
/// `TERM_TO_KILL_TIMEOUT` of `guard/process.rs`; on Windows the server is killed at once.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to wait for the exit status of a server whose pipes have closed. A server that crashes closes its pipes just
/// before it can be waited for; one that only closed its stdout goes on running, and the error must not wait for it.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for a legacy server on stdio to answer `server/discover`. Most answer with an error at once; one that ignores
/// unknown methods delays the first call of a client of 2026-07-28 by this.
const MODERN_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Era of a handshake.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HandshakeEra {
    /// Negotiated before; tried first.
    pub(super) hint: Option<Era>,
    /// The only one to speak.
    pub(super) only: Option<Era>,
}

/// An open MCP connection.
#[derive(Debug)]
pub(super) struct McpConnection {
    /// The wire; usable until it is closed by either side.
    pub(super) client: McpClient,
    /// Process behind a stdio connection; taken out when the connection closes.
    server: Mutex<Option<ServerProcess>>,
    /// Exit status of that process, set when it has exited before it had to be killed; `None` for remote servers.
    exit_status: Option<watch::Sender<Option<ExitStatus>>>,
    /// Last lines of the server's stderr, for error messages.
    stderr_tail: StderrTail,
    /// Whether the server may speak the other era too. False once that is known to fail.
    may_speak_other_era: AtomicBool,
    /// Whether a legacy server on stdio accepts requests of 2026-07-28 over this connection; asked once, on demand.
    accepts_modern: OnceCell<bool>,
    /// Requests in flight, discovery included. The connection is not idle while there are any.
    in_flight: AtomicUsize,
    /// Calls in flight, to route the server's own requests and notifications.
    active_calls: Arc<ActiveCalls>,
    /// End of the last call. Discovery does not count: it must not keep a server running.
    last_used_at: Mutex<Instant>,
    /// Background tasks that end with the connection.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Intended lifetime of a connection. Only a persistent one listens for the server's notifications.
#[derive(Debug, Clone)]
pub(super) enum Lifetime {
    /// Closed after one request.
    Temporary,
    /// Kept until idle, and at least while there are subscriptions over it.
    Persistent(Arc<SubscriptionSet>),
}

/// RAII guard for a request in flight.
pub(super) struct RequestGuard<'a> {
    connection: &'a McpConnection,
    /// Registration of the call; `None` for discovery, which does not reset the idle timer.
    call_guard: Option<CallGuard>,
}

impl McpConnection {
    /// Starts or contacts the server and completes the MCP handshake within `timeout`. `references` are the values of
    /// the source's references for this connection, `extensions` those of the only client that it serves.
    pub(super) async fn connect(
        connector: &McpConnector,
        references: &ReferenceValues,
        era: HandshakeEra,
        timeout: Duration,
        lifetime: Lifetime,
        extensions: Option<&RawValue>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        let McpConnector { source, options, clients, .. } = connector;
        let source_events = connector.source_events.clone();
        // Knows the values of `references`, which were added when they were read.
        let redactor = connector.references.redactor();
        // Fill in the references, and start the process or build the HTTP target.
        let open = target::open_target(source, options, references, &redactor).await.map_err(start_failure)?;
        let OpenTarget { target, mut server, stderr_tail, first_output, stderr_task } = open;
        // Set up the wire: protocol version, handlers for the server's requests and notifications.
        let mut wire = target::wire_options(source, clients, era, timeout, extensions);
        let active_calls = Arc::new(ActiveCalls::default());
        let (is_persistent, subscriptions) = match lifetime {
            Lifetime::Temporary => (false, Arc::default()),
            Lifetime::Persistent(subscriptions) => (true, subscriptions),
        };
        wire.listen = is_persistent;
        wire.handler = Some(active_calls.handler());
        wire.on_notification = Some(route_notifications(
            active_calls.clone(),
            source.id.clone(),
            is_persistent.then(|| source_events.clone()),
            redactor,
        ));
        // Handshake. A failure is explained with the process status, stderr and what the server printed on stdout.
        let handshake_timeout = wire.handshake_timeout;
        let client = match McpClient::connect(target, wire).await {
            Ok(client) => client,
            Err(error) => {
                let doing = if server.is_none() && handshake_timeout == source.settings.connect_timeout() {
                    "connecting and waiting for the response to `server/discover` or `initialize`; \
                     `connect_timeout` sets this limit"
                } else {
                    "connecting"
                };
                // A caller with a shorter timeout than the source's own must not count against the source.
                let settings = &source.settings;
                // A remote server has its own connect timeout; a process may use the whole call timeout to install
                // itself.
                let own_timeout = if server.is_none() { settings.connect_timeout() } else { settings.call_timeout() };
                let has_shorter_timeout = matches!(error, WireError::Timeout { .. }) && handshake_timeout < own_timeout;
                // A closed pipe usually means that the process is exiting: wait briefly for its status.
                let exit = match (&error, server.as_mut()) {
                    (WireError::Closed { .. }, Some(server)) => {
                        let waited = tokio::time::timeout(EXIT_STATUS_TIMEOUT, server.wait()).await;
                        waited.ok().and_then(std::result::Result::ok)
                    }
                    _ => None,
                };
                let failure = describe_failure(connector, doing, handshake_timeout, error, exit, &stderr_tail).await;
                let failure =
                    if has_shorter_timeout { CallFailure::Inconclusive(failure.into_error()) } else { failure };
                return Err(failure.map_error(|mut error| {
                    if let Some(line) = first_output.non_protocol_line() {
                        error.message.push_str(&format!("; it printed `{line}`, so it is probably not an MCP server"));
                    }
                    error
                }));
            }
        };
        let connection = Arc::new(McpConnection {
            may_speak_other_era: AtomicBool::new(client.may_speak_other_era() && source.settings.protocol.is_none()),
            accepts_modern: OnceCell::new(),
            client,
            exit_status: server.as_ref().map(|_| watch::Sender::default()),
            server: Mutex::new(server),
            stderr_tail,
            in_flight: AtomicUsize::new(0),
            active_calls,
            last_used_at: Mutex::new(Instant::now()),
            tasks: Mutex::new(stderr_task.into_iter().collect()),
        });
        // The monitor holds a weak reference: the pool, or the one request, decides how long the connection lives.
        let idle = IdlePolicy { timeout: source.settings.idle(), subscriptions };
        // A temporary connection reports no changes of tools: discovery lists them again itself, and a transient call
        // ends with its connection.
        let source_events = is_persistent.then_some(source_events);
        connection.track_task(tokio::spawn(monitor_connection(
            Arc::downgrade(&connection),
            source.id.clone(),
            idle,
            source_events,
        )));
        Ok(connection)
    }

    /// Aborts the task when the connection is dropped.
    pub(super) fn track_task(&self, task: JoinHandle<()>) {
        self.tasks.lock().push(task);
    }

    /// Whether requests can be sent. False once either side has closed the connection; it never becomes usable again.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    /// Whether a caller with this preference gets all that it supports over this connection.
    pub(super) fn suits(&self, preference: EraPreference) -> bool {
        match (preference, self.client.era()) {
            (EraPreference::Any, _)
            | (EraPreference::Legacy, Era::Legacy(_))
            | (EraPreference::Modern, Era::Modern) => true,
            (EraPreference::Legacy, Era::Modern) | (EraPreference::Modern, Era::Legacy(_)) => {
                !self.may_speak_other_era.load(Ordering::Relaxed)
            }
        }
    }

    /// Records that the other era is not available, so that it is not tried again over the life of this connection.
    pub(super) fn rule_out_other_era(&self) {
        self.may_speak_other_era.store(false, Ordering::Relaxed);
    }

    /// Whether the connection is to a process. Such a server serves both eras over its one connection or only one era.
    pub(super) fn is_process(&self) -> bool {
        self.exit_status.is_some()
    }

    /// Asks a legacy server on stdio, once, whether it accepts requests of 2026-07-28 too.
    pub(super) async fn probe_modern(&self) -> bool {
        *self.accepts_modern.get_or_init(|| self.client.probe_modern(MODERN_PROBE_TIMEOUT)).await
    }

    /// Era in which a request for a caller with this preference is sent.
    pub(super) fn request_era(&self, preference: EraPreference) -> Era {
        match preference {
            EraPreference::Modern if self.accepts_modern.get() == Some(&true) => Era::Modern,
            EraPreference::Modern | EraPreference::Legacy | EraPreference::Any => self.client.era(),
        }
    }

    /// Registers a call until the guard is dropped.
    pub(super) fn begin_call(&self, context: &CallContext) -> RequestGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        RequestGuard { connection: self, call_guard: Some(self.active_calls.register(context)) }
    }

    /// Registers a request of Toolcrib itself, which does not reset the idle timer.
    pub(super) fn begin_discovery(&self) -> RequestGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        RequestGuard { connection: self, call_guard: None }
    }

    /// Waits for requests in flight, each bounded by its own deadline, then closes.
    pub(super) async fn drain(&self) {
        // Polling is good enough: draining happens on shutdown and reconfiguration only.
        while self.in_flight.load(Ordering::SeqCst) > 0 && self.is_usable() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.close().await;
    }

    /// Closes the MCP connection and ends the process tree of the server.
    pub(super) async fn close(&self) {
        self.close_or_kill(&CancellationToken::new()).await;
    }

    /// As [`McpConnection::close`], but kills a server that has not exited when `kill_signal` is cancelled.
    pub(super) async fn close_or_kill(&self, kill_signal: &CancellationToken) {
        kill_signal.run_until_cancelled(self.client.close()).await;
        // Taken out, so that concurrent calls of `close` end the process once.
        let server = self.server.lock().take();
        let Some(mut server) = server else { return };
        let exited = tokio::time::timeout(SHUTDOWN_TIMEOUT, server.wait());
        let exited = kill_signal.run_until_cancelled(exited).await;
        match (exited, &self.exit_status) {
            (Some(Ok(Ok(status))), Some(exit_status)) => {
                exit_status.send_replace(Some(status));
            }
            (Some(Ok(_)), _) => {}
            (Some(Err(_)) | None, _) => {
                server.stop(Duration::ZERO).await;
            }
        }
        self.stderr_tail.drain().await;
    }

    /// Describes a failed request of Toolcrib itself on this connection, with exit status and stderr if the server has
    /// exited. `doing` completes "while …".
    pub(super) async fn explain_failure(
        self: &Arc<Self>,
        connector: &McpConnector,
        doing: &str,
        timeout: Duration,
        error: WireError,
    ) -> Error {
        let exit = self.wait_for_exit(&error).await;
        describe_failure(connector, doing, timeout, error, exit, &self.stderr_tail).await.into_error()
    }

    /// Describes the exit of the server during a call. `None` if `error` has another reason, if the server is remote,
    /// and if the process has not exited within [`EXIT_STATUS_TIMEOUT`]. Without the lines of its stderr, which may
    /// repeat arguments of another client's call.
    pub(super) async fn describe_exit(self: &Arc<Self>, connector: &McpConnector, error: &WireError) -> Option<String> {
        let status = self.wait_for_exit(error).await?;
        let mut message = format!("the server exited during the call ({})", display_status(status));
        if connector.options.logs_directory.is_some() {
            message.push_str(&format!("; `toolcrib logs {}` shows its stderr", connector.source.id));
        }
        Some(message)
    }

    /// Waits briefly for the exit status of a server that closed the connection.
    async fn wait_for_exit(self: &Arc<Self>, error: &WireError) -> Option<ExitStatus> {
        // `Closed` may also mean that the server cancelled this request alone; then the connection stays usable.
        if !matches!(error, WireError::Closed { .. }) || self.is_usable() {
            return None;
        }
        let mut exit_status = self.exit_status.as_ref()?.subscribe();
        // Closing waits for the process and records its status. In a task of its own, because the caller may give up
        // waiting while the server still has time to exit. The monitor closes as well; only one of them gets the
        // process.
        let connection = self.clone();
        self.track_task(tokio::spawn(async move { connection.close().await }));
        let exited = tokio::time::timeout(EXIT_STATUS_TIMEOUT, exit_status.wait_for(Option::is_some)).await;
        exited.ok()?.ok().and_then(|status| *status)
    }
}

impl RequestGuard<'_> {
    /// Question counter of the call; a fresh one for discovery.
    pub(super) fn pending_questions(&self) -> PendingQuestions {
        self.call_guard.as_ref().map(|guard| guard.pending_questions.clone()).unwrap_or_default()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        // Set the time before the count goes down: the monitor closes when it reads no request and a time long past.
        if self.call_guard.take().is_some() {
            *self.connection.last_used_at.lock() = Instant::now();
        }
        self.connection.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the background tasks. The process tree ends with its [`ServerProcess`], if `close` has not taken it out.
impl Drop for McpConnection {
    fn drop(&mut self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

/// Routes a server's notifications: log messages to the client being served, changes of resources and prompts to all
/// subscribers. Called by the wire while it reads the stream, before the next message, so that a notification cannot
/// arrive after the response that it precedes. `tools/list_changed` is no part of this: the monitor handles it.
fn route_notifications(
    active_calls: Arc<ActiveCalls>,
    id: SourceId,
    source_events: Option<SourceEvents>,
    redactor: Arc<Redactor>,
) -> NotificationHandler {
    Arc::new(move |method, params| match (method, &source_events) {
        ("notifications/message", _) => {
            // Log messages may contain secrets of the source.
            match params.map_or(RedactedJson::Unchanged, |params| redactor.redact_json(params)) {
                RedactedJson::Unchanged => active_calls.forward_notification(method, params),
                RedactedJson::Changed(params) => active_calls.forward_notification(method, Some(&params)),
                RedactedJson::Unmaskable => {
                    tracing::debug!(source = %id, "a log message of the server was dropped: a secret in it cannot be masked")
                }
            }
        }
        ("notifications/elicitation/complete", _) => active_calls.forward_notification(method, params),
        ("notifications/resources/updated", Some(source_events)) => source_events.notify(&id, method, params),
        ("notifications/resources/list_changed" | "notifications/prompts/list_changed", Some(source_events)) => {
            source_events.notify(&id, method, params);
            // Clients are notified when the refresh has found another list.
            source_events.tools_changed(&id);
        }
        // Progress is matched to its request by the wire; other notifications have no receiver.
        _ => {}
    })
}

/// When a connection counts as idle: no call for `timeout`, and no subscription.
struct IdlePolicy {
    /// `idle` of the source.
    timeout: Duration,
    /// Those over this connection; empty for a temporary one.
    subscriptions: Arc<SubscriptionSet>,
}

/// Reports changed tools to the registry and closes an idle connection. Holds a weak reference, so that it does not
/// keep the connection alive.
async fn monitor_connection(
    connection: std::sync::Weak<McpConnection>,
    id: SourceId,
    idle: IdlePolicy,
    source_events: Option<SourceEvents>,
) {
    // Subscribe once; the receiver does not keep the connection alive.
    let Some(mut events) = connection.upgrade().map(|connection| connection.client.events()) else { return };
    loop {
        // Computed anew in each round: calls move the time of last use, and subscriptions come and go.
        let idle_in = match connection.upgrade() {
            Some(connection) => {
                let last_used_at = *connection.last_used_at.lock();
                let idle_in = (last_used_at + idle.timeout).saturating_duration_since(Instant::now());
                if idle.subscriptions.has_any() { idle.timeout } else { idle_in }
            }
            None => return,
        };
        tokio::select! {
            event = events.recv() => match event {
                // A lagged receiver may have lost exactly this event.
                Ok(ConnectionEvent::ToolsChanged) | Err(RecvError::Lagged(_)) => {
                    if let Some(source_events) = &source_events {
                        source_events.tools_changed(&id);
                    }
                }
                Ok(ConnectionEvent::Other { .. }) => {}
                Ok(ConnectionEvent::Closed) | Err(RecvError::Closed) => {
                    // The transport is closed; the process may still run.
                    if let Some(connection) = connection.upgrade() {
                        connection.close().await;
                    }
                    return;
                }
            },
            // At least 50 ms, so that a request in flight at the end of the interval does not cause a busy loop.
            () = tokio::time::sleep(idle_in.max(Duration::from_millis(50))) => {
                // The timer may fire while a request is in flight, or just after a call has ended: check again.
                let Some(connection) = connection.upgrade() else { return };
                let is_unused = connection.in_flight.load(Ordering::SeqCst) == 0 && !idle.subscriptions.has_any();
                let is_idle = connection.last_used_at.lock().elapsed() >= idle.timeout;
                if is_unused && is_idle {
                    tracing::debug!(server_name = %id, "closing the idle connection");
                    connection.close().await;
                    return;
                }
            }
        }
    }
}

/// A server that fails to start counts against the source; an unusable definition, such as an unresolved reference,
/// does not.
fn start_failure(error: Error) -> CallFailure {
    if error.code == Code::ToolUnavailable { CallFailure::Unavailable(error) } else { CallFailure::Inconclusive(error) }
}

/// Builds the error message for a failed connection from the wire error, the exit status and the end of stderr, and
/// classifies the failure. `doing` completes "while …".
async fn describe_failure(
    connector: &McpConnector,
    doing: &str,
    timeout: Duration,
    error: WireError,
    exit: Option<ExitStatus>,
    stderr_tail: &StderrTail,
) -> CallFailure {
    if exit.is_some() {
        stderr_tail.drain().await;
    }
    // An exit status explains more than the broken pipe it caused.
    let (code, mut message) = match (&error, exit) {
        (_, Some(status)) => {
            let message = format!("the server exited while {doing} ({})", display_status(status));
            (Code::ToolUnavailable, message)
        }
        (WireError::Timeout { .. }, _) => {
            (Code::ToolUnavailable, format!("no answer within {} while {doing}", format_duration(timeout)))
        }
        (WireError::Connect(_), _) => (Code::ToolUnavailable, error.to_string()),
        (WireError::Unauthorized { login_helps: false, .. }, _) => (Code::ToolExecutionFailed, error.to_string()),
        (WireError::Unauthorized { login_helps: true, .. }, _) => (Code::AuthRequired, error.to_string()),
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
    let login = connector.explain_login(&error).await;
    if let Some((text, _)) = &login {
        message.clone_from(text);
    }
    append_stderr(&mut message, connector, stderr_tail);
    // Both the server's message and its stderr are untrusted text.
    let message = sanitize(&message);
    let details = login.map_or_else(|| json!({}), |(_, details)| details);
    if let Some(rejection) = rejection_error(&error, &message, details, connector.options.clock.now()) {
        return CallFailure::Rejected(rejection);
    }
    // A JSON-RPC error is a response: the server is alive.
    let is_response = matches!(error, WireError::Rpc(_));
    let error = Error::new(code, message);
    if is_response { CallFailure::Rejected(error) } else { CallFailure::Unavailable(error) }
}

/// `exit status 1`, or the signal that ended the process. A guard reports signal n as exit status 128 + n.
fn display_status(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"))
}

/// Appends the last lines of stderr, if there are any, and the command that shows the rest:
///
/// ```text
/// the server exited while connecting (exit status 1); stderr: line 1 | line 2; `toolcrib logs files` shows more
/// ```
fn append_stderr(message: &mut String, connector: &McpConnector, stderr_tail: &StderrTail) {
    let lines = stderr_tail.last_lines();
    if lines.is_empty() {
        return;
    }
    message.push_str(&format!("; stderr: {}", lines.join(" | ")));
    // Without a directory for logs, nothing but the tail in memory is kept.
    if connector.options.logs_directory.is_some() {
        message.push_str(&format!("; `toolcrib logs {}` shows more", connector.source.id));
    }
}
