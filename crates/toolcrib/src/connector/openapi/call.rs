//! A call: from a tool's backing to the request, under the caller's terms, and back with a result.

use http::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec, Operation};
use toolcrib_core::openapi::request::prepare;
use toolcrib_core::source::PollSettings;
use toolcrib_core::text::{did_you_mean, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::api_client::ApiClient;
use super::credentials::select_auth;
use super::poll::Poller;
use super::request_builder::{base_url, build_request, operation_label};
use super::result::build_result;
use super::{OpenApiConnector, run_blocking};
use crate::clock::{deadline_after, format_limit};
use crate::connector::{CallFailure, ToolCall, ToolResult};

impl OpenApiConnector {
    /// Carries a call out until it is done, its time is up, or its caller has left.
    pub(super) async fn execute(&self, call: &ToolCall) -> Result<ToolResult, CallFailure> {
        let deadline = deadline_after(call.context.timeout);
        let (operation, poll) = parse_execution(call).map_err(CallFailure::Inconclusive)?;
        tokio::select! {
            biased;
            () = call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            answer = self.execute_operation(call, &operation, poll.as_ref(), deadline) => answer,
            () = tokio::time::sleep_until(deadline) => Err(self.timeout_failure(&operation_label(&operation), call)),
        }
    }

    async fn execute_operation(
        &self,
        call: &ToolCall,
        operation: &Operation,
        poll: Option<&PollSettings>,
        deadline: Instant,
    ) -> Result<ToolResult, CallFailure> {
        let arguments = parse_arguments(call, operation).map_err(CallFailure::Inconclusive)?;
        let settled = self.resolve_source().map_err(CallFailure::Inconclusive)?;
        let base = base_url(&settled, operation).map_err(CallFailure::Inconclusive)?;
        let boundary = format!("toolcrib-{:032x}", rand::random::<u128>());
        let prepared = prepare(operation, base.as_str(), &arguments, &boundary).map_err(CallFailure::Inconclusive)?;
        let draft = build_request(prepared, operation, &settled, &base).map_err(CallFailure::Inconclusive)?;
        let chosen = select_auth(operation, &settled.credentials).map_err(CallFailure::Inconclusive)?;
        if !chosen.values.is_empty() || !settled.headers.is_empty() {
            settled.check_credentials_allowed(&base).map_err(CallFailure::Inconclusive)?;
        }

        let witness = call.context.response_recorder.as_ref();
        let trace = call.context.trace.as_ref();
        let exchange = ApiClient {
            connector: self,
            resolved: &settled,
            auth: &chosen,
            deadline,
            response_recorder: witness,
            trace,
        };
        let received = exchange.send_with_retries(&draft, call.is_idempotent).await?;
        match poll {
            None => {
                let label = draft.label;
                run_blocking(move || build_result(&label, &received)).await.map_err(CallFailure::Rejected)
            }
            Some(poll) => {
                let progress = call.context.progress.as_ref();
                let polling = Poller { client: &exchange, base_url: &base, poll, request: &draft, progress };
                polling.poll_until_done(operation, &arguments, received).await
            }
        }
    }

    /// A deadline shorter than the source's own says more about the caller.
    fn timeout_failure(&self, label: &str, call: &ToolCall) -> CallFailure {
        let terms = &call.context;
        let message = format!("`{label}` did not answer within {}", format_limit(terms.timeout));
        let error = Error::new(Code::ToolExecutionFailed, message).with_retryable(call.is_idempotent);
        if terms.timeout < self.source.settings.call_timeout() {
            CallFailure::Inconclusive(error)
        } else {
            CallFailure::TimedOut(error)
        }
    }
}

fn parse_execution(call: &ToolCall) -> Result<(Operation, Option<PollSettings>)> {
    let unknown = || {
        let message = format!("how `{}` is called is not known; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let backing = call.execution_spec.as_ref().ok_or_else(unknown)?;
    let backing: ExecutionSpec = serde_json::from_str(backing.get()).map_err(|error| unknown().with_cause(error))?;
    match backing.execution {
        ExecutionMode::SyncHttp(operation) => Ok((operation, None)),
        ExecutionMode::AsyncPoll { operation, poll } => Ok((operation, Some(poll))),
        ExecutionMode::McpCall | ExecutionMode::Workflow { .. } => Err(unknown()),
    }
}

/// The arguments, all of which must have a place in the request: one that is left out unsaid was a slip.
fn parse_arguments(call: &ToolCall, operation: &Operation) -> Result<Map<String, Value>> {
    let arguments: Map<String, Value> =
        serde_json::from_str(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are no object")?;
    let parameters = operation.parameters.iter().map(|parameter| parameter.argument.as_str());
    let known: Vec<&str> = parameters.chain(operation.body.as_ref().map(|body| body.argument.as_str())).collect();
    let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(arguments) };
    let near = did_you_mean(unknown, known.iter().copied());
    let message = format!("`{}` is not an argument of `{}`{near}", sanitize_truncated(unknown, 80), call.tool);
    let fault = json!({ "path": format!("/{unknown}"), "message": "is not an argument of this tool" });
    Err(Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": [fault] })))
}

/// Headers as expressions see them.
pub(super) fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
