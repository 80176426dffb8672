//! What came of a step: an answer, none, or the outputs of a nested workflow.

use std::time::Duration;

use serde_json::Value;

use super::{Call, Response};
use crate::arazzo::{Budget, Step};
use crate::expression::{self, Scope};
use crate::text::shown_short;

#[derive(Debug)]
pub(super) struct Attempt<'a> {
    call: Option<Call<'a>>,
    answer: Option<Response>,
    /// The outputs of the workflow that the step is.
    pub(super) nested: Option<Value>,
    /// Why there is no answer, or why the nested workflow failed.
    reason: Option<String>,
}

impl<'a> Attempt<'a> {
    pub(super) fn answered(call: Call<'a>, answer: Response) -> Attempt<'a> {
        Attempt { call: Some(call), answer: Some(answer), nested: None, reason: None }
    }

    pub(super) fn unanswered(call: Option<Call<'a>>, reason: String) -> Attempt<'a> {
        Attempt { call, answer: None, nested: None, reason: Some(reason) }
    }

    /// The last answer that the nested workflow got counts as the step's: documents ask for its status.
    pub(super) fn nested(outputs: Value, answer: Option<Response>, reason: Option<String>) -> Attempt<'a> {
        Attempt { call: None, answer, nested: Some(outputs), reason }
    }

    /// Why the step is no success, if it is none. Without criteria, any answer of 2xx is one.
    pub(super) fn failure(&self, step: &Step, scope: &Scope<'_>, budget: &Budget) -> Option<String> {
        if self.reason.is_some() {
            return self.reason.clone();
        }
        let status = self.answer.as_ref().map(|answer| answer.status);
        if step.success_criteria.is_empty() {
            let status = status.filter(|status| self.nested.is_none() && !(200..300).contains(status))?;
            return Some(format!("it was answered with status {status}"));
        }
        step.success_criteria.iter().find_map(|criterion| {
            let condition = shown_short(&criterion.condition, 100);
            match (criterion.holds(scope, budget), status) {
                (Ok(true), _) => None,
                (Ok(false), Some(status)) => {
                    Some(format!("it was answered with status {status}, and `{condition}` does not hold"))
                }
                (Ok(false), None) => Some(format!("`{condition}` does not hold")),
                (Err(reason), _) => Some(format!("`{condition}` cannot be decided: {reason}")),
            }
        })
    }

    pub(super) fn into_answer(self) -> Option<Response> {
        self.answer
    }

    /// What the server asks for overrules the document. A date would need a clock.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let headers = &self.answer.as_ref()?.headers;
        let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
        let seconds: u64 = value.trim().parse().ok()?;
        Some(Duration::from_secs(seconds.min(LONGEST_WAIT)))
    }

    pub(super) fn request(&self) -> Option<expression::Request<'_>> {
        let arguments = &self.call.as_ref()?.arguments;
        Some(expression::Request {
            url: self.answer.as_ref().map(|answer| answer.url.as_str()),
            method: self.answer.as_ref().map(|answer| answer.method.as_str()),
            path: Some(&arguments.path),
            query: Some(&arguments.query),
            headers: Some(&arguments.headers),
            body: arguments.body.as_ref().map(|body| &body.value),
        })
    }

    pub(super) fn response(&self) -> Option<expression::Response<'_>> {
        let answer = self.answer.as_ref()?;
        Some(expression::Response { status: answer.status, headers: &answer.headers, body: answer.body.as_ref() })
    }
}

/// In seconds. Whoever waits has a deadline of its own.
const LONGEST_WAIT: u64 = 3600;
