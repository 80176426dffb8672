//! Sends one request to an MCP server: selects the connection, retries where that is safe, and classifies failures by
//! what they say about the source.
//!
//! How a failure of the wire becomes a [`CallFailure`]:
//!
//! ```text
//! JSON-RPC error, 401, 403, 404, 429 …    Rejected       the server answered; does not count for the circuit breaker
//! no answer within the source's timeout   TimedOut       counts, if no other call succeeded meanwhile
//! no answer within a shorter timeout      Inconclusive   also while the user is being asked, and after cancellation
//! connection closed, protocol violated    Unavailable    counts
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_connector::{HttpRejection, parse_retry_after};
use toolcrib_core::json::{RawFields, raw_string};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::{sanitize, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Timestamp};
use toolcrib_mcp::{Era, McpClient, Relay, RequestOptions, RpcError, WireError};

use super::McpConnector;
use super::active_calls::PendingQuestions;
use super::connection::{Lifetime, McpConnection};
use crate::call::{CallContext, CallDeadline};
use crate::clock::format_limit;
use crate::connector::{CallFailure, SourceRequest, ToolCall};
use crate::trace::Trace;

/// Error data larger than this is left out of the details, which are stored and shown with the error.
const MAX_ERROR_DATA_BYTES: usize = 16 * 1024;
/// Maximum number of times that a request is sent when its connection closes. A server that dies on this very request
/// must not be started over and over.
const MAX_SEND_ATTEMPTS: u32 = 2;

/// A tool call or another request, sent the same way.
pub(super) enum UpstreamRequest<'a> {
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
    /// Sends a request and returns the raw result.
    pub(super) async fn send_request(&self, request: &UpstreamRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        self.send_request_with_connection(request).await.map(|(result, _)| result)
    }

    /// Sends a request and returns the raw result with the connection it came over. Connects first if necessary.
    pub(super) async fn send_request_with_connection(
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
                let connecting = self.connect(deadline.remaining(), Lifetime::Temporary, None);
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
            let connecting = self.get_or_connect(&pooled, deadline.remaining(), None);
            let connection = self.connect_in_time(context, deadline, connecting).await?;
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
    async fn connect_in_time(
        &self,
        context: &CallContext,
        deadline: CallDeadline,
        connecting: impl Future<Output = Result<Arc<McpConnection>, CallFailure>>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
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

    /// Builds the error for the caller and classifies the failure. If a stdio server has exited, waits for its exit
    /// status, at most until the deadline.
    async fn to_call_failure(
        &self,
        FailedAttempt { error, pending_questions }: &FailedAttempt,
        request: &UpstreamRequest<'_>,
        connection: &Arc<McpConnection>,
    ) -> CallFailure {
        let id = &self.source.id;
        let name = request.name();
        let deadline = request.deadline();
        match error {
            WireError::Cancelled { .. } => CallFailure::cancelled(),
            // A JSON-RPC error is a response: the source is alive, and its own message says more than ours could.
            WireError::Rpc(rpc) => {
                let message = format!("`{name}` of `{id}` failed: {}", sanitize_truncated(&rpc.message, 400));
                CallFailure::Rejected(
                    Error::new(Code::ToolExecutionFailed, message).with_details(rpc_error_details(rpc)),
                )
            }
            // The user did not answer an elicitation in time; the server could not do better.
            WireError::Timeout { .. } if pending_questions.is_any_pending() => {
                let message = format!(
                    "`{name}` of `{id}` asked the user for input and got no answer within {}",
                    format_limit(deadline.limit)
                );
                CallFailure::Inconclusive(Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::Timeout { .. } => {
                let limit = format_limit(deadline.limit);
                let message = format!("`{name}` of `{id}` timed out after {limit}");
                deadline.timeout_failure(Error::new(Code::ToolExecutionFailed, message))
            }
            // The server violates the protocol or a limit, which is a fault of the source.
            WireError::TooLarge { .. } | WireError::Protocol(_) => {
                CallFailure::Unavailable(Error::new(Code::ToolExecutionFailed, sanitize(&format!("`{id}`: {error}"))))
            }
            WireError::Connect(_)
            | WireError::Unauthorized { .. }
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. } => {
                // Transport failures: some statuses are rejections, such as 401 or 429; the rest counts against the
                // source.
                let exit =
                    tokio::time::timeout_at(deadline.at, connection.describe_exit(self, error)).await.ok().flatten();
                let message = match exit {
                    Some(exit) => sanitize(&format!("`{name}` of `{id}` failed: {exit}")),
                    None => sanitize(&format!("`{id}`: {error}")),
                };
                if let Some(rejection) = rejection_error(error, &message, self.options.clock.now()) {
                    return CallFailure::Rejected(rejection);
                }
                let code = if error.was_sent() { Code::ToolExecutionFailed } else { Code::ToolUnavailable };
                CallFailure::Unavailable(Error::new(code, message))
            }
        }
    }
}

/// Sends the request once over an open connection.
async fn send_once(connection: &McpConnection, request: &UpstreamRequest<'_>) -> Result<Box<RawValue>, FailedAttempt> {
    let context = request.context();
    // Registered until this function returns: the idle monitor waits for it, and questions are routed by it.
    let in_flight = connection.begin_call(context);
    let pending_questions = in_flight.pending_questions();
    // Before the 2026-07-28 protocol a question does not name its call, so the connection's own handler routes it.
    let handler =
        (connection.client.era() == Era::Modern).then(|| pending_questions.handler(context.on_question.clone()));
    let mut options = RequestOptions {
        progress: context.on_progress.as_ref(),
        // The wire sends `notifications/cancelled` to the server when this is cancelled.
        cancel: Some(&context.cancel),
        handler: handler.as_ref(),
        relay: context.input_relay.as_ref().map(|relay| Relay {
            capabilities: &relay.capabilities,
            input_responses: relay.responses.as_deref(),
            request_state: relay.state.as_deref(),
        }),
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
                let meta = build_meta(call, client.era());
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

/// Maps a rejection by HTTP status to an error; `None` for all other failures. `now` is needed for a `Retry-After` that
/// is a date.
pub(super) fn rejection_error(error: &WireError, message: &str, now: Timestamp) -> Option<Error> {
    let (status, rejection) = match error {
        WireError::Unauthorized { status, login_helps: true } => (*status, HttpRejection::LoginRequired),
        WireError::Unauthorized { status, login_helps: false } => (*status, HttpRejection::Forbidden),
        WireError::Status { status: status @ (404 | 405 | 410), .. } => (*status, HttpRejection::NoEndpoint),
        WireError::Status { status, retry_after: header, .. } => {
            let wait = header.as_deref().and_then(|header| parse_retry_after(header, now));
            (*status, HttpRejection::from_rate_limit(*status, wait)?)
        }
        WireError::Connect(_)
        | WireError::NotMcp(_)
        | WireError::Timeout { .. }
        | WireError::Closed { .. }
        | WireError::TooLarge { .. }
        | WireError::Rpc(_)
        | WireError::Protocol(_)
        | WireError::Cancelled { .. } => return None,
    };
    Some(rejection.to_error(status, message.to_owned(), json!({})))
}

/// Details with the server's own JSON-RPC error, for clients that pass it on.
fn rpc_error_details(rpc: &RpcError) -> Value {
    let mut details = json!({ "rpc_code": rpc.code, "rpc_message": sanitize_truncated(&rpc.message, 2000) });
    let data = rpc.data.as_ref().filter(|data| data.get().len() <= MAX_ERROR_DATA_BYTES);
    if let Some(data) = data.and_then(|data| serde_json::from_str::<Value>(data.get()).ok()) {
        details["rpc_data"] = data;
    }
    details
}
