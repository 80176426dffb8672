//! One run of a workflow, from its first step to its last, under the caller's terms.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_core::arazzo::{NextAction, WorkflowExecution};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::WorkflowConnector;
use super::document::LoadedDocument;
use super::result::{build_result, failure_error};
use super::step::StepOutcome;
use crate::clock::deadline_after;
use crate::connector::{CallContext, CallFailure, ToolCall, ToolResult};
use crate::registry::RegistryInner;

#[derive(Debug)]
pub(super) struct WorkflowRun<'a> {
    pub(super) connector: &'a WorkflowConnector,
    pub(super) registry: &'a Arc<RegistryInner>,
    pub(super) loaded: &'a LoadedDocument,
    /// Its id.
    pub(super) workflow_id: &'a str,
    pub(super) context: &'a CallContext,
    pub(super) deadline: Instant,
}

impl WorkflowConnector {
    pub(super) async fn execute(&self, call: &ToolCall) -> Result<ToolResult, CallFailure> {
        let deadline = deadline_after(call.context.timeout);
        let (workflow, inputs) = parse_call(call).map_err(CallFailure::Rejected)?;
        let registry = self.registry.upgrade().map_err(CallFailure::Rejected)?;
        let held = tokio::time::timeout_at(deadline, self.load_document()).await;
        let late = |_| Error::new(Code::ToolUnavailable, "the document of the workflow was not read in time");
        let held = held.map_err(late).and_then(|held| held).map_err(|mut error| {
            error.code = Code::ToolUnavailable;
            CallFailure::Rejected(error.with_retryable(false))
        })?;
        // The file may have changed since it was discovered.
        let apis = held.document.described_apis();
        registry.ensure_servers_are_trusted(&self.source.id, &apis).map_err(CallFailure::Rejected)?;
        let run = WorkflowExecution::new(&held.document, &workflow, inputs).map_err(CallFailure::Rejected)?;
        let registry = &registry;
        let held = &held;
        let terms = &call.context;
        WorkflowRun { connector: self, registry, loaded: held, workflow_id: &workflow, context: terms, deadline }
            .run_to_end(run)
            .await
    }
}

impl WorkflowRun<'_> {
    async fn run_to_end(&self, mut run: WorkflowExecution<'_>) -> Result<ToolResult, CallFailure> {
        // What an API said to the step that it last refused.
        let mut refused: Option<(String, String)> = None;
        let mut at = String::new();
        loop {
            let came = match run.next_action() {
                NextAction::Call(call) => {
                    at = call.step.id.clone();
                    self.await_step(&at, self.run_step(call)).await?.map_err(CallFailure::Rejected)?
                }
                NextAction::Wait(pause) => {
                    self.pause(&at, pause).await?;
                    continue;
                }
                NextAction::Completed { outputs } => {
                    return build_result(self.workflow_id, outputs).map_err(CallFailure::Rejected);
                }
                NextAction::Failed { step, reason, outputs } => {
                    let said = refused.filter(|(at, _)| at == step).map(|(_, said)| said);
                    return Err(CallFailure::Rejected(failure_error(
                        self.workflow_id,
                        step,
                        reason,
                        said.as_deref(),
                        outputs,
                    )));
                }
            };
            match came {
                StepOutcome::Answered(response) => run.on_response(response),
                StepOutcome::Rejected { response, message: said } => {
                    refused = Some((at.clone(), said));
                    run.on_response(response);
                }
                StepOutcome::NoResponse(reason) => run.on_no_response(reason),
            }
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What a step comes to, while there is time and somebody who wants to know.
    async fn await_step<T>(&self, step: &str, taking: impl Future<Output = T>) -> Result<T, CallFailure> {
        tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(self.deadline) => Err(self.timeout_failure(step)),
            taken = taking => Ok(taken),
        }
    }

    /// A pause that would outlast the time there is, is not begun.
    async fn pause(&self, step: &str, pause: Duration) -> Result<(), CallFailure> {
        if pause >= self.remaining() {
            return Err(self.timeout_failure(step));
        }
        self.await_step(step, tokio::time::sleep(pause)).await
    }

    /// That says nothing about the document, which is all that stands behind this source.
    fn timeout_failure(&self, step: &str) -> CallFailure {
        let workflow = sanitize_truncated(self.workflow_id, 80);
        let time = format_duration(self.context.timeout);
        let message = format!("the workflow `{workflow}` is not done within {time}: it got as far as step `{step}`");
        let error = Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "step": step }));
        CallFailure::Inconclusive(error)
    }
}

/// The id of the workflow, and its inputs.
fn parse_call(call: &ToolCall) -> Result<(String, Value)> {
    let unknown = || {
        let message = format!("how `{}` is called is not known; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let backing = call.execution_spec.as_ref().ok_or_else(unknown)?;
    let backing: ExecutionSpec = serde_json::from_str(backing.get()).map_err(|error| unknown().with_cause(error))?;
    let inputs =
        serde_json::from_str(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are no JSON")?;
    match backing.execution {
        ExecutionMode::Workflow { id } => Ok((id, inputs)),
        ExecutionMode::McpCall | ExecutionMode::SyncHttp(_) | ExecutionMode::AsyncPoll { .. } => Err(unknown()),
    }
}
