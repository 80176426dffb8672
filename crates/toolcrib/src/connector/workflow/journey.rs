//! One run of a workflow, from its first step to its last, under the caller's terms.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_core::arazzo::{Do, Run};
use toolcrib_core::execution::{Backing, Execution};
use toolcrib_core::text::shown_short;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::WorkflowConnector;
use super::document::Held;
use super::result::{answer, failed};
use super::step::Came;
use crate::clock::after;
use crate::connector::{Answer, Call, CallFailure, Terms};
use crate::registry::Shared;

#[derive(Debug)]
pub(super) struct Journey<'a> {
    pub(super) connector: &'a WorkflowConnector,
    pub(super) registry: &'a Arc<Shared>,
    pub(super) held: &'a Held,
    /// Its id.
    pub(super) workflow: &'a str,
    pub(super) terms: &'a Terms,
    pub(super) deadline: Instant,
}

impl WorkflowConnector {
    pub(super) async fn carry_out(&self, call: &Call) -> Result<Answer, CallFailure> {
        let deadline = after(call.terms.timeout);
        let (workflow, inputs) = read(call).map_err(CallFailure::Refused)?;
        let registry = self.origin.registry().map_err(CallFailure::Refused)?;
        let held = tokio::time::timeout_at(deadline, self.document()).await;
        let late = |_| Error::new(Code::ToolUnavailable, "the document of the workflow was not read in time");
        let held = held.map_err(late).and_then(|held| held).map_err(|mut error| {
            error.code = Code::ToolUnavailable;
            CallFailure::Refused(error.with_retryable(false))
        })?;
        // The file may have changed since it was discovered.
        let apis = held.document.described_apis();
        registry.ensure_servers_are_trusted(&self.source.id, &apis).map_err(CallFailure::Refused)?;
        let run = Run::new(&held.document, &workflow, inputs).map_err(CallFailure::Refused)?;
        let (registry, held, terms) = (&registry, &held, &call.terms);
        Journey { connector: self, registry, held, workflow: &workflow, terms, deadline }.make(run).await
    }
}

impl Journey<'_> {
    async fn make(&self, mut run: Run<'_>) -> Result<Answer, CallFailure> {
        // What an API said to the step that it last refused.
        let mut refused: Option<(String, String)> = None;
        let mut at = String::new();
        loop {
            let came = match run.next_action() {
                Do::Call(call) => {
                    at = call.step.id.clone();
                    self.in_time(&at, self.take(call)).await?.map_err(CallFailure::Refused)?
                }
                Do::Wait(pause) => {
                    self.pause(&at, pause).await?;
                    continue;
                }
                Do::Done { outputs } => return answer(self.workflow, outputs).map_err(CallFailure::Refused),
                Do::Failed { step, reason, outputs } => {
                    let said = refused.filter(|(at, _)| at == step).map(|(_, said)| said);
                    return Err(CallFailure::Refused(failed(self.workflow, step, reason, said.as_deref(), outputs)));
                }
            };
            match came {
                Came::Answer(response) => run.answer(response),
                Came::Refusal { response, said } => {
                    refused = Some((at.clone(), said));
                    run.answer(response);
                }
                Came::Nothing(reason) => run.no_answer(reason),
            }
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What a step comes to, while there is time and somebody who wants to know.
    async fn in_time<T>(&self, step: &str, taking: impl Future<Output = T>) -> Result<T, CallFailure> {
        tokio::select! {
            biased;
            () = self.terms.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(self.deadline) => Err(self.late(step)),
            taken = taking => Ok(taken),
        }
    }

    /// A pause that would outlast the time there is, is not begun.
    async fn pause(&self, step: &str, pause: Duration) -> Result<(), CallFailure> {
        if pause >= self.remaining() {
            return Err(self.late(step));
        }
        self.in_time(step, tokio::time::sleep(pause)).await
    }

    /// That says nothing about the document, which is all that stands behind this source.
    fn late(&self, step: &str) -> CallFailure {
        let (workflow, time) = (shown_short(self.workflow, 80), format_duration(self.terms.timeout));
        let message = format!("the workflow `{workflow}` is not done within {time}: it got as far as step `{step}`");
        let error = Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "step": step }));
        CallFailure::Undecided(error)
    }
}

/// The id of the workflow, and its inputs.
fn read(call: &Call) -> Result<(String, Value)> {
    let unknown = || {
        let message = format!("how `{}` is called is not known; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let backing = call.backing.as_ref().ok_or_else(unknown)?;
    let backing: Backing = serde_json::from_str(backing.get()).map_err(|error| unknown().with_cause(error))?;
    let inputs =
        serde_json::from_str(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are no JSON")?;
    match backing.execution {
        Execution::Workflow { id } => Ok((id, inputs)),
        Execution::McpCall | Execution::SyncHttp(_) | Execution::AsyncPoll { .. } => Err(unknown()),
    }
}
