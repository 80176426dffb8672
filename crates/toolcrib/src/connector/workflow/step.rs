//! One step: the tool it means, called under the caller's terms, and what the API behind it answered.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::arazzo::{OperationCall, OperationResponse, WorkflowStep};
use toolcrib_core::catalog::Caller;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, SourceId};

use super::arguments::build_arguments;
use super::run::WorkflowRun;
use crate::call::{CallOptions, CallRequest};
use crate::connector::ResponseRecorder;

/// What a step came to.
pub(super) enum StepOutcome {
    Answered(OperationResponse),
    /// An answer of 400 and more, and what it says for people.
    Rejected {
        response: OperationResponse,
        message: String,
    },
    /// No answer, and why.
    NoResponse(String),
}

impl WorkflowRun<'_> {
    /// Takes a step. An error ends the workflow: nothing that its document says could change that.
    pub(super) async fn run_step(&self, call: &OperationCall<'_>) -> Result<StepOutcome> {
        let target = self.find_target(call).await.map_err(|error| step_error(call, error))?;
        let tool = target.name.as_str();
        let input = build_arguments(&target, &call.arguments).map_err(|error| step_error(call, error))?;
        self.report_progress(call, tool);
        let witness = ResponseRecorder::new(expects_redirect(call.step));
        let options = CallOptions {
            timeout: Some(self.remaining().min(target.call_timeout)),
            cancel: self.context.cancel.clone(),
            consent: self.context.consent,
            client: self.context.client,
            stateless: self.context.stateless,
            unpaged: true,
            trace: self.context.trace.clone(),
            ..CallOptions::default()
        };
        let caller = delegate_caller(&self.context.caller, &self.connector.source.id);
        let wish = CallRequest { name: tool, input, options, response_recorder: Some(witness.clone()) };
        match self.registry.call(&caller, wish).await {
            Ok(_) => Ok(witness
                .take()
                .map_or_else(|| StepOutcome::NoResponse(format!("`{tool}` is no API")), StepOutcome::Answered)),
            Err(error) => classify_error(call, error, witness.take()),
        }
    }

    /// One that does not keep up misses some.
    fn report_progress(&self, call: &OperationCall<'_>, tool: &str) {
        let Some(progress) = &self.context.progress else { return };
        let message = format!("step `{}`: {tool}", sanitize_truncated(&call.step.id, 80));
        if let Ok(said) = to_raw_value(&json!({ "progress": call.number, "message": message })) {
            let _missed = progress.try_send(said);
        }
    }
}

fn classify_error(call: &OperationCall<'_>, error: Error, seen: Option<OperationResponse>) -> Result<StepOutcome> {
    if matches!(error.code, Code::Forbidden | Code::ToolInvalidInput) {
        return Err(step_error(call, error));
    }
    let status = error.details.as_ref().and_then(|details| details.get("status")?.as_u64());
    match seen.filter(|seen| status == Some(seen.status.into())) {
        // The body as the error has it: without what was given to the API in confidence.
        Some(seen) => {
            let body = error.details.and_then(|mut details| details.get_mut("body").map(Value::take));
            let response = OperationResponse { body: body.filter(|body| !body.is_null()), ..seen };
            Ok(StepOutcome::Rejected { response, message: error.message })
        }
        None => Ok(StepOutcome::NoResponse(error.message)),
    }
}

/// An error that ends the workflow. What a caller can do about it depends on whether a step was taken before.
fn step_error(call: &OperationCall<'_>, error: Error) -> Error {
    let step = sanitize_truncated(&call.step.id, 80);
    let workflow = sanitize_truncated(call.workflow, 80);
    let first = call.number == 1;
    let code = match error.code {
        Code::Forbidden => Code::Forbidden,
        Code::AuthRequired => Code::AuthRequired,
        Code::RateLimited if first => Code::RateLimited,
        Code::ToolInvalidInput if first => Code::ToolInvalidInput,
        Code::ToolInvalidInput => Code::ToolExecutionFailed,
        Code::ToolNotImplemented
        | Code::ToolUnavailable
        | Code::ToolExecutionFailed
        | Code::ConfigInvalid
        | Code::NotFound
        | Code::Conflict
        | Code::Unauthorized
        | Code::StoreUnavailable
        | Code::BadRequest
        | Code::RateLimited
        | Code::Internal => {
            if first {
                Code::ToolUnavailable
            } else {
                Code::ToolExecutionFailed
            }
        }
    };
    let retryable = error.is_retryable();
    let mut details = json!({ "step": step });
    for name in ["faults", "upstream_status", "by", "retry_after_ms"] {
        if let Some(detail) = error.details.as_ref().and_then(|details| details.get(name)) {
            details[name] = detail.clone();
        }
    }
    let message = format!("step `{step}` of the workflow `{workflow}` cannot be taken: {}", error.message);
    Error::new(code, message).with_retryable(retryable).with_details(details)
}

/// Who is behind a step, and what is between.
fn delegate_caller(caller: &str, workflow: &SourceId) -> Caller {
    let name = match caller {
        "" => format!("workflow {workflow}"),
        caller => format!("{caller} via workflow {workflow}"),
    };
    Caller { name }
}

/// Whether what the step says about its answers is about one that points elsewhere.
fn expects_redirect(step: &WorkflowStep) -> bool {
    let actions = step.on_success.iter().chain(&step.on_failure);
    let mut criteria = step.success_criteria.iter().chain(actions.flat_map(|action| &action.criteria));
    criteria.any(|criterion| match criterion.context() {
        Some(context) => {
            context.trim() == "$statusCode"
                && REDIRECT_STATUSES.iter().any(|status| criterion.condition.contains(status))
        }
        None => compares_with_redirect(&criterion.condition),
    })
}

const REDIRECT_STATUSES: [&str; 5] = ["301", "302", "303", "307", "308"];

/// Whether `$statusCode` is compared with the number of a redirect, on either side.
fn compares_with_redirect(condition: &str) -> bool {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let quotes = ['\'', '"'];
    let apart = |character: char| character.is_whitespace() || "()&|!=<>'\"".contains(character);
    condition.match_indices("$statusCode").any(|(at, name)| {
        let before = condition[..at].trim_end();
        let after = condition[at + name.len()..].trim_start();
        let after = OPERATORS.iter().find_map(|operator| after.strip_prefix(operator));
        let after = after.and_then(|after| after.trim_start().trim_start_matches(quotes).split(apart).next());
        let before = OPERATORS.iter().find_map(|operator| before.strip_suffix(operator));
        let before = before.and_then(|before| before.trim_end().trim_end_matches(quotes).rsplit(apart).next());
        [before, after].into_iter().flatten().any(|number| REDIRECT_STATUSES.contains(&number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_is_compared_turns_following_off() {
        for (condition, expected) in [
            ("$statusCode == 302", true),
            ("$statusCode==302", true),
            ("($statusCode == '307')", true),
            ("303 == $statusCode && $response.body#/a == 1", true),
            ("$statusCode == 200 || $statusCode == 301", true),
            ("$statusCode == 3020", false),
            ("$statusCode == 200 && $response.body#/count == 302", false),
            ("$response.body#/302 == $statusCode", false),
            ("$statusCode == 200", false),
            ("$statusCode", false),
        ] {
            assert_eq!(compares_with_redirect(condition), expected, "{condition}");
        }
    }

    #[test]
    fn who_called_a_workflow_is_told_of_its_steps_too() {
        let workflow = SourceId::parse("errands").unwrap();
        assert_eq!(delegate_caller("agent", &workflow).name, "agent via workflow errands");
        assert_eq!(delegate_caller("", &workflow).name, "workflow errands");
    }
}
