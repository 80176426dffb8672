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
    exchange::{Exchange, Sink},
    feed::Last,
    params::Params,
    shared::Shared,
};
use crate::{
    connection::{after, lock},
    error::{RpcError, WireError},
    message::{RawObject, raw},
};

/// How our own states begin. Another may belong to a server behind the service, which is to see it.
const MARK: &str = "toolcrib-";

/// A question for the client, until it is answered.
#[derive(Debug)]
pub(super) struct Ask {
    key: String,
    request: Box<RawValue>,
    answer: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
}

impl Exchange {
    /// Asks, and waits for the client to come back.
    pub(super) async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let request = asked(method, params)?;
        let (answer, waiting) = oneshot::channel();
        {
            let mut way = lock(&self.way);
            if way.closed {
                return Err(over());
            }
            way.asked += 1;
            let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), way.asked);
            way.asks.push(Ask { key, request, answer });
        }
        self.stirred.notify_one();
        waiting.await.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, "the client did not come back")))
    }

    /// Puts what was asked to the client, if it waits for an answer; until when the work is held.
    pub(super) async fn hold(self: &Arc<Self>) -> Option<Instant> {
        let (sink, text) = {
            let mut way = lock(&self.way);
            way.asks.retain(|ask| !ask.answer.is_closed());
            if way.sink.is_none() || way.asks.is_empty() {
                return way.held_until;
            }
            let state = self.keep();
            let result = wanted(&way.asks, &state).map_err(RpcError::from);
            let result = result.map(|result| envelope::complete(result, &self.shared.info));
            let text = envelope::response(&way.id, &result);
            way.held_until = Some(after(self.shared.options.ask_timeout));
            if let Some(desk) = &self.desk {
                desk.leave(&way.id);
            }
            (way.sink.take(), text)
        };
        if let Some(sink) = sink {
            sink.finish(text, Last::Result).await;
        }
        lock(&self.way).held_until
    }

    /// A state nobody can guess, under which this exchange is found again. Where there are too many, the one whose client
    /// has been away longest is given up: those who never come back must not stand in the way of others.
    fn keep(self: &Arc<Self>) -> String {
        let mut held = lock(&self.shared.held);
        while held.len() >= self.shared.options.held_max.max(1) {
            held.remove(0).1.cancel.cancel();
        }
        let state = format!("{MARK}{:032x}", rand::random::<u128>());
        held.push((state.clone(), self.clone()));
        state
    }

    /// Waits until a held exchange has a client again; false when it will not.
    pub(super) async fn returned(&self) -> bool {
        loop {
            let until = {
                let way = lock(&self.way);
                match way.held_until {
                    None => return way.sink.is_some(),
                    Some(until) => until,
                }
            };
            tokio::select! {
                () = self.stirred.notified() => {}
                () = self.cancel.cancelled() => return false,
                () = sleep_until(until) => return false,
            }
        }
    }

    /// Makes sure that its client finds it no more.
    pub(super) fn forget(&self) {
        if lock(&self.way).held_until.is_some() {
            lock(&self.shared.held).retain(|(_, exchange)| !std::ptr::eq(exchange.as_ref(), self));
        }
    }
}

fn asked(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, WireError> {
    let mut request = RawObject::default();
    request.set("method", raw(method)?);
    if let Some(params) = params {
        request.set("params", params.to_owned());
    }
    request.close()
}

fn wanted(asks: &[Ask], state: &str) -> Result<Box<RawValue>, WireError> {
    let (mut inputs, mut result) = (RawObject::default(), RawObject::default());
    for ask in asks {
        inputs.set(&ask.key, ask.request.clone());
    }
    result.set("resultType", raw("input_required")?);
    result.set("inputRequests", inputs.close()?);
    result.set("requestState", raw(state)?);
    result.close()
}

pub(super) fn over() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "the request this would belong to is over")
}

impl Shared {
    /// Goes on with a held request; whether this is one of ours at all.
    pub(super) fn resume(
        &self,
        id: &RawValue,
        method: &str,
        params: &Params,
        query: &str,
        sink: &Sink,
    ) -> Result<bool, RpcError> {
        let Some(state) = params.state.as_deref().filter(|state| state.starts_with(MARK)) else { return Ok(false) };
        let invalid = |why: &str| RpcError::new(RpcError::INVALID_PARAMS, why);
        let responses = params
            .responses
            .as_deref()
            .map(|responses| RawObject::open(responses).ok_or_else(|| invalid("`inputResponses` is no object")));
        let responses = responses.transpose()?.unwrap_or_default();
        let exchange = {
            let mut held = lock(&self.held);
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
            if let Some(desk) = &exchange.desk {
                desk.enter(id, &exchange.cancel, self.options.requests_max)?;
            }
            // A state is good once.
            held.remove(place);
            exchange
        };
        let mut way = lock(&exchange.way);
        way.id = id.to_owned();
        way.progress_token = params.progress_token.clone();
        way.sink = Some(sink.clone());
        way.held_until = None;
        // What was not answered, or with nonsense, is asked again.
        let (answered, open) = way.asks.drain(..).partition::<Vec<_>, _>(|ask| {
            responses.get(&ask.key).is_some_and(|response| response.get().starts_with('{'))
        });
        way.asks = open;
        for ask in answered {
            if let Some(response) = responses.get(&ask.key) {
                let _no_longer_wanted = ask.answer.send(Ok(response.to_owned()));
            }
        }
        drop(way);
        exchange.stirred.notify_one();
        Ok(true)
    }
}
