//! Result of a step: a response, a failure without response, or the outputs of a nested workflow. Decides between
//! success and failure, and provides the values that expressions of the step may use.

use std::time::Duration;

use serde_json::Value;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression;
use toolcrib_openapi::expression::Scope;

use super::{OperationCall, OperationResponse};
use crate::parse::MAX_RETRY_AFTER;
use crate::{ConditionBudget, WorkflowStep};

/// Result of executing a step once.
#[derive(Debug, Default)]
pub(super) struct StepResult<'a> {
    /// `None` for a nested workflow, and for a step whose arguments could not be built.
    pub(super) call: Option<OperationCall<'a>>,
    /// The last response of a nested workflow counts as the step's, because documents test its status.
    pub(super) response: Option<OperationResponse>,
    /// Outputs of the workflow that the step called.
    pub(super) nested_outputs: Option<Value>,
    /// Why there is no response, or why the nested workflow failed.
    pub(super) failure_reason: Option<String>,
}

impl<'a> StepResult<'a> {
    /// Result of a step that could not be sent.
    pub(super) fn unsent(reason: String) -> StepResult<'a> {
        StepResult { failure_reason: Some(reason), ..StepResult::default() }
    }

    /// Returns why the step failed, or `None` for success. Without criteria, any status 2xx is a success.
    pub(super) fn evaluate_failure(
        &self,
        step: &WorkflowStep,
        scope: &Scope<'_>,
        budget: &ConditionBudget,
    ) -> Option<String> {
        // Without a response there is nothing that criteria could test.
        if self.failure_reason.is_some() {
            return self.failure_reason.clone();
        }
        let status = self.response.as_ref().map(|response| response.status);
        if step.success_criteria.is_empty() {
            // A nested workflow that reached its end succeeded, whatever the status of its last response was.
            let status = status.filter(|status| self.nested_outputs.is_none() && !(200..300).contains(status))?;
            return Some(format!("the response has status {status}"));
        }
        step.success_criteria.iter().find_map(|criterion| {
            let condition = sanitize_truncated(&criterion.condition, 100);
            match (criterion.evaluate(scope, budget), status) {
                (Ok(true), _) => None,
                (Ok(false), Some(status)) => {
                    let response = if self.nested_outputs.is_some() {
                        "the last response of the workflow"
                    } else {
                        "the response"
                    };
                    Some(format!("{response} has status {status}, and `{condition}` is not met"))
                }
                (Ok(false), None) => Some(format!("`{condition}` is not met")),
                (Err(reason), _) => Some(format!("`{condition}` cannot be evaluated: {reason}")),
            }
        })
    }

    /// `Retry-After` of the response in seconds, which overrides `retryAfter` of the document. Dates are ignored, as
    /// they would need a clock.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let headers = &self.response.as_ref()?.headers;
        let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
        let seconds: u64 = value.trim().parse().ok()?;
        Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
    }

    /// `$request`, `$url` and `$method` for expressions.
    pub(super) fn request_scope(&self) -> Option<expression::RequestScope<'_>> {
        let arguments = &self.call.as_ref()?.arguments;
        Some(expression::RequestScope {
            url: self.response.as_ref().map(|response| response.url.as_str()),
            method: self.response.as_ref().map(|response| response.method.as_str()),
            path: Some(&arguments.path),
            query: Some(&arguments.query),
            headers: Some(&arguments.headers),
            body: arguments.body.as_ref().map(|body| &body.value),
        })
    }

    /// `$response` and `$statusCode` for expressions.
    pub(super) fn response_scope(&self) -> Option<expression::ResponseScope<'_>> {
        let response = self.response.as_ref()?;
        Some(expression::ResponseScope {
            status: response.status,
            headers: &response.headers,
            body: response.body.as_ref(),
        })
    }
}
