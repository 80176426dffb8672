//! One request to an MCP source and its answer: the connection it takes, whether it may be made twice, and what a
//! failure says about the source.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_core::json::{Fields, string};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::{shown, shown_short};
use toolcrib_core::{Code, Error, Result, Timestamp};
use toolcrib_mcp::{Client, Era, RequestOptions, RpcError, WireError};

use super::McpConnector;
use super::callers::Asking;
use super::live::{Live, Stay};
use crate::clock::{after, shown_limit};
use crate::connector::http_refusal::{HttpRefusal, retry_after};
use crate::connector::{Call, CallFailure, Request, Terms};
use crate::trace::Trace;

/// Data beside an error that is larger is left out.
const ERROR_DATA: usize = 16 * 1024;

pub(super) enum Exchange<'a> {
    Call(&'a Call),
    Request(&'a Request),
}

/// A failed try, and whether somebody was being asked when it failed.
struct Failed {
    error: WireError,
    asking: Asking,
}

impl McpConnector {
    pub(super) async fn exchange(&self, exchange: &Exchange<'_>) -> Result<Box<RawValue>, CallFailure> {
        self.exchange_over(exchange).await.map(|(answer, _)| answer)
    }

    /// The answer, and the connection it came over.
    pub(super) async fn exchange_over(
        &self,
        exchange: &Exchange<'_>,
    ) -> Result<(Box<RawValue>, Arc<Live>), CallFailure> {
        let terms = exchange.terms();
        let deadline = after(terms.timeout);
        match self.source.settings.lifecycle() {
            Lifecycle::Shared | Lifecycle::PerClient => {}
            // Over a connection of its own, which ends with it.
            Lifecycle::Transient => {
                let live = self.in_time(terms, deadline, self.connect(terms.timeout, Stay::Short)).await?;
                let answered = send(&live, exchange, deadline).await;
                self.close_temporary(&live, &answered).await;
                return answered.map(|answer| (answer, live)).map_err(|failed| self.failure(&failed, exchange));
            }
        }
        let line = self.lines.of(&self.source, terms).map_err(CallFailure::Undecided)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let remaining = deadline.saturating_duration_since(Instant::now());
            let live = self.in_time(terms, deadline, self.standing(&line, remaining)).await?;
            match send(&live, exchange, deadline).await {
                Ok(result) => return Ok((result, live)),
                // A dead connection found before sending is replaced; after sending only what may happen twice.
                // Over HTTP only one stream may have ended, and others go on; one that is dead ends by itself.
                Err(Failed { error: WireError::Closed { sent, .. }, .. })
                    if tries < 2 && (!sent || exchange.repeatable()) => {}
                Err(failed) => return Err(self.failure(&failed, exchange)),
            }
        }
    }

    /// A connection, unless the caller leaves or its time is up first.
    async fn in_time(
        &self,
        terms: &Terms,
        deadline: Instant,
        connecting: impl Future<Output = Result<Arc<Live>, CallFailure>>,
    ) -> Result<Arc<Live>, CallFailure> {
        tokio::select! {
            biased;
            live = connecting => live,
            () = terms.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(deadline) => {
                let message =
                    format!("`{}` cannot be reached within {}", self.source.id, shown_limit(terms.timeout));
                Err(self.late(terms, Error::new(Code::ToolUnavailable, message)))
            }
        }
    }

    /// A deadline shorter than the source's own says more about the caller.
    fn late(&self, terms: &Terms, error: Error) -> CallFailure {
        if terms.timeout < self.source.settings.call_timeout() {
            CallFailure::Undecided(error)
        } else {
            CallFailure::Late(error)
        }
    }

    fn failure(&self, Failed { error, asking }: &Failed, exchange: &Exchange<'_>) -> CallFailure {
        let (id, name, terms) = (&self.source.id, exchange.name(), exchange.terms());
        match error {
            WireError::Cancelled { .. } => CallFailure::cancelled(),
            WireError::Rpc(rpc) => {
                let message = format!("`{name}` of `{id}` failed: {}", shown_short(&rpc.message, 400));
                CallFailure::Refused(Error::new(Code::ToolExecutionFailed, message).with_details(details(rpc)))
            }
            WireError::Timeout { .. } if asking.is_under_way() => {
                let message = format!(
                    "`{name}` of `{id}` asked its caller, who did not answer within {}",
                    shown_limit(terms.timeout)
                );
                CallFailure::Undecided(Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::Timeout { .. } => {
                let message = format!("`{name}` of `{id}` did not answer within {}", shown_limit(terms.timeout));
                self.late(terms, Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::TooLarge { .. } | WireError::Protocol(_) => {
                CallFailure::Lost(Error::new(Code::ToolExecutionFailed, shown(&format!("`{id}`: {error}"))))
            }
            WireError::Connect(_)
            | WireError::Unauthorized { .. }
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. } => {
                let message = shown(&format!("`{id}`: {error}"));
                if let Some(refusal) = refusal(error, &message, self.options.clock.now()) {
                    return CallFailure::Refused(refusal);
                }
                let code = if error.sent() { Code::ToolExecutionFailed } else { Code::ToolUnavailable };
                CallFailure::Lost(Error::new(code, message))
            }
        }
    }
}

async fn send(live: &Live, exchange: &Exchange<'_>, deadline: Instant) -> Result<Box<RawValue>, Failed> {
    let terms = exchange.terms();
    let in_flight = live.begin(terms);
    let asking = in_flight.asking();
    let mut options = RequestOptions::new(deadline.saturating_duration_since(Instant::now()));
    options.progress = terms.progress.clone();
    options.cancel = terms.cancel.clone();
    // Before 2026-07-28 nothing says for certain which call a question is for, whatever stream it came on.
    options.handler = (live.client.era() == Era::Modern).then(|| asking.handler(terms.back.clone()));
    options.relay = terms.relay.clone();
    if let Some(trace) = &terms.trace {
        trace.add_to(&mut options.headers);
    }
    exchange.over(&live.client, &options).await.map_err(|error| Failed { error, asking })
}

impl Exchange<'_> {
    fn terms(&self) -> &Terms {
        match self {
            Exchange::Call(call) => &call.terms,
            Exchange::Request(request) => &request.terms,
        }
    }

    fn name(&self) -> &str {
        match self {
            Exchange::Call(call) => &call.tool,
            Exchange::Request(request) => &request.method,
        }
    }

    /// Whether it does no harm when it happens twice.
    fn repeatable(&self) -> bool {
        match self {
            Exchange::Call(call) => call.repeatable,
            Exchange::Request(request) => {
                let (about, what) = request.method.split_once('/').unwrap_or_default();
                matches!((about, what), ("resources" | "prompts" | "logging", _) | ("completion", "complete"))
            }
        }
    }

    async fn over(&self, client: &Client, options: &RequestOptions) -> Result<Box<RawValue>, WireError> {
        match self {
            Exchange::Call(call) => {
                let (schema, meta) = (Some(&*call.input_schema), call.meta_for(client.era()));
                client.call_tool(&call.tool, &call.arguments, schema, meta.as_deref(), options).await
            }
            Exchange::Request(request) => {
                let params = request.params_with_meta();
                client.request(&request.method, params.as_deref(), options).await
            }
        }
    }
}

impl Call {
    /// A server is told what the call is part of, and one of 2026-07-28 how much of a log is wanted.
    fn meta_for(&self, era: Era) -> Option<Cow<'_, RawValue>> {
        let level = self.terms.log_level.as_deref().filter(|_| era == Era::Modern);
        let trace = self.terms.trace.as_ref().map(Trace::told).unwrap_or_default();
        if level.is_none() && trace.is_empty() {
            return self.meta.as_deref().map(Cow::Borrowed);
        }
        let mut meta = self.meta.as_deref().and_then(Fields::parse).unwrap_or_default();
        if let Some(level) = level {
            meta.put("io.modelcontextprotocol/logLevel", string(level));
        }
        if !trace.is_empty() {
            meta.take("tracestate");
        }
        trace.iter().for_each(|(name, value)| meta.put(name, string(value)));
        serde_json::value::to_raw_value(&meta).ok().map(Cow::Owned)
    }
}

impl Request {
    fn params_with_meta(&self) -> Option<Cow<'_, RawValue>> {
        let Some(meta) = &self.meta else { return self.params.as_deref().map(Cow::Borrowed) };
        let mut params = self.params.as_deref().and_then(Fields::parse).unwrap_or_default();
        params.put("_meta", meta.clone());
        serde_json::value::to_raw_value(&params).ok().map(Cow::Owned)
    }
}

/// A refusal by HTTP status, which says nothing about the health of the source.
pub(super) fn refusal(error: &WireError, message: &str, now: Timestamp) -> Option<Error> {
    let (status, refusal) = match error {
        WireError::Unauthorized { status, login_helps: true } => (*status, HttpRefusal::LoginRequired),
        WireError::Unauthorized { status, login_helps: false } => (*status, HttpRefusal::Forbidden),
        WireError::Status { status: status @ (404 | 405 | 410), .. } => (*status, HttpRefusal::NoEndpoint),
        WireError::Status { status, retry_after: asked, .. } => {
            let wait = asked.as_deref().and_then(|asked| retry_after(asked, now));
            (*status, HttpRefusal::rate_limited(*status, wait)?)
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
    Some(refusal.error(status, message.to_owned(), json!({})))
}

/// The error of a source as it is, for whoever passes it on.
fn details(rpc: &RpcError) -> Value {
    let mut details = json!({ "rpc_code": rpc.code, "rpc_message": shown_short(&rpc.message, 2000) });
    let small = rpc.data.as_ref().filter(|data| data.get().len() <= ERROR_DATA);
    if let Some(data) = small.and_then(|data| serde_json::from_str::<Value>(data.get()).ok()) {
        details["rpc_data"] = data;
    }
    details
}
