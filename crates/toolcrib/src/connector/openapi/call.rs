//! A call: from a tool's backing to the request, under the caller's terms, and back with a result.

use http::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolcrib_core::execution::{Backing, Execution, Operation};
use toolcrib_core::openapi::request::prepare;
use toolcrib_core::source::Poll;
use toolcrib_core::text::{did_you_mean, shown_short};
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::credentials::choose;
use super::exchange::Exchange;
use super::outgoing::{base, draft, label};
use super::poll::Polling;
use super::result::answer;
use super::{OpenApiConnector, apart};
use crate::clock::{after, shown_limit};
use crate::connector::{Answer, Call, CallFailure};

impl OpenApiConnector {
    /// Carries a call out until it is done, its time is up, or its caller has left.
    pub(super) async fn carry_out(&self, call: &Call) -> Result<Answer, CallFailure> {
        let deadline = after(call.terms.timeout);
        let (operation, poll) = read(call).map_err(CallFailure::Undecided)?;
        tokio::select! {
            biased;
            () = call.terms.cancel.cancelled() => Err(CallFailure::cancelled()),
            answer = self.perform(call, &operation, poll.as_ref(), deadline) => answer,
            () = tokio::time::sleep_until(deadline) => Err(self.late(&label(&operation), call)),
        }
    }

    async fn perform(
        &self,
        call: &Call,
        operation: &Operation,
        poll: Option<&Poll>,
        deadline: Instant,
    ) -> Result<Answer, CallFailure> {
        let arguments = arguments(call, operation).map_err(CallFailure::Undecided)?;
        let settled = self.settle().map_err(CallFailure::Undecided)?;
        let base = base(&settled, operation).map_err(CallFailure::Undecided)?;
        let boundary = format!("toolcrib-{:032x}", rand::random::<u128>());
        let prepared = prepare(operation, base.as_str(), &arguments, &boundary).map_err(CallFailure::Undecided)?;
        let draft = draft(prepared, operation, &settled, &base).map_err(CallFailure::Undecided)?;
        let chosen = choose(operation, &settled.given).map_err(CallFailure::Undecided)?;
        if !chosen.proofs.is_empty() || !settled.headers.is_empty() {
            settled.trusts(&base).map_err(CallFailure::Undecided)?;
        }

        let witness = call.terms.witness.as_ref();
        let trace = call.terms.trace.as_ref();
        let exchange = Exchange { connector: self, settled: &settled, chosen: &chosen, deadline, witness, trace };
        let received = exchange.ask(&draft, call.repeatable).await?;
        match poll {
            None => {
                let label = draft.label;
                apart(move || answer(&label, &received)).await.map_err(CallFailure::Refused)
            }
            Some(poll) => {
                let progress = call.terms.progress.as_ref();
                let polling = Polling { exchange: &exchange, base: &base, poll, draft: &draft, progress };
                polling.follow(operation, &arguments, received).await
            }
        }
    }

    /// A deadline shorter than the source's own says more about the caller.
    fn late(&self, label: &str, call: &Call) -> CallFailure {
        let terms = &call.terms;
        let message = format!("`{label}` did not answer within {}", shown_limit(terms.timeout));
        let error = Error::new(Code::ToolExecutionFailed, message).with_retryable(call.repeatable);
        if terms.timeout < self.source.settings.call_timeout() {
            CallFailure::Undecided(error)
        } else {
            CallFailure::Late(error)
        }
    }
}

fn read(call: &Call) -> Result<(Operation, Option<Poll>)> {
    let unknown = || {
        let message = format!("how `{}` is called is not known; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let backing = call.backing.as_ref().ok_or_else(unknown)?;
    let backing: Backing = serde_json::from_str(backing.get()).map_err(|error| unknown().with_cause(error))?;
    match backing.execution {
        Execution::SyncHttp(operation) => Ok((operation, None)),
        Execution::AsyncPoll { operation, poll } => Ok((operation, Some(poll))),
        Execution::McpCall | Execution::Workflow { .. } => Err(unknown()),
    }
}

/// The arguments, all of which must have a place in the request: one that is left out unsaid was a slip.
fn arguments(call: &Call, operation: &Operation) -> Result<Map<String, Value>> {
    let arguments: Map<String, Value> =
        serde_json::from_str(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are no object")?;
    let parameters = operation.parameters.iter().map(|parameter| parameter.argument.as_str());
    let known: Vec<&str> = parameters.chain(operation.body.as_ref().map(|body| body.argument.as_str())).collect();
    let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(arguments) };
    let near = did_you_mean(unknown, known.iter().copied());
    let message = format!("`{}` is not an argument of `{}`{near}", shown_short(unknown, 80), call.tool);
    let fault = json!({ "path": format!("/{unknown}"), "message": "is not an argument of this tool" });
    Err(Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": [fault] })))
}

/// Headers as expressions see them.
pub(super) fn listed(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
