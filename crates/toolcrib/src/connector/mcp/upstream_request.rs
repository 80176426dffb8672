//! One request to an MCP source and its answer: the connection it takes, whether it may be made twice, and what a
//! failure says about the source.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_core::json::{RawFields, raw_string};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::{sanitize, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Timestamp};
use toolcrib_mcp::{Era, McpClient, RequestOptions, RpcError, WireError};

use super::McpConnector;
use super::active_calls::PendingQuestions;
use super::connection::{Lifetime, McpConnection};
use crate::clock::{deadline_after, format_limit};
use crate::connector::http_rejection::{HttpRejection, parse_retry_after};
use crate::connector::{CallContext, CallFailure, SourceRequest, ToolCall};
use crate::trace::Trace;

/// Data beside an error that is larger is left out.
const MAX_ERROR_DATA_BYTES: usize = 16 * 1024;

pub(super) enum UpstreamRequest<'a> {
    Call(&'a ToolCall),
    Request(&'a SourceRequest),
}

/// A failed try, and whether somebody was being asked when it failed.
struct FailedAttempt {
    error: WireError,
    pending_questions: PendingQuestions,
}

impl McpConnector {
    pub(super) async fn send_request(&self, exchange: &UpstreamRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        self.send_request_with_connection(exchange).await.map(|(answer, _)| answer)
    }

    /// The answer, and the connection it came over.
    pub(super) async fn send_request_with_connection(
        &self,
        exchange: &UpstreamRequest<'_>,
    ) -> Result<(Box<RawValue>, Arc<McpConnection>), CallFailure> {
        let terms = exchange.context();
        let deadline = deadline_after(terms.timeout);
        match self.source.settings.lifecycle() {
            Lifecycle::Shared | Lifecycle::PerClient => {}
            // Over a connection of its own, which ends with it.
            Lifecycle::Transient => {
                let live =
                    self.connect_in_time(terms, deadline, self.connect(terms.timeout, Lifetime::Temporary)).await?;
                let answered = send_once(&live, exchange, deadline).await;
                self.close_temporary(&live, &answered).await;
                return answered.map(|answer| (answer, live)).map_err(|failed| self.to_call_failure(&failed, exchange));
            }
        }
        let line = self.pool.select(&self.source, terms).map_err(CallFailure::Inconclusive)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let remaining = deadline.saturating_duration_since(Instant::now());
            let live = self.connect_in_time(terms, deadline, self.get_or_connect(&line, remaining)).await?;
            match send_once(&live, exchange, deadline).await {
                Ok(result) => return Ok((result, live)),
                // A dead connection found before sending is replaced; after sending only what may happen twice.
                // Over HTTP only one stream may have ended, and others go on; one that is dead ends by itself.
                Err(FailedAttempt { error: WireError::Closed { sent, .. }, .. })
                    if tries < 2 && (!sent || exchange.is_idempotent()) => {}
                Err(failed) => return Err(self.to_call_failure(&failed, exchange)),
            }
        }
    }

    /// A connection, unless the caller leaves or its time is up first.
    async fn connect_in_time(
        &self,
        terms: &CallContext,
        deadline: Instant,
        connecting: impl Future<Output = Result<Arc<McpConnection>, CallFailure>>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        tokio::select! {
            biased;
            live = connecting => live,
            () = terms.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(deadline) => {
                let message =
                    format!("`{}` cannot be reached within {}", self.source.id, format_limit(terms.timeout));
                Err(self.timeout_failure(terms, Error::new(Code::ToolUnavailable, message)))
            }
        }
    }

    /// A deadline shorter than the source's own says more about the caller.
    fn timeout_failure(&self, terms: &CallContext, error: Error) -> CallFailure {
        if terms.timeout < self.source.settings.call_timeout() {
            CallFailure::Inconclusive(error)
        } else {
            CallFailure::TimedOut(error)
        }
    }

    fn to_call_failure(
        &self,
        FailedAttempt { error, pending_questions: asking }: &FailedAttempt,
        exchange: &UpstreamRequest<'_>,
    ) -> CallFailure {
        let id = &self.source.id;
        let name = exchange.name();
        let terms = exchange.context();
        match error {
            WireError::Cancelled { .. } => CallFailure::cancelled(),
            WireError::Rpc(rpc) => {
                let message = format!("`{name}` of `{id}` failed: {}", sanitize_truncated(&rpc.message, 400));
                CallFailure::Rejected(
                    Error::new(Code::ToolExecutionFailed, message).with_details(rpc_error_details(rpc)),
                )
            }
            WireError::Timeout { .. } if asking.is_any_pending() => {
                let message = format!(
                    "`{name}` of `{id}` asked its caller, who did not answer within {}",
                    format_limit(terms.timeout)
                );
                CallFailure::Inconclusive(Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::Timeout { .. } => {
                let message = format!("`{name}` of `{id}` did not answer within {}", format_limit(terms.timeout));
                self.timeout_failure(terms, Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::TooLarge { .. } | WireError::Protocol(_) => {
                CallFailure::Unavailable(Error::new(Code::ToolExecutionFailed, sanitize(&format!("`{id}`: {error}"))))
            }
            WireError::Connect(_)
            | WireError::Unauthorized { .. }
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. } => {
                let message = sanitize(&format!("`{id}`: {error}"));
                if let Some(refusal) = rejection_error(error, &message, self.options.clock.now()) {
                    return CallFailure::Rejected(refusal);
                }
                let code = if error.was_sent() { Code::ToolExecutionFailed } else { Code::ToolUnavailable };
                CallFailure::Unavailable(Error::new(code, message))
            }
        }
    }
}

async fn send_once(
    live: &McpConnection,
    exchange: &UpstreamRequest<'_>,
    deadline: Instant,
) -> Result<Box<RawValue>, FailedAttempt> {
    let terms = exchange.context();
    let in_flight = live.begin_call(terms);
    let asking = in_flight.pending_questions();
    let mut options = RequestOptions::new(deadline.saturating_duration_since(Instant::now()));
    options.progress = terms.progress.clone();
    options.cancel = terms.cancel.clone();
    // Before 2026-07-28 nothing says for certain which call a question is for, whatever stream it came on.
    options.handler = (live.client.era() == Era::Modern).then(|| asking.handler(terms.on_server_request.clone()));
    options.relay = terms.relay.clone();
    if let Some(trace) = &terms.trace {
        trace.add_to_headers(&mut options.headers);
    }
    exchange.send_over(&live.client, &options).await.map_err(|error| FailedAttempt { error, pending_questions: asking })
}

impl UpstreamRequest<'_> {
    fn context(&self) -> &CallContext {
        match self {
            UpstreamRequest::Call(call) => &call.context,
            UpstreamRequest::Request(request) => &request.context,
        }
    }

    fn name(&self) -> &str {
        match self {
            UpstreamRequest::Call(call) => &call.tool,
            UpstreamRequest::Request(request) => &request.method,
        }
    }

    /// Whether it does no harm when it happens twice.
    fn is_idempotent(&self) -> bool {
        match self {
            UpstreamRequest::Call(call) => call.is_idempotent,
            UpstreamRequest::Request(request) => {
                let (about, what) = request.method.split_once('/').unwrap_or_default();
                matches!((about, what), ("resources" | "prompts" | "logging", _) | ("completion", "complete"))
            }
        }
    }

    async fn send_over(&self, client: &McpClient, options: &RequestOptions) -> Result<Box<RawValue>, WireError> {
        match self {
            UpstreamRequest::Call(call) => {
                let schema = Some(&*call.input_schema);
                let meta = call.build_meta(client.era());
                client.call_tool(&call.tool, &call.arguments, schema, meta.as_deref(), options).await
            }
            UpstreamRequest::Request(request) => {
                let params = request.params_with_meta();
                client.request(&request.method, params.as_deref(), options).await
            }
        }
    }
}

impl ToolCall {
    /// A server is told what the call is part of, and one of 2026-07-28 how much of a log is wanted.
    fn build_meta(&self, era: Era) -> Option<Cow<'_, RawValue>> {
        let level = self.context.log_level.as_deref().filter(|_| era == Era::Modern);
        let trace = self.context.trace.as_ref().map(Trace::propagated_fields).unwrap_or_default();
        if level.is_none() && trace.is_empty() {
            return self.meta.as_deref().map(Cow::Borrowed);
        }
        let mut meta = self.meta.as_deref().and_then(RawFields::parse).unwrap_or_default();
        if let Some(level) = level {
            meta.insert("io.modelcontextprotocol/logLevel", raw_string(level));
        }
        if !trace.is_empty() {
            meta.remove("tracestate");
        }
        trace.iter().for_each(|(name, value)| meta.insert(name, raw_string(value)));
        serde_json::value::to_raw_value(&meta).ok().map(Cow::Owned)
    }
}

impl SourceRequest {
    fn params_with_meta(&self) -> Option<Cow<'_, RawValue>> {
        let Some(meta) = &self.meta else { return self.params.as_deref().map(Cow::Borrowed) };
        let mut params = self.params.as_deref().and_then(RawFields::parse).unwrap_or_default();
        params.insert("_meta", meta.clone());
        serde_json::value::to_raw_value(&params).ok().map(Cow::Owned)
    }
}

/// A refusal by HTTP status, which says nothing about the health of the source.
pub(super) fn rejection_error(error: &WireError, message: &str, now: Timestamp) -> Option<Error> {
    let (status, refusal) = match error {
        WireError::Unauthorized { status, login_helps: true } => (*status, HttpRejection::LoginRequired),
        WireError::Unauthorized { status, login_helps: false } => (*status, HttpRejection::Forbidden),
        WireError::Status { status: status @ (404 | 405 | 410), .. } => (*status, HttpRejection::NoEndpoint),
        WireError::Status { status, retry_after: asked, .. } => {
            let wait = asked.as_deref().and_then(|asked| parse_retry_after(asked, now));
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
    Some(refusal.to_error(status, message.to_owned(), json!({})))
}

/// The error of a source as it is, for whoever passes it on.
fn rpc_error_details(rpc: &RpcError) -> Value {
    let mut details = json!({ "rpc_code": rpc.code, "rpc_message": sanitize_truncated(&rpc.message, 2000) });
    let small = rpc.data.as_ref().filter(|data| data.get().len() <= MAX_ERROR_DATA_BYTES);
    if let Some(data) = small.and_then(|data| serde_json::from_str::<Value>(data.get()).ok()) {
        details["rpc_data"] = data;
    }
    details
}
