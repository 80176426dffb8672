//! Executes one step: calls the tool it refers to on behalf of the workflow's caller, and returns the HTTP response of
//! the API behind it.
//!
//! A response of 400 and above is an outcome and not an error: criteria and actions of the document may expect it.
//! Errors are left for what no document can handle, such as a policy that forbids the tool or an operation that does
//! not exist.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_connector::{CallContext, CallDeadline, CallRequest, RedirectMode, ResponseRecorder, ResultPaging};
use toolcrib_core::execution::OperationResponse;
use toolcrib_core::principal::Principal;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, SourceId};

use super::arguments::{StepArguments, build_arguments};
use super::run::WorkflowRun;
use super::target::TargetTool;
use crate::{CallingStep, OperationCall, WorkflowStep};

/// Outcome of a step, for the workflow's success criteria and actions.
pub(super) enum StepOutcome {
    /// The API responded with a status below 400.
    Answered(OperationResponse),
    /// The API responded with 400 or above; `message` is its error for people.
    Rejected { response: OperationResponse, message: String },
    /// No response, with the reason.
    NoResponse(String),
}

impl WorkflowRun<'_> {
    /// Calls the tool of a step. An error ends the workflow, because no action of the document could handle it.
    pub(super) async fn run_step(&self, call: &OperationCall<'_>) -> Result<StepOutcome> {
        let target = self.find_visible_target(call).await.map_err(|error| call_error(call, error))?;
        let tool = target.name.as_str();
        let StepArguments { arguments, undeclared } =
            build_arguments(&target, &call.arguments).map_err(|error| call_error(call, error))?;
        self.report_progress(call, tool);
        // The step is a call like any other: policy, breaker and statistics apply, with the caller's consent and
        // deadline.
        let recorder = ResponseRecorder::new(redirect_mode(call.step), undeclared);
        let caller = &self.call.context;
        let context = CallContext {
            caller: delegate_caller(&caller.caller, &self.connector.source.id),
            // All steps share the deadline of the workflow; the API's own timeout bounds each of them.
            deadline: Some(CallDeadline::after(self.call.deadline.remaining().min(target.call_timeout))),
            cancel: caller.cancel.clone(),
            trace: self.call.span.cloned(),
            consent: caller.consent,
            client: caller.client,
            stateless: caller.stateless,
            ..CallContext::default()
        };
        let request = CallRequest {
            name: tool,
            arguments,
            meta: None,
            // The result is not read, so splitting it into pages would be wasted work.
            paging: ResultPaging::Whole,
            skip_discovery: false,
            response_recorder: Some(&recorder),
        };
        // The result itself is not needed: expressions see the recorded HTTP response.
        match self.tools.clone().call_tool(request, &context).await {
            Ok(_) => Ok(recorder.take().map_or_else(
                || StepOutcome::NoResponse(format!("`{tool}` is not an HTTP API")),
                StepOutcome::Answered,
            )),
            Err(error) => classify_error(call, error, recorder.take()),
        }
    }

    /// Finds the tool of a step. For a caller that may not know of every tool of the APIs, the error does not tell which one
    /// is missing.
    async fn find_visible_target(&self, call: &OperationCall<'_>) -> Result<TargetTool> {
        let caller = &self.call.context.caller;
        let withheld = || Error::new(Code::Forbidden, "it needs a tool that is not available to this caller");
        match self.find_target(call).await {
            Ok(target) if self.tools.can_see_tool(caller, target.name.as_str()) => Ok(target),
            found if !self.tools.withholds_api_tools(caller) => found,
            Ok(_) | Err(_) => Err(withheld()),
        }
    }

    /// Reports the step as progress.
    fn report_progress(&self, call: &OperationCall<'_>, tool: &str) {
        let Some(on_progress) = &self.call.context.on_progress else { return };
        let message = format!("step `{}`: {tool}", sanitize_truncated(&call.step.id, 80));
        if let Ok(notification) = to_raw_value(&json!({ "progress": call.number, "message": message })) {
            on_progress(&notification);
        }
    }
}

/// Classifies a failed call. Policy and argument errors end the workflow; other failures are left to its actions.
fn classify_error(call: &OperationCall<'_>, error: Error, response: Option<OperationResponse>) -> Result<StepOutcome> {
    if matches!(error.code, Code::Forbidden | Code::ToolInvalidInput) {
        return Err(call_error(call, error));
    }
    // The recorded response belongs to this error only if the status is the same: a retry may have failed otherwise.
    let status = error.details.as_ref().and_then(|details| details.get("status")?.as_u64());
    match response.filter(|response| status == Some(response.status.into())) {
        // Take the body from the error: it is redacted, the recorded one is not.
        Some(recorded) => {
            let body = error.details.and_then(|mut details| details.get_mut("body").map(Value::take));
            let response = OperationResponse { body: body.filter(|body| !body.is_null()), ..recorded };
            Ok(StepOutcome::Rejected { response, message: error.message })
        }
        None => Ok(StepOutcome::NoResponse(error.message)),
    }
}

/// Error that ends the workflow at the step of a call.
fn call_error(call: &OperationCall<'_>, error: Error) -> Error {
    let step = CallingStep { document: call.document, workflow: call.workflow, step: &call.step.id };
    step_error(step, call.is_first, error)
}

/// Error that ends the workflow at a step. After the first step the workflow has had effects, so codes that suggest a
/// simple retry or other arguments are no longer used.
pub(super) fn step_error(caller: CallingStep<'_>, is_first: bool, error: Error) -> Error {
    let step = sanitize_truncated(caller.step, 80);
    let workflow = sanitize_truncated(caller.workflow, 80);
    let other_code = if is_first { Code::ToolUnavailable } else { Code::ToolExecutionFailed };
    let code = match error.code {
        Code::Forbidden => Code::Forbidden,
        Code::AuthRequired => Code::AuthRequired,
        Code::RateLimited if is_first => Code::RateLimited,
        Code::ToolInvalidInput if is_first => Code::ToolInvalidInput,
        Code::ToolInvalidInput | Code::ToolExecutionFailed => Code::ToolExecutionFailed,
        Code::ToolNotImplemented
        | Code::ToolUnavailable
        | Code::ConfigInvalid
        | Code::NotFound
        | Code::Conflict
        | Code::Unauthorized
        | Code::StoreUnavailable
        | Code::BadRequest
        | Code::RateLimited
        | Code::Internal => other_code,
        _ => other_code,
    };
    // Only the details that a program acts on.
    let retryable = error.is_retryable();
    let mut details = json!({ "step": step });
    for name in ["faults", "upstream_status", "by", "retry_after_ms"] {
        if let Some(detail) = error.details.as_ref().and_then(|details| details.get(name)) {
            details[name] = detail.clone();
        }
    }
    // Changed in place, so that the next step in the message stays known: REST clients read its route.
    let mut error = error.with_retryable(retryable).with_details(details);
    error.code = code;
    error.message = format!("step `{step}` of the workflow `{workflow}` cannot be executed: {}", error.message);
    error
}

/// Error for a fault of the document, which the caller cannot correct with other arguments.
pub(super) fn document_error(message: String) -> Error {
    Error::new(Code::ToolExecutionFailed, message).with_retryable(false)
}

/// Caller of a step for logs and history: the original caller and the workflow in between.
fn delegate_caller(caller: &Principal, workflow: &SourceId) -> Principal {
    caller.with_name(match caller.name() {
        "" => format!("workflow {workflow}"),
        name => format!("{name} via workflow {workflow}"),
    })
}

/// Redirects are not followed if a criterion of the step compares the status with one.
fn redirect_mode(step: &WorkflowStep) -> RedirectMode {
    let actions = step.on_success.iter().chain(&step.on_failure);
    let mut criteria = step.success_criteria.iter().chain(actions.flat_map(|action| &action.criteria));
    let expects_redirect = criteria.any(|criterion| match criterion.context() {
        Some(context) => {
            context.trim() == "$statusCode"
                && REDIRECT_STATUSES.iter().any(|status| criterion.condition.contains(status))
        }
        None => compares_with_redirect(&criterion.condition),
    });
    if expects_redirect { RedirectMode::Return } else { RedirectMode::Follow }
}

/// Statuses of redirects that the HTTP client would follow.
const REDIRECT_STATUSES: [&str; 5] = ["301", "302", "303", "307", "308"];

/// Whether a condition compares `$statusCode` with a redirect status, on either side of the operator.
fn compares_with_redirect(condition: &str) -> bool {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let quotes = ['\'', '"'];
    let is_delimiter = |character: char| character.is_whitespace() || "()&|!=<>'\"".contains(character);
    // Conditions are not parsed here; the words next to each `$statusCode` are enough, and a false positive only keeps
    // a redirect that would have been followed.
    condition.match_indices("$statusCode").any(|(at, name)| {
        let before = condition[..at].trim_end();
        let after = condition[at + name.len()..].trim_start();
        let after = OPERATORS.iter().find_map(|operator| after.strip_prefix(operator));
        let after = after.and_then(|after| after.trim_start().trim_start_matches(quotes).split(is_delimiter).next());
        let before = OPERATORS.iter().find_map(|operator| before.strip_suffix(operator));
        let before = before.and_then(|before| before.trim_end().trim_end_matches(quotes).rsplit(is_delimiter).next());
        [before, after].into_iter().flatten().any(|number| REDIRECT_STATUSES.contains(&number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_kept_only_if_a_condition_compares_their_status() {
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
    fn a_step_names_the_caller_of_its_workflow() {
        let workflow = SourceId::parse("errands").unwrap();
        assert_eq!(delegate_caller(&Principal::local("agent"), &workflow).name(), "agent via workflow errands");
        assert_eq!(delegate_caller(&Principal::local(""), &workflow).name(), "workflow errands");
    }
}
