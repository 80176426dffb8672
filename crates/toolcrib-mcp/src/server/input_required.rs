//! Asking in 2026-07-28: the client's request is answered with what is wanted (`input_required`) while the service's
//! work is held, and goes on when the client repeats the request with its answers and the `requestState` it was given.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    envelope,
    event_buffer::ResponseKind,
    params::RequestParams,
    request_state::{RequestState, Sink},
    shared::ServerShared,
};
use crate::{
    connection::{deadline_after, lock},
    error::{RpcError, WireError},
    message::{RawObject, to_raw},
};

/// How our own states begin. Another may belong to a server behind the service, which is to see it.
const STATE_PREFIX: &str = "toolcrib-";

/// A question for the client, until it is answered.
#[derive(Debug)]
pub(super) struct ClientQuestion {
    key: String,
    request: Box<RawValue>,
    answer: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
}

impl RequestState {
    /// Asks, and waits for the client to come back.
    pub(super) async fn ask_client(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let request = input_request(method, params)?;
        let (answer, waiting) = oneshot::channel();
        {
            let mut way = lock(&self.channel);
            if way.closed {
                return Err(request_ended_error());
            }
            way.question_count += 1;
            let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), way.question_count);
            way.questions.push(ClientQuestion { key, request, answer });
        }
        self.wake.notify_one();
        waiting.await.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, "the client did not come back")))
    }

    /// Puts what was asked to the client, if it waits for an answer; until when the work is held.
    pub(super) async fn suspend(self: &Arc<Self>) -> Option<Instant> {
        let (sink, text) = {
            let mut way = lock(&self.channel);
            way.questions.retain(|ask| !ask.answer.is_closed());
            if way.sink.is_none() || way.questions.is_empty() {
                return way.suspended_until;
            }
            let state = self.store_suspended();
            let result = input_required_result(&way.questions, &state).map_err(RpcError::from);
            let result = result.map(|result| envelope::add_result_metadata(result, &self.shared.server_info));
            let text = envelope::encode_response(&way.id, &result);
            way.suspended_until = Some(deadline_after(self.shared.options.ask_timeout));
            if let Some(desk) = &self.client_requests {
                desk.unregister(&way.id);
            }
            (way.sink.take(), text)
        };
        if let Some(sink) = sink {
            sink.finish(text, ResponseKind::Result).await;
        }
        lock(&self.channel).suspended_until
    }

    /// A state nobody can guess, under which this exchange is found again. Where there are too many, the one whose client
    /// has been away longest is given up: those who never come back must not stand in the way of others.
    fn store_suspended(self: &Arc<Self>) -> String {
        let mut held = lock(&self.shared.suspended);
        while held.len() >= self.shared.options.suspended_max.max(1) {
            held.remove(0).1.cancel.cancel();
        }
        let state = format!("{STATE_PREFIX}{:032x}", rand::random::<u128>());
        held.push((state.clone(), self.clone()));
        state
    }

    /// Waits until a held exchange has a client again; false when it will not.
    pub(super) async fn wait_resumed(&self) -> bool {
        loop {
            let until = {
                let way = lock(&self.channel);
                match way.suspended_until {
                    None => return way.sink.is_some(),
                    Some(until) => until,
                }
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.cancel.cancelled() => return false,
                () = sleep_until(until) => return false,
            }
        }
    }

    /// Makes sure that its client finds it no more.
    pub(super) fn forget_suspended(&self) {
        if lock(&self.channel).suspended_until.is_some() {
            lock(&self.shared.suspended).retain(|(_, exchange)| !std::ptr::eq(exchange.as_ref(), self));
        }
    }
}

fn input_request(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, WireError> {
    let mut request = RawObject::default();
    request.set("method", to_raw(method)?);
    if let Some(params) = params {
        request.set("params", params.to_owned());
    }
    request.to_raw()
}

fn input_required_result(asks: &[ClientQuestion], state: &str) -> Result<Box<RawValue>, WireError> {
    let (mut inputs, mut result) = (RawObject::default(), RawObject::default());
    for ask in asks {
        inputs.set(&ask.key, ask.request.clone());
    }
    result.set("resultType", to_raw("input_required")?);
    result.set("inputRequests", inputs.to_raw()?);
    result.set("requestState", to_raw(state)?);
    result.to_raw()
}

pub(super) fn request_ended_error() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the request this would belong to is over")
}

impl ServerShared {
    /// Goes on with a held request; whether this is one of ours at all.
    pub(super) fn resume(
        &self,
        id: &RawValue,
        method: &str,
        params: &RequestParams,
        query: &str,
        sink: &Sink,
    ) -> Result<bool, RpcError> {
        let Some(state) = params.request_state.as_deref().filter(|state| state.starts_with(STATE_PREFIX)) else {
            return Ok(false);
        };
        let invalid = |why: &str| RpcError::new(RpcError::INVALID_PARAMS, why);
        let responses = params
            .input_responses
            .as_deref()
            .map(|responses| RawObject::parse(responses).ok_or_else(|| invalid("`inputResponses` is no object")));
        let responses = responses.transpose()?.unwrap_or_default();
        let exchange = {
            let mut held = lock(&self.suspended);
            let place = held.iter().position(|(known, exchange)| {
                known == state
                    && exchange.method == method
                    && exchange.name == params.name
                    && exchange.peer.query == query
            });
            // One that does not fit stays for the request it belongs to.
            let unknown = || invalid("this `requestState` is unknown, has expired, or belongs to another request");
            let place = place.ok_or_else(unknown)?;
            let exchange = held[place].1.clone();
            if let Some(desk) = &exchange.client_requests {
                desk.register(id, &exchange.cancel, self.options.requests_max)?;
            }
            // A state is good once.
            held.remove(place);
            exchange
        };
        let mut way = lock(&exchange.channel);
        way.id = id.to_owned();
        way.progress_token = params.progress_token.clone();
        way.sink = Some(sink.clone());
        way.suspended_until = None;
        // What was not answered, or with nonsense, is asked again.
        let (answered, open) = way.questions.drain(..).partition::<Vec<_>, _>(|ask| {
            responses.get(&ask.key).is_some_and(|response| response.get().starts_with('{'))
        });
        way.questions = open;
        for ask in answered {
            if let Some(response) = responses.get(&ask.key) {
                let _no_longer_wanted = ask.answer.send(Ok(response.to_owned()));
            }
        }
        drop(way);
        exchange.wake.notify_one();
        Ok(true)
    }
}
