//! What came of a step: an answer, none, or the outputs of a nested workflow.

use std::time::Duration;

use serde_json::Value;

use super::{OperationCall, OperationResponse};
use crate::arazzo::{ConditionBudget, WorkflowStep};
use crate::expression::{self, Scope};
use crate::text::sanitize_truncated;

#[derive(Debug)]
pub(super) struct StepResult<'a> {
    call: Option<OperationCall<'a>>,
    response: Option<OperationResponse>,
    /// The outputs of the workflow that the step is.
    pub(super) nested_outputs: Option<Value>,
    /// Why there is no answer, or why the nested workflow failed.
    failure_reason: Option<String>,
}

impl<'a> StepResult<'a> {
    pub(super) fn from_response(call: OperationCall<'a>, answer: OperationResponse) -> StepResult<'a> {
        StepResult { call: Some(call), response: Some(answer), nested_outputs: None, failure_reason: None }
    }

    pub(super) fn without_response(call: Option<OperationCall<'a>>, reason: String) -> StepResult<'a> {
        StepResult { call, response: None, nested_outputs: None, failure_reason: Some(reason) }
    }

    /// The last answer that the nested workflow got counts as the step's: documents ask for its status.
    pub(super) fn from_nested_workflow(
        outputs: Value,
        answer: Option<OperationResponse>,
        reason: Option<String>,
    ) -> StepResult<'a> {
        StepResult { call: None, response: answer, nested_outputs: Some(outputs), failure_reason: reason }
    }

    /// Why the step is no success, if it is none. Without criteria, any answer of 2xx is one.
    pub(super) fn evaluate_failure(
        &self,
        step: &WorkflowStep,
        scope: &Scope<'_>,
        budget: &ConditionBudget,
    ) -> Option<String> {
        if self.failure_reason.is_some() {
            return self.failure_reason.clone();
        }
        let status = self.response.as_ref().map(|answer| answer.status);
        if step.success_criteria.is_empty() {
            let status = status.filter(|status| self.nested_outputs.is_none() && !(200..300).contains(status))?;
            return Some(format!("it was answered with status {status}"));
        }
        step.success_criteria.iter().find_map(|criterion| {
            let condition = sanitize_truncated(&criterion.condition, 100);
            match (criterion.evaluate(scope, budget), status) {
                (Ok(true), _) => None,
                (Ok(false), Some(status)) => {
                    Some(format!("it was answered with status {status}, and `{condition}` does not hold"))
                }
                (Ok(false), None) => Some(format!("`{condition}` does not hold")),
                (Err(reason), _) => Some(format!("`{condition}` cannot be decided: {reason}")),
            }
        })
    }

    pub(super) fn into_response(self) -> Option<OperationResponse> {
        self.response
    }

    /// What the server asks for overrules the document. A date would need a clock.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let headers = &self.response.as_ref()?.headers;
        let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
        let seconds: u64 = value.trim().parse().ok()?;
        Some(Duration::from_secs(seconds.min(MAX_RETRY_AFTER_SECONDS)))
    }

    pub(super) fn request_scope(&self) -> Option<expression::RequestScope<'_>> {
        let arguments = &self.call.as_ref()?.arguments;
        Some(expression::RequestScope {
            url: self.response.as_ref().map(|answer| answer.url.as_str()),
            method: self.response.as_ref().map(|answer| answer.method.as_str()),
            path: Some(&arguments.path),
            query: Some(&arguments.query),
            headers: Some(&arguments.headers),
            body: arguments.body.as_ref().map(|body| &body.value),
        })
    }

    pub(super) fn response_scope(&self) -> Option<expression::ResponseScope<'_>> {
        let answer = self.response.as_ref()?;
        Some(expression::ResponseScope { status: answer.status, headers: &answer.headers, body: answer.body.as_ref() })
    }
}

/// In seconds. Whoever waits has a deadline of its own.
const MAX_RETRY_AFTER_SECONDS: u64 = 3600;
