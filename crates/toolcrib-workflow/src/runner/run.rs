//! Runs one workflow from its first step to its last within the caller's timeout. Which step comes next is decided by
//! `toolcrib_workflow`; this module performs the calls and waits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_connector::clock::format_limit;
use toolcrib_connector::{CallFailure, ToolCall, ToolCaller, ToolResult};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec};
use toolcrib_core::json::parse_exact;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::WorkflowConnector;
use super::document::LoadedDocument;
use super::result::{build_result, failure_error};
use super::step::StepOutcome;
use crate::{NextAction, WorkflowExecution};

/// One run of one workflow.
pub(super) struct WorkflowRun<'a> {
    /// Finds the tools of operations.
    pub(super) connector: &'a WorkflowConnector,
    /// Finds and calls the tools of the steps.
    pub(super) tools: &'a Arc<dyn ToolCaller>,
    /// One version of the documents for the whole run, even if a file changes meanwhile.
    pub(super) loaded: &'a Arc<LoadedDocument>,
    /// `workflowId` of the document.
    pub(super) workflow_id: &'a str,
    /// The call of the workflow. Steps inherit consent, client and cancellation, and share the deadline.
    pub(super) call: &'a ToolCall<'a>,
}

impl WorkflowConnector {
    /// Executes a call of a workflow tool.
    pub(super) async fn execute(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        let (workflow_id, inputs) = parse_call(call).map_err(CallFailure::Rejected)?;
        let tools = call.tool_caller.ok_or_else(|| {
            let message = "a workflow can only be called through a registry";
            CallFailure::Rejected(Error::new(Code::Internal, message))
        })?;
        // Read the document first: the file is the source of truth, not the tool list that was discovered from it.
        let loaded = tokio::time::timeout_at(call.deadline.at, self.load_document()).await;
        let timed_out = |_| Error::new(Code::ToolUnavailable, "the document of the workflow was not read in time");
        let loaded = loaded.map_err(timed_out).and_then(|loaded| loaded).map_err(|mut error| {
            // A broken file is a problem of the source, not of the arguments, whatever code reading it produced.
            error.code = Code::ToolUnavailable;
            CallFailure::Rejected(error.with_retryable(false))
        })?;
        // The file may have changed since discovery: check its APIs against the trust settings again.
        let apis = loaded.described_apis();
        tools.ensure_servers_are_trusted(&self.source.id, &apis).map_err(CallFailure::Rejected)?;
        let run = WorkflowExecution::new(&loaded.documents, &workflow_id, inputs).map_err(CallFailure::Rejected)?;
        let loaded = &loaded;
        let workflow_run = WorkflowRun { connector: self, tools, loaded, workflow_id: &workflow_id, call };
        workflow_run.run_to_end(run).await
    }
}

impl WorkflowRun<'_> {
    /// Performs the actions of the workflow until it completes or fails.
    async fn run_to_end(&self, mut run: WorkflowExecution<'_>) -> Result<ToolResult, CallFailure> {
        // Step and message of the last response of 400 and above, to explain a failure of that step.
        let mut rejection: Option<(String, String)> = None;
        let mut current_step = String::new();
        loop {
            // Ask the interpreter for the next action, perform it, and tell the interpreter what came back.
            let outcome = match run.next_action() {
                NextAction::Call(call) => {
                    current_step = call.step.id.clone();
                    self.await_step(&current_step, self.run_step(call)).await?.map_err(CallFailure::Rejected)?
                }
                NextAction::Enter(nested) => {
                    current_step = nested.caller.step.to_owned();
                    let validated = self.await_step(&current_step, self.validate_inputs(nested)).await?;
                    run.on_valid_inputs(validated.map_err(CallFailure::Rejected)?);
                    continue;
                }
                NextAction::Wait(delay) => {
                    let api_message = rejection.as_ref().filter(|(rejected_step, _)| *rejected_step == current_step);
                    let api_message = api_message.map(|(_, api_message)| api_message.as_str());
                    self.pause(&current_step, delay, api_message).await?;
                    continue;
                }
                NextAction::Completed { outputs } => {
                    return build_result(self.workflow_id, outputs).map_err(CallFailure::Rejected);
                }
                NextAction::Failed { step, reason, outputs } => {
                    let api_message =
                        rejection.filter(|(current_step, _)| current_step == step).map(|(_, api_message)| api_message);
                    return Err(CallFailure::Rejected(failure_error(
                        self.workflow_id,
                        step,
                        reason,
                        api_message.as_deref(),
                        outputs,
                    )));
                }
            };
            // A response of 400 and above is not an error here: the criteria of the step decide.
            match outcome {
                StepOutcome::Answered(response) => run.on_response(response),
                StepOutcome::Rejected { response, message: api_message } => {
                    rejection = Some((current_step.clone(), api_message));
                    run.on_response(response);
                }
                StepOutcome::NoResponse(reason) => run.on_no_response(reason),
            }
        }
    }

    /// Awaits a step or delay until the deadline, or until the caller cancels.
    async fn await_step<T>(&self, step: &str, step_future: impl Future<Output = T>) -> Result<T, CallFailure> {
        // Cancellation and deadline first: a step that is ready at the same moment must not start another.
        tokio::select! {
            biased;
            () = self.call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(self.call.deadline.at) => Err(self.timeout_failure(step)),
            result = step_future => Ok(result),
        }
    }

    /// Waits before a retry. Fails at once if the delay would exceed the deadline. `api_message` is the API's own error for
    /// the step.
    async fn pause(&self, step: &str, delay: Duration, api_message: Option<&str>) -> Result<(), CallFailure> {
        if delay >= self.call.deadline.remaining() {
            let timeout = format_limit(self.call.deadline.limit);
            let reason =
                format!("the pause of {} before its retry exceeds what is left of {timeout}", format_duration(delay));
            let error = failure_error(self.workflow_id, step, &reason, api_message, &json!({}));
            return Err(CallFailure::Inconclusive(error));
        }
        self.await_step(step, tokio::time::sleep(delay)).await
    }

    /// The timeout of a workflow says nothing about its source, which is only a file.
    fn timeout_failure(&self, step: &str) -> CallFailure {
        let workflow_id = sanitize_truncated(self.workflow_id, 80);
        let timeout = format_limit(self.call.deadline.limit);
        let message = format!("the workflow `{workflow_id}` did not finish within {timeout}; it reached step `{step}`");
        let error = Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "step": step }));
        CallFailure::Inconclusive(error)
    }
}

/// Reads the workflow id and the inputs from a call.
fn parse_call(call: &ToolCall) -> Result<(String, Value)> {
    let unknown = || {
        let message =
            format!("the execution specification of `{}` is missing or invalid; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let spec = call.execution_spec.as_ref().ok_or_else(unknown)?;
    let spec: ExecutionSpec = serde_json::from_str(spec.get()).map_err(|error| unknown().with_cause(error))?;
    let inputs = parse_exact(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are not JSON")?;
    match spec.execution {
        ExecutionMode::Workflow { id } => Ok((id, inputs)),
        ExecutionMode::McpCall | ExecutionMode::SyncHttp(_) | ExecutionMode::AsyncPoll { .. } => Err(unknown()),
    }
}
