//! Connector for MCP sources. With `lifecycle: shared` one connection per source is opened by the first call that needs
//! it, used by all clients, and closed when idle; `per_client` and `transient` open one per client or per call.
//!
//! This file holds the [`Connector`] implementation and the path of a request: it selects the connection and retries
//! where that is safe. Listing tools is in `discovery`, connections and their processes in `connection` and `target`,
//! resource subscriptions in `subscriptions`.
//!
//! A call takes this way:
//!
//! ```text
//! pool entry (lifecycle, client) ▶ open connection, or connect ▶ register the call ▶ send ▶ raw result, or CallFailure
//! ```
//!
//! A connection is used as long as it works; the first request after its end opens another. Results
//! are passed on as the raw JSON that the server sent; tools as well, but for secrets that are masked in them.

mod connection;
mod connection_pool;
mod target;

mod active_calls;
mod call_failure;
mod discovery;
mod feature_lists;
mod login_hint;

mod subscription_requests;
mod subscriptions;

mod output_sniffer;
mod stderr_tail;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_connector::{
    CallFailure, Connector, Discovered, Discovery, EraPreference, SourceRequest, SourceSubscriptions, ToolCall,
    ToolResult, without_protocol_fields,
};
use toolcrib_core::json::{RawFields, raw_string};
use toolcrib_core::source::{Lifecycle, SourceKind};
use toolcrib_core::{Code, Error, Result, Source};
use toolcrib_mcp::{Era, LegacyVersion, McpClient, Relay, RequestOptions, WireError};

use crate::clock::format_limit;
use crate::connector::{CallContext, CallDeadline, ClientId};
use crate::connectors::SourceEvents;
use crate::options::RegistryOptions;
use crate::secret::{ReferenceValues, SourceReferences};
use crate::trace::Trace;
use active_calls::{PendingQuestions, declared_extensions, usable_capabilities};
use connection::{HandshakeEra, Lifetime, McpConnection};
use connection_pool::{ConnectionPool, EraChoice, PooledConnection};
use login_hint::LoginHint;

pub(crate) use target::McpHttpClients;

/// Legacy version that is offered to servers.
const LEGACY_ERA: Era = Era::Legacy(LegacyVersion::LATEST);

/// Maximum number of times that a request is sent when its connection closes. A server that dies on this very request
/// must not be started over and over.
const MAX_SEND_ATTEMPTS: u32 = 2;

/// Connector of one MCP source.
#[derive(Debug)]
pub(crate) struct McpConnector {
    /// As declared, with references unresolved; they are resolved for each connection.
    source: Source,
    options: Arc<RegistryOptions>,
    /// Shared by all sources: building an HTTP client reads the system's certificates.
    clients: Arc<McpHttpClients>,
    /// Passes `tools/list_changed` and resource notifications on to the registry.
    source_events: SourceEvents,
    /// Resolves the references for each connection, and redacts their values, old ones included.
    references: Arc<SourceReferences>,
    /// Open connections; see `ConnectionPool` for how `lifecycle` selects one.
    pool: ConnectionPool,
    /// Protocol version of the last connection that was opened without a preferred era; saves the probe on the next one.
    era: parking_lot::Mutex<Option<Era>>,
    /// Whether a remote server has refused a legacy connection that a client preferred.
    refuses_legacy: AtomicBool,
    /// The login that the server wants, and when that was found out.
    login_hint: parking_lot::Mutex<Option<(Instant, LoginHint)>>,
    /// Held by the one task that runs [`Connector::maintain`].
    maintenance_lock: tokio::sync::Mutex<()>,
    /// Tasks that close temporary connections after a failed request.
    closing_tasks: TaskTracker,
    /// Cancelled when the connector closes. From then on a hanging server is killed instead of waited for.
    shutdown: CancellationToken,
}

/// A tool call or another request, sent the same way.
enum UpstreamRequest<'a> {
    /// `tools/call`
    Call(&'a ToolCall<'a>),
    /// Any other method, such as `resources/read`.
    Request(&'a SourceRequest<'a>),
}

/// Failed attempt, with the question counter of its call: a timeout while the user is being asked is not the server's.
struct FailedAttempt {
    error: WireError,
    /// Read after the failure: a question that was cut off still counts.
    pending_questions: PendingQuestions,
}

impl McpConnector {
    pub(crate) fn new(
        source: Source,
        options: Arc<RegistryOptions>,
        clients: Arc<McpHttpClients>,
        source_events: SourceEvents,
        references: Arc<SourceReferences>,
    ) -> McpConnector {
        McpConnector {
            source,
            options,
            clients,
            source_events,
            references,
            pool: ConnectionPool::default(),
            era: parking_lot::Mutex::default(),
            refuses_legacy: AtomicBool::new(false),
            login_hint: parking_lot::Mutex::default(),
            maintenance_lock: tokio::sync::Mutex::default(),
            closing_tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Closes a connection that was opened for one request. After a failure this happens in the background: a server
    /// that does not respond also takes long to end, and the caller must get its error at the deadline. After a success
    /// it is awaited, so that a server of which only one instance may run has ended before the next one starts.
    async fn close_temporary<T, E>(&self, connection: &Arc<McpConnection>, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            connection.close().await;
            return;
        }
        // Owned by the connector's task tracker, so that closing the connector waits for it.
        let connection = connection.clone();
        let closed = self.shutdown.clone();
        self.closing_tasks.spawn(async move { connection.close_or_kill(&closed).await });
    }

    /// Opens a connection. Without a preferred era it remembers the protocol version. `references` are the values that a
    /// discovery has read; without them they are read now. `extensions` are those of the only client that it serves.
    async fn connect(
        &self,
        era: EraChoice,
        timeout: Duration,
        lifetime: Lifetime,
        references: Option<&ReferenceValues>,
        extensions: Option<&RawValue>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        let read;
        let references = match references {
            Some(references) => references,
            None => {
                read = self.references.read().await;
                &read
            }
        };
        let connect = |era, lifetime| McpConnection::connect(self, references, era, timeout, lifetime, extensions);
        let only = |era| HandshakeEra { hint: None, only: Some(era) };
        // Copied out: the lock must not be held while connecting, which may take as long as the whole timeout.
        let hint = *self.era.lock();
        let negotiated = HandshakeEra { hint, only: None };
        let fixed = self.source.settings.protocol.and_then(|version| version.as_str().parse::<Era>().ok());
        match (fixed, era) {
            (Some(fixed), _) => connect(only(fixed), lifetime).await,
            (None, EraChoice::Only(era)) => connect(only(era), lifetime).await,
            (None, EraChoice::Preferred(EraPreference::Legacy)) if self.may_prefer_legacy(hint) => {
                match connect(only(LEGACY_ERA), lifetime.clone()).await {
                    Err(failure) if !matches!(failure, CallFailure::Inconclusive(_)) => {
                        let connection = connect(negotiated, lifetime).await?;
                        connection.rule_out_other_era();
                        self.refuses_legacy.store(true, Ordering::Relaxed);
                        Ok(connection)
                    }
                    connected => connected,
                }
            }
            (None, EraChoice::Preferred(preference)) => {
                let connection = connect(negotiated, lifetime).await?;
                if preference == EraPreference::Any || hint.is_none() {
                    *self.era.lock() = Some(connection.client.era());
                }
                Ok(connection)
            }
        }
    }

    /// Whether a connection for a client that prefers the legacy era should be opened in that era first. A process is
    /// asked for the legacy era first in any case, and HTTP+SSE has no other.
    fn may_prefer_legacy(&self, known: Option<Era>) -> bool {
        matches!(self.source.kind, SourceKind::Http(_))
            && !matches!(known, Some(Era::Legacy(_)))
            && !self.refuses_legacy.load(Ordering::Relaxed)
    }

    /// Returns the connection that serves a caller, and its pool entry: that of `pooled`, or if the caller needs the
    /// other era and the server speaks it, one in that era. A process serves both eras over its one connection, if at
    /// all.
    async fn connection_for(
        &self,
        pooled: &Arc<PooledConnection>,
        preference: EraPreference,
        timeout: Duration,
    ) -> Result<(Arc<PooledConnection>, Arc<McpConnection>), CallFailure> {
        let connection = self.get_or_connect(pooled, EraChoice::Preferred(preference), timeout, None).await?;
        if connection.suits(preference) {
            return Ok((pooled.clone(), connection));
        }
        let era = match preference {
            EraPreference::Modern => Era::Modern,
            EraPreference::Legacy | EraPreference::Any => LEGACY_ERA,
        };
        if connection.is_process() {
            // Started as a server of 2026-07-28, it has refused the legacy handshake.
            if era != Era::Modern || !connection.probe_modern().await {
                connection.rule_out_other_era();
            }
            return Ok((pooled.clone(), connection));
        }
        // The connection of a client of its own was opened in the client's era.
        if !Arc::ptr_eq(pooled, &self.pool.shared) {
            return Ok((pooled.clone(), connection));
        }
        match self.get_or_connect(&self.pool.other_era, EraChoice::Only(era), timeout, None).await {
            Ok(other) => Ok((self.pool.other_era.clone(), other)),
            Err(failure) => {
                if !matches!(failure, CallFailure::Inconclusive(_)) {
                    connection.rule_out_other_era();
                }
                let error = self.references.redactor().redact_error(failure.into_error());
                tracing::debug!(server_name = %self.source.id, %error, "the server does not speak the client's era");
                Ok((pooled.clone(), connection))
            }
        }
    }

    /// Returns the open connection of a pool entry, or opens one. Callers of the same entry wait for one attempt.
    async fn get_or_connect(
        &self,
        pooled: &PooledConnection,
        era: EraChoice,
        timeout: Duration,
        references: Option<&ReferenceValues>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        // Before the lock: only failures of attempts that this caller has waited for are shared with it.
        let began = Instant::now();
        let mut slot = pooled.connection.lock().await;
        // Another caller may have failed while this one waited for the lock: share that failure instead of retrying.
        let usable = slot.as_ref().is_some_and(|connection| connection.is_usable());
        if let Some(failure) = pooled.failure_since(began).filter(|_| !usable) {
            return Err(failure);
        }
        // Record the failure while the lock is held: callers that waited find it as soon as they get the lock.
        let connected = self.get_or_connect_locked(pooled, &mut slot, era, timeout, references).await;
        if let Err(failure) = &connected {
            pooled.record_failure(failure);
        }
        connected
    }

    /// As [`McpConnector::get_or_connect`], with the pool entry already locked. Renews subscriptions on a new
    /// connection.
    async fn get_or_connect_locked(
        &self,
        pooled: &PooledConnection,
        slot: &mut Option<Arc<McpConnection>>,
        era: EraChoice,
        timeout: Duration,
        references: Option<&ReferenceValues>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        if let Some(existing) = slot.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(existing.clone());
        }
        // A dead connection is replaced; its process was ended when the transport closed.
        pooled.set_era(era);
        let lifetime = Lifetime::Persistent(pooled.subscriptions.clone());
        let new = self.connect(era, timeout, lifetime, references, pooled.extensions()).await?;
        *slot = Some(new.clone());
        // In the background: the call that triggered the connection must not wait for subscriptions.
        if pooled.subscriptions.has_any() {
            new.track_task(tokio::spawn(pooled.subscriptions.clone().resubscribe(
                new.clone(),
                self.source.id.clone(),
                self.source_events.clone(),
            )));
        }
        Ok(new)
    }

    /// Sends a request and returns the raw result.
    async fn send_request(&self, request: &UpstreamRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        self.send_request_with_connection(request).await.map(|(result, _)| result)
    }

    /// Sends a request and returns the raw result with the connection it came over. Connects first if necessary.
    async fn send_request_with_connection(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> Result<(Box<RawValue>, Arc<McpConnection>), CallFailure> {
        let context = request.context();
        // One deadline for everything: waiting for a connection, connecting, retrying and the request itself.
        let deadline = request.deadline();
        match self.source.settings.lifecycle() {
            Lifecycle::Shared | Lifecycle::PerClient => {}
            // `lifecycle: transient`: over a temporary connection that ends with the request.
            Lifecycle::Transient => {
                let era = EraChoice::Preferred(context.era);
                let extensions = context.capabilities.as_deref().and_then(declared_extensions);
                let extensions = extensions.as_deref();
                let connecting = self.connect(era, deadline.remaining(), Lifetime::Temporary, None, extensions);
                let connection = self.connect_in_time(context, deadline, connecting).await?;
                let outcome = send_once(&connection, request).await;
                self.close_temporary(&connection, &outcome).await;
                return match outcome {
                    Ok(result) => Ok((result, connection)),
                    Err(attempt) => Err(self.to_call_failure(&attempt, request, &connection).await),
                };
            }
        }
        // Shared or per-client connection. The pool entry is selected once; its connection may be replaced in between.
        let pooled = self.pool.select(&self.source, context).map_err(CallFailure::Inconclusive)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let connecting = self.connection_for(&pooled, context.era, deadline.remaining());
            let (_, connection) = self.connect_in_time(context, deadline, connecting).await?;
            match send_once(&connection, request).await {
                Ok(result) => return Ok((result, connection)),
                // A connection found dead before sending is replaced. After sending, only idempotent requests are
                // repeated. Over HTTP `Closed` may concern one stream only; a dead connection closes itself.
                Err(FailedAttempt { error: WireError::Closed { sent, .. }, .. })
                    if attempts < MAX_SEND_ATTEMPTS && (!sent || request.is_idempotent()) => {}
                Err(attempt) => return Err(self.to_call_failure(&attempt, request, &connection).await),
            }
        }
    }

    /// Waits for a connection until the caller cancels or its timeout expires.
    async fn connect_in_time<T>(
        &self,
        context: &CallContext,
        deadline: CallDeadline,
        connecting: impl Future<Output = Result<T, CallFailure>>,
    ) -> Result<T, CallFailure> {
        // In this order: a connection that is ready counts, even if the deadline has passed at the same moment.
        tokio::select! {
            biased;
            connection = connecting => connection,
            () = context.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(deadline.at) => {
                let limit = format_limit(deadline.limit);
                let message = format!("connecting to `{}` timed out after {limit}", self.source.id);
                Err(deadline.timeout_failure(Error::new(Code::ToolUnavailable, message)))
            }
        }
    }
}

#[async_trait]
impl Connector for McpConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        self.discover_tools(discovery).await
    }

    /// Sends `tools/call`. A result with `isError` is a result; only a missing or unusable one is a failure.
    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        let result = self.send_request(&UpstreamRequest::Call(call)).await?;
        let not_an_object = || Error::new(Code::ToolExecutionFailed, "the result of the call is not an object");
        let result = ToolResult::parse(result).ok_or_else(|| CallFailure::Rejected(not_an_object()))?;
        if result.layout.input_required && call.context.input_relay.is_none() {
            let message = "the tool requires more input (`input_required`), which this caller cannot provide";
            return Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)));
        }
        Ok(result.without_protocol_fields())
    }

    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        // Subscriptions of several clients share one subscription at the server, so they are counted here.
        match request.method {
            "resources/subscribe" => self.subscribe(request).await,
            "resources/unsubscribe" => self.unsubscribe(request).await,
            _ => self.send_request(&UpstreamRequest::Request(request)).await.map(without_protocol_fields),
        }
    }

    /// Whether any connection is open, the shared one or that of a client.
    fn is_connected(&self) -> bool {
        self.pool.is_connected()
    }

    /// Closes the client's own connection, and removes its subscriptions over the shared one.
    async fn client_disconnected(&self, client: ClientId) {
        self.pool.close_client(client).await;
        self.unsubscribe_client(client).await;
    }

    /// Only subscriptions need a connection without a call; see `subscriptions`.
    fn needs_maintenance(&self) -> bool {
        self.has_outdated_subscriptions()
    }

    async fn maintain(&self) {
        // One run at a time; the next interval checks again.
        if let Ok(_alone) = self.maintenance_lock.try_lock() {
            self.restore_connections().await;
        }
    }

    fn take_subscriptions(&self) -> SourceSubscriptions {
        self.pool.take_subscriptions()
    }

    /// The `lifecycle` may have changed with the configuration: without connections to carry them, subscriptions end.
    fn restore_subscriptions(&self, subscriptions: SourceSubscriptions) {
        match self.source.settings.lifecycle() {
            Lifecycle::Shared => self.pool.restore_subscriptions(subscriptions, |_| None),
            Lifecycle::PerClient => self.pool.restore_subscriptions(subscriptions, |client| client),
            Lifecycle::Transient => self.notify_lost(&subscriptions),
        }
    }

    /// Ends subscriptions and connections. Returns when every server process has exited or was killed.
    async fn close(&self) {
        // Subscribers learn that no more updates will come from this connector.
        self.notify_lost(&self.pool.take_subscriptions());
        // Calls in flight may finish; temporary connections that hang are killed at once.
        self.shutdown.cancel();
        self.closing_tasks.close();
        tokio::join!(self.pool.drain(), self.closing_tasks.wait());
    }
}

/// Empty JSON object, the result of requests without content.
fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Sends the request once over an open connection.
async fn send_once(connection: &McpConnection, request: &UpstreamRequest<'_>) -> Result<Box<RawValue>, FailedAttempt> {
    let context = request.context();
    // Registered until this function returns: the idle monitor waits for it, and questions are routed by it.
    let in_flight = connection.begin_call(context);
    let pending_questions = in_flight.pending_questions();
    // Before the 2026-07-28 protocol a question does not name its call, so the connection's own handler routes it.
    let era = connection.request_era(context.era);
    let handler = (era == Era::Modern).then(|| pending_questions.handler(context.on_question.clone()));
    // A relayed request declares all that the client does; another one what it can use through Toolcrib.
    let declares_own = era == Era::Modern && context.input_relay.is_none();
    let capabilities = context.capabilities.as_deref().filter(|_| declares_own).map(usable_capabilities);
    let mut options = RequestOptions {
        progress: context.on_progress.as_ref(),
        // The wire sends `notifications/cancelled` to the server when this is cancelled.
        cancel: Some(&context.cancel),
        cancel_reason: context.cancel_reason.as_ref(),
        capabilities: capabilities.as_deref(),
        as_task: request.requires_task(),
        handler: handler.as_ref(),
        relay: context.input_relay.as_ref().map(|relay| Relay {
            capabilities: &relay.capabilities,
            input_responses: relay.responses.as_deref(),
            request_state: relay.state.as_deref(),
        }),
        modern: era == Era::Modern,
        ..RequestOptions::with_deadline(request.deadline().at)
    };
    if let Some(trace) = request.span() {
        trace.add_to_headers(&mut options.headers);
    }
    request.send_over(&connection.client, &options).await.map_err(|error| FailedAttempt { error, pending_questions })
}

impl UpstreamRequest<'_> {
    /// Caller and receivers of the request.
    fn context(&self) -> &CallContext {
        match self {
            UpstreamRequest::Call(call) => call.context,
            UpstreamRequest::Request(request) => request.context,
        }
    }

    fn deadline(&self) -> CallDeadline {
        match self {
            UpstreamRequest::Call(call) => call.deadline,
            UpstreamRequest::Request(request) => request.deadline,
        }
    }

    /// Span to propagate; only calls have one.
    fn span(&self) -> Option<&Trace> {
        match self {
            UpstreamRequest::Call(call) => call.span,
            UpstreamRequest::Request(_) => None,
        }
    }

    /// Whether the tool has to be called as a task.
    fn requires_task(&self) -> bool {
        match self {
            UpstreamRequest::Call(call) => call.requires_task,
            UpstreamRequest::Request(_) => false,
        }
    }

    /// Tool or method name, for messages.
    fn name(&self) -> &str {
        match self {
            UpstreamRequest::Call(call) => call.tool,
            UpstreamRequest::Request(request) => request.method,
        }
    }

    /// Whether the request may be repeated after it was sent. Of the other methods, all of `resources/`, `prompts/` and
    /// `logging/`, and `completion/complete`, may be repeated.
    fn is_idempotent(&self) -> bool {
        match self {
            UpstreamRequest::Call(call) => call.is_idempotent,
            UpstreamRequest::Request(request) => {
                let (group, action) = request.method.split_once('/').unwrap_or_default();
                matches!((group, action), ("resources" | "prompts" | "logging", _) | ("completion", "complete"))
            }
        }
    }

    /// Encodes and sends the request. Arguments and params are passed through as raw JSON.
    async fn send_over(&self, client: &McpClient, options: &RequestOptions<'_>) -> Result<Box<RawValue>, WireError> {
        match self {
            UpstreamRequest::Call(call) => {
                let era = if options.modern { Era::Modern } else { client.era() };
                let meta = build_meta(call, era);
                client.call_tool(call.tool, call.arguments, Some(call.input_schema), meta.as_deref(), options).await
            }
            UpstreamRequest::Request(request) => client.request(request.method, request.params, options).await,
        }
    }
}

/// `_meta` of the call with trace context and, for servers of the 2026-07-28 protocol, the log level. Borrowed if
/// nothing is added.
fn build_meta<'a>(call: &ToolCall<'a>, era: Era) -> Option<Cow<'a, RawValue>> {
    let level = call.context.log_level.as_deref().filter(|_| era == Era::Modern);
    let trace = call.span.map(Trace::propagated_fields).unwrap_or_default();
    if level.is_none() && trace.is_empty() {
        return call.meta.map(Cow::Borrowed);
    }
    // Keep the caller's other fields, such as vendor keys, and add or replace the ones below.
    let mut meta = call.meta.and_then(RawFields::parse).unwrap_or_default();
    if let Some(level) = level {
        meta.insert("io.modelcontextprotocol/logLevel", raw_string(level));
    }
    // A `tracestate` of the caller belongs to another trace.
    if !trace.is_empty() {
        meta.remove("tracestate");
    }
    trace.iter().for_each(|(name, value)| meta.insert(name, raw_string(value)));
    serde_json::value::to_raw_value(&meta).ok().map(Cow::Owned)
}
