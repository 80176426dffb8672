//! Executes a tool call: from the tool's execution specification to an HTTP request, and from the response to a result.
//!
//! Failures are classified by the phase they happen in: before anything is sent they are inconclusive, because they say
//! nothing about the API; after that, by what the API answered.

use http::HeaderMap;
use serde_json::{Map, Value, json};
use toolcrib_connector::clock::format_limit;
use toolcrib_connector::document::run_blocking;
use toolcrib_connector::{CallFailure, ToolCall, ToolResult};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec, Operation};
use toolcrib_core::source::PollSettings;
use toolcrib_core::text::{did_you_mean, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::OpenApiConnector;
use super::api_client::ApiClient;
use super::credentials::select_auth;
use super::poll::Poller;
use super::request_builder::{self, build_request, operation_label};
use super::resolved_source::ResolvedSource;
use super::result::build_result;
use crate::request::prepare;

impl OpenApiConnector {
    /// Executes a call until it finishes, its timeout expires, or its caller cancels.
    pub(super) async fn execute(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        let (operation, poll) = parse_execution(call).map_err(CallFailure::Inconclusive)?;
        // Cancellation first: a call that is cancelled before it starts must not send anything.
        // One timer for everything, so that no request needs a timeout of its own.
        tokio::select! {
            biased;
            () = call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            result = self.execute_operation(call, &operation, poll.as_ref()) => result,
            () = tokio::time::sleep_until(call.deadline.at) => Err(self.timeout_failure(&operation_label(&operation), call)),
        }
    }

    /// Builds the request, sends it, and polls if the operation starts a job. Errors before sending are inconclusive:
    /// they say nothing about the API.
    async fn execute_operation(
        &self,
        call: &ToolCall<'_>,
        operation: &Operation,
        poll: Option<&PollSettings>,
    ) -> Result<ToolResult, CallFailure> {
        // Collect everything the request needs. None of these steps contacts the API.
        let arguments = parse_arguments(call, operation).map_err(CallFailure::Inconclusive)?;
        let references = self.references.read().await;
        let resolved = ResolvedSource::resolve(&self.source, &references).map_err(CallFailure::Inconclusive)?;
        let base_url = request_builder::base_url(&resolved, operation).map_err(CallFailure::Inconclusive)?;
        // Separator of multipart bodies; random, so that no argument can contain it.
        let boundary = format!("toolcrib-{:032x}", rand::random::<u128>());
        let prepared =
            prepare(operation, base_url.as_str(), &arguments, &boundary).map_err(CallFailure::Inconclusive)?;
        let request = build_request(prepared, operation, &resolved, &base_url).map_err(CallFailure::Inconclusive)?;
        let auth = select_auth(operation, &resolved.credentials).map_err(CallFailure::Inconclusive)?;
        // Headers may carry credentials too.
        if !auth.values.is_empty() || !resolved.headers.is_empty() {
            resolved.check_credentials_allowed(&base_url).map_err(CallFailure::Inconclusive)?;
        }

        // Send, with retries and token renewal.
        let client = ApiClient { connector: self, resolved: &resolved, auth: &auth, call };
        let received = client.send_with_retries(&request, call.is_idempotent).await?;
        match poll {
            // Large bodies take time to convert: keep that off the async workers.
            None => {
                let label = request.label;
                run_blocking(move || build_result(&label, &received)).await.map_err(CallFailure::Rejected)
            }
            // The response only started a job: its result comes from the status URL.
            Some(poll) => {
                let poller = Poller { client: &client, base_url: &base_url, poll, request: &request };
                poller.poll_until_done(operation, &arguments, received).await
            }
        }
    }

    /// A timeout shorter than the source's own call timeout does not count against the source.
    fn timeout_failure(&self, label: &str, call: &ToolCall<'_>) -> CallFailure {
        let message = format!("`{label}` timed out after {}", format_limit(call.deadline.limit));
        let error = Error::new(Code::ToolExecutionFailed, message).with_retryable(call.is_idempotent);
        call.deadline.timeout_failure(error)
    }
}

/// Reads the execution specification that discovery attached to the tool. A refresh attaches it again if it cannot be
/// read.
fn parse_execution(call: &ToolCall<'_>) -> Result<(Operation, Option<PollSettings>)> {
    let unknown = || {
        let message =
            format!("the execution specification of `{}` is missing or invalid; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let spec = call.execution_spec.ok_or_else(unknown)?;
    let spec: ExecutionSpec = serde_json::from_str(spec.get()).map_err(|error| unknown().with_cause(error))?;
    match spec.execution {
        ExecutionMode::SyncHttp(operation) => Ok((operation, None)),
        ExecutionMode::AsyncPoll { operation, poll } => Ok((operation, Some(poll))),
        ExecutionMode::McpCall | ExecutionMode::Workflow { .. } => Err(unknown()),
    }
}

/// Parses the arguments. Each must map to a part of the request: an argument that is silently dropped hides a mistake
/// of the caller.
fn parse_arguments(call: &ToolCall<'_>, operation: &Operation) -> Result<Map<String, Value>> {
    let arguments: Map<String, Value> = serde_json::from_str(call.arguments.get())
        .context(Code::ToolInvalidInput, "the arguments are not an object")?;
    // Every name the operation knows: its parameters and, under a name of its own, the request body.
    let parameters = operation.parameters.iter().map(|parameter| parameter.argument.as_str());
    let known: Vec<&str> = parameters.chain(operation.body.as_ref().map(|body| body.argument.as_str())).collect();
    let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(arguments) };
    let suggestion = did_you_mean(unknown, known.iter().copied());
    let message = format!("`{}` is not an argument of `{}`{suggestion}", sanitize_truncated(unknown, 80), call.tool);
    let fault = json!({ "path": format!("/{unknown}"), "message": "is not an argument of this tool" });
    Err(Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": [fault] })))
}

/// Headers as name and value pairs, for runtime expressions.
pub(super) fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
