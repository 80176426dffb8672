//! Questions to clients of 2026-07-28. The server answers the client's request with an `input_required` result and
//! suspends the service's work, which continues when the client repeats the request with its answers and the
//! `requestState`.
//!
//! ```text
//! client ── tools/call, id 1 ─────────────────────▶ task starts, service asks
//!        ◀── input_required, requestState S ─────── task is suspended, id 1 is free
//! client ── tools/call, id 2, S, inputResponses ──▶ task resumes with the sink of id 2
//!        ◀── result ──────────────────────────────
//! ```
//!
//! The service notices nothing of this: to it, asking the client is one call that takes long. Questions that it asks
//! concurrently go into one result.

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::client_requests::ClientResponse;
use crate::{
    error::{RpcError, WireError},
    message::{RawObject, to_raw},
};

/// Questions of one request that its client has not answered.
#[derive(Debug, Default)]
pub(super) struct ClientQuestions {
    open: Vec<ClientQuestion>,
    /// Number of questions so far, for unique keys.
    count: u64,
}

#[derive(Debug)]
struct ClientQuestion {
    /// Key in `inputRequests` and `inputResponses`.
    key: String,
    /// Method and parameters of the question.
    request: Box<RawValue>,
    /// Completes [`Request::ask`](super::request::Request::ask); dropped without a value when the request ends.
    answer: oneshot::Sender<ClientResponse>,
}

impl ClientQuestions {
    /// Adds a question that [`encode_question`] encoded; returns the receiver of its answer.
    pub(super) fn add(&mut self, method: &str, question: Box<RawValue>) -> oneshot::Receiver<ClientResponse> {
        self.count += 1;
        // For example `elicitation-1`. The key is unique for the whole request, also after a question was answered.
        let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), self.count);
        let (answer, receiver) = oneshot::channel();
        self.open.push(ClientQuestion { key, request: question, answer });
        receiver
    }

    /// Drops the questions whose answers the service does not wait for any more; returns whether there are others.
    pub(super) fn retain_awaited(&mut self) -> bool {
        self.open.retain(|question| !question.answer.is_closed());
        !self.open.is_empty()
    }

    /// Encodes the `input_required` result.
    pub(super) fn encode_result(&self, state: &str) -> Result<Box<RawValue>, WireError> {
        let mut inputs = RawObject::default();
        for question in &self.open {
            inputs.set(&question.key, question.request.clone());
        }
        let mut result = RawObject::default();
        result.set("resultType", to_raw("input_required")?);
        result.set("inputRequests", inputs.to_raw()?);
        result.set("requestState", to_raw(state)?);
        result.to_raw()
    }

    /// Passes the answers on to the service. Questions without an answer, or with one that is not an object, stay open.
    pub(super) fn answer(&mut self, answers: &RawObject<'_>) {
        for question in std::mem::take(&mut self.open) {
            match answers.get(&question.key).filter(|answer| answer.get().starts_with('{')) {
                // The service may have stopped waiting for this answer.
                Some(answer) => drop(question.answer.send(Ok(answer.to_owned()))),
                None => self.open.push(question),
            }
        }
    }
}

/// Encodes one entry of `inputRequests`.
pub(super) fn encode_question(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, WireError> {
    let mut question = RawObject::default();
    question.set("method", to_raw(method)?);
    if let Some(params) = params {
        question.set("params", params.to_owned());
    }
    question.to_raw()
}

/// Parses `inputResponses`; without them, the client answered nothing.
pub(super) fn parse_answers(input_responses: Option<&RawValue>) -> Result<RawObject<'_>, RpcError> {
    let Some(input_responses) = input_responses else { return Ok(RawObject::default()) };
    RawObject::parse(input_responses)
        .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, "`inputResponses` is not an object"))
}
