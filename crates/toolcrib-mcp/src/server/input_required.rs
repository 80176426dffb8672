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

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    envelope, event_buffer::ResponseKind, params::RequestParams, request_state::RequestState, shared::ServerShared,
    sink::Sink,
};
use crate::{
    connection::deadline_after,
    error::{RpcError, WireError},
    message::{RawObject, to_raw},
};

/// Part of the states created here, after the prefix of all handles. Other states belong to a server behind the
/// service, which receives them. So relayed and local questions can be told apart without a table.
const STATE_MARK: &str = "toolcrib-";

/// A question that the client has not answered yet.
#[derive(Debug)]
pub(super) struct ClientQuestion {
    /// Key in `inputRequests` and `inputResponses`.
    key: String,
    /// Method and parameters of the question.
    request: Box<RawValue>,
    /// Completes [`RequestState::ask_client`]; dropped without a value when the request ends.
    answer: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
}

impl RequestState {
    /// Asks the client and waits for the answer, which arrives with a later request.
    pub(super) async fn ask_client(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let request = input_request(method, params)?;
        let (answer, waiting) = oneshot::channel();
        {
            let mut channel = self.channel.lock();
            if channel.closed {
                return Err(request_ended_error());
            }
            channel.question_count += 1;
            // For example `elicitation-1`. The key is unique for the whole request, also after a question was answered.
            let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), channel.question_count);
            channel.questions.push(ClientQuestion { key, request, answer });
        }
        self.wake.notify_one();
        waiting.await.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, "the client did not answer in time")))
    }

    /// Sends the open questions to the client, if it waits for a response, and suspends the request. Returns the
    /// deadline for the client to resume it.
    pub(super) async fn suspend(self: &Arc<Self>) -> Option<Instant> {
        let (sink, text) = {
            let mut channel = self.channel.lock();
            // The service may have stopped waiting for some of the answers.
            channel.questions.retain(|question| !question.answer.is_closed());
            if channel.sink.is_none() || channel.questions.is_empty() {
                return channel.suspended_until;
            }
            // Stored while the channel is locked: a client that repeats the request at once finds it suspended
            // completely.
            let state = self.store_suspended();
            let result = input_required_result(&channel.questions, &state).map_err(RpcError::from);
            let result = result.map(|result| envelope::add_result_metadata(result, &self.shared.server_info));
            let text = envelope::encode_response(&channel.id, &result);
            channel.suspended_until = Some(deadline_after(self.shared.options.ask_timeout));
            // The response is about to be sent, so the client may use the id again.
            if let Some(client_requests) = &self.client_requests {
                client_requests.unregister(&channel.id);
            }
            (channel.sink.take(), text)
        };
        if let Some(sink) = sink {
            sink.finish(text, ResponseKind::Result).await;
        }
        self.channel.lock().suspended_until
    }

    /// Stores the request under a new `requestState` and returns that. The state is random, because it is all that a
    /// client needs to resume the request. When too many requests are suspended, the oldest one is cancelled: clients
    /// that never come back must not block others.
    fn store_suspended(self: &Arc<Self>) -> String {
        let mut suspended = self.shared.suspended.lock();
        while suspended.len() >= self.shared.options.max_suspended_requests.max(1) {
            suspended.remove(0).1.cancel.cancel();
        }
        let prefix = &self.shared.options.handle_prefix;
        let state = format!("{prefix}{STATE_MARK}{:032x}", rand::random::<u128>());
        suspended.push((state.clone(), self.clone()));
        state
    }

    /// Waits until the request is not suspended any more. Returns `false` when it was cancelled or its deadline passed,
    /// so that no client waits for the response.
    pub(super) async fn wait_resumed(&self) -> bool {
        loop {
            let deadline = {
                let channel = self.channel.lock();
                match channel.suspended_until {
                    None => return channel.sink.is_some(),
                    Some(deadline) => deadline,
                }
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.cancel.cancelled() => return false,
                () = sleep_until(deadline) => return false,
            }
        }
    }

    /// Removes the request from the suspended ones, so that it cannot be resumed any more. A later request with its
    /// state gets an error.
    pub(super) fn forget_suspended(&self) {
        if self.channel.lock().suspended_until.is_some() {
            self.shared.suspended.lock().retain(|(_, request)| !std::ptr::eq(request.as_ref(), self));
        }
    }
}

/// Encodes one entry of `inputRequests`.
fn input_request(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, WireError> {
    let mut request = RawObject::default();
    request.set("method", to_raw(method)?);
    if let Some(params) = params {
        request.set("params", params.to_owned());
    }
    request.to_raw()
}

/// Encodes the `input_required` result.
fn input_required_result(questions: &[ClientQuestion], state: &str) -> Result<Box<RawValue>, WireError> {
    let mut inputs = RawObject::default();
    for question in questions {
        inputs.set(&question.key, question.request.clone());
    }
    let mut result = RawObject::default();
    result.set("resultType", to_raw("input_required")?);
    result.set("inputRequests", inputs.to_raw()?);
    result.set("requestState", to_raw(state)?);
    result.to_raw()
}

/// The error for a question of a request that ended already.
pub(super) fn request_ended_error() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the request that this question belongs to has ended")
}

impl ServerShared {
    /// Resumes a suspended request if `params` contain one of our states; returns `false` otherwise. The request must
    /// repeat method, name and query of the suspended one: a state is no permission to call another tool.
    pub(super) fn resume(
        &self,
        id: &RawValue,
        method: &str,
        params: &RequestParams,
        query: &str,
        sink: &Sink,
    ) -> Result<bool, RpcError> {
        let is_local = |state: &&str| {
            state.strip_prefix(&self.options.handle_prefix).is_some_and(|rest| rest.starts_with(STATE_MARK))
        };
        let Some(state) = params.request_state.as_deref().filter(is_local) else { return Ok(false) };
        let invalid = |why: &str| RpcError::new(RpcError::INVALID_PARAMS, why);
        let responses = params
            .input_responses
            .as_deref()
            .map(|responses| RawObject::parse(responses).ok_or_else(|| invalid("`inputResponses` is not an object")));
        let responses = responses.transpose()?.unwrap_or_default();
        let request = {
            let mut suspended = self.suspended.lock();
            let index = suspended.iter().position(|(known_state, request)| {
                known_state == state
                    && request.method == method
                    && request.name == params.name
                    && request.peer.query == query
            });
            // A mismatch does not remove the entry, so the right request can still resume it.
            let unknown = || invalid("this `requestState` is unknown, has expired, or belongs to another request");
            let index = index.ok_or_else(unknown)?;
            let request = suspended[index].1.clone();
            if let Some(client_requests) = &request.client_requests {
                client_requests.register(id, &request.cancel, self.options.max_requests_per_client)?;
            }
            // A state is valid once.
            suspended.remove(index);
            request
        };
        // After the table is unlocked: `suspend` locks the channel first and the table inside it.
        let mut channel = request.channel.lock();
        channel.id = id.to_owned();
        channel.progress_token = params.progress_token.clone();
        channel.sink = Some(sink.clone());
        channel.suspended_until = None;
        // Questions without an answer, or with one that is not an object, are asked again.
        let (answered, open) = channel.questions.drain(..).partition::<Vec<_>, _>(|question| {
            responses.get(&question.key).is_some_and(|response| response.get().starts_with('{'))
        });
        // `suspend` sends them again when the task wakes.
        channel.questions = open;
        for question in answered {
            if let Some(response) = responses.get(&question.key) {
                // The service may have stopped waiting for this answer.
                let _ = question.answer.send(Ok(response.to_owned()));
            }
        }
        drop(channel);
        request.wake.notify_one();
        Ok(true)
    }
}
