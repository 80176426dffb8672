//! Limits on calls: how many a caller may make, and how many a source gets. [`CallLimiter`] applies the limits of one
//! caller, one source or one tool; [`CallerLimits`] keeps one for each caller,
//! [`ConnectorSlot`](crate::connectors::ConnectorSlot) has those of its source and its tools.
//!
//! Calls above `calls_per_minute` are refused, calls above `concurrent_calls` wait. Waiting calls are admitted in turn:
//! one of each caller, and those of one caller in their order, so that a caller with many calls does not delay the one
//! call of another by more than one of its own.
//!
//! A limiter counts and decides under a lock that is held for a moment only. Deadlines, cancellation and the order of the
//! limits are left to `call::admission`.

mod callers;
mod rate;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;
use toolcrib_core::limits::CallLimits;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::metrics::LimitedCalls;
use rate::RateBucket;

pub(crate) use callers::{CallerLimits, LimitedCaller};

/// Maximum number of calls of one caller that wait for one configured limit; further ones are refused.
const MAX_WAITING_CALLS: usize = 64;
/// Delay after which a call that `concurrent_calls` refused may be tried again. An estimate: when a call in progress ends
/// is not known.
const CONCURRENCY_RETRY_DELAY_MS: u64 = 1000;

/// Applies the limits of one caller, one source or one tool.
#[derive(Debug)]
pub(crate) struct CallLimiter {
    state: Mutex<LimiterState>,
    max_waiting_calls: usize,
}

#[derive(Debug, Default)]
struct LimiterState {
    limits: CallLimits,
    bucket: RateBucket,
    /// Calls that hold a permit.
    in_flight: u64,
    /// Waiting calls of each caller that has any, oldest first.
    queues: HashMap<Arc<str>, VecDeque<WaitingCall>>,
    /// The callers in `queues`, in the order of their next turn.
    turns: VecDeque<Arc<str>>,
    /// Number of the last call that had to wait.
    last_ticket: u64,
}

/// A call in a queue.
#[derive(Debug)]
struct WaitingCall {
    ticket: u64,
    admit: oneshot::Sender<()>,
}

/// RAII permit of a call in flight, or its place in the queue. Both end when it is dropped.
#[derive(Debug)]
pub(crate) struct CallPermit {
    limiter: Arc<CallLimiter>,
    /// Caller and ticket of a call that has not seen its admission yet.
    place: Option<(Arc<str>, u64)>,
}

/// Decision about a call that `concurrent_calls` applies to.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Send the call, and keep the permit until it has ended.
    Admitted(CallPermit),
    /// Wait until the receiver is told, then send the call.
    Waiting(CallPermit, oneshot::Receiver<()>),
    /// As many calls of the caller are waiting already as may.
    QueueFull,
}

/// Scope of a limit, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LimitScope<'a> {
    /// Calls of one caller.
    Caller,
    /// Calls to one source.
    Source(&'a SourceId),
    /// Calls of one tool, by its original name.
    Tool(&'a str),
}

impl CallLimiter {
    pub(crate) fn new(limits: CallLimits) -> CallLimiter {
        let state = Mutex::new(LimiterState { limits, ..LimiterState::default() });
        CallLimiter { state, max_waiting_calls: MAX_WAITING_CALLS }
    }

    /// Creates the limiter of a tool. It is not configured, so it refuses no call: all wait until their deadline.
    pub(crate) fn for_tool(concurrent_calls: u32) -> CallLimiter {
        let limits = CallLimits { concurrent_calls: Some(concurrent_calls), ..CallLimits::default() };
        CallLimiter { max_waiting_calls: usize::MAX, ..CallLimiter::new(limits) }
    }

    /// Replaces the limits, and admits the waiting calls that are within the new ones.
    pub(crate) fn set_limits(&self, limits: CallLimits) {
        let mut state = self.state.lock();
        state.limits = limits;
        state.admit_waiting();
    }

    /// Counts a call towards `calls_per_minute`. Fails, without counting it, if the minute's calls are used up.
    pub(crate) fn count_call(&self, scope: LimitScope<'_>, now: Instant) -> Result<()> {
        let mut state = self.state.lock();
        let Some(limit) = state.limits.calls_per_minute else { return Ok(()) };
        state.bucket.take(limit, now).map_err(|wait| {
            // Rounded up: a caller that follows it is not too early.
            let wait_ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            let wait = format_duration(std::time::Duration::from_millis(wait_ms));
            let calls = if limit == 1 { "call" } else { "calls" };
            let message = format!("more than {limit} {calls} per minute {}; try again in {wait}", scope.describe());
            let details = json!({ "by": scope.name(), "limit": "calls_per_minute", "retry_after_ms": wait_ms });
            Error::new(Code::RateLimited, message).with_details(details)
        })
    }

    /// Admits a call within `concurrent_calls`. Returns `None` for one that has to wait.
    pub(crate) fn try_start_call(self: &Arc<Self>) -> Option<CallPermit> {
        let mut state = self.state.lock();
        // Calls wait only while there is no capacity, so this one overtakes none.
        if !state.has_capacity() {
            return None;
        }
        state.in_flight += 1;
        Some(CallPermit { limiter: self.clone(), place: None })
    }

    /// Admits a call within `concurrent_calls`, or adds it to the queue of its caller.
    pub(crate) fn start_call(self: &Arc<Self>, caller: &Arc<str>) -> Admission {
        let mut state = self.state.lock();
        if state.has_capacity() {
            state.in_flight += 1;
            return Admission::Admitted(CallPermit { limiter: self.clone(), place: None });
        }
        let queue_len = state.queues.get(caller).map_or(0, VecDeque::len);
        if queue_len >= self.max_waiting_calls {
            return Admission::QueueFull;
        }
        if queue_len == 0 {
            state.turns.push_back(caller.clone());
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        let (admit, admitted) = oneshot::channel();
        state.queues.entry(caller.clone()).or_default().push_back(WaitingCall { ticket, admit });
        Admission::Waiting(CallPermit { limiter: self.clone(), place: Some((caller.clone(), ticket)) }, admitted)
    }

    /// Returns the error for a call that is refused because too many wait already.
    pub(crate) fn queue_full_error(&self, scope: LimitScope<'_>) -> Error {
        let message = format!(
            "{} in progress, the limit {}, and {} of this caller are waiting; try again later",
            self.describe_concurrency(),
            scope.describe(),
            self.max_waiting_calls
        );
        concurrency_error(scope, message)
    }

    /// Returns the error for a call whose deadline passed in the queue. `waited` is the time that it had.
    pub(crate) fn wait_timeout_error(&self, scope: LimitScope<'_>, waited: &str) -> Error {
        let message = format!(
            "{} in progress, the limit {}, and it was not the turn of this one within {waited}; \
             the tool was not called; try again",
            self.describe_concurrency(),
            scope.describe()
        );
        concurrency_error(scope, message)
    }

    fn describe_concurrency(&self) -> String {
        let limit = self.state.lock().limits.concurrent_calls.unwrap_or(CallLimits::MAX);
        if limit == 1 { "1 call is".to_owned() } else { format!("{limit} calls are") }
    }

    /// Whether the limiter would decide the same as a new one, provided that no call is in flight or waiting.
    fn is_refilled(&self, now: Instant) -> bool {
        self.state.lock().bucket.is_full(now)
    }

    /// Returns how many calls are in flight and waiting; `None` without limits.
    pub(crate) fn load(&self) -> Option<LimitedCalls> {
        let state = self.state.lock();
        let waiting = state.queues.values().map(|queue| queue.len() as u64).sum();
        (!state.limits.is_empty()).then_some(LimitedCalls { in_flight: state.in_flight, waiting })
    }
}

impl LimiterState {
    fn has_capacity(&self) -> bool {
        self.limits.concurrent_calls.is_none_or(|limit| self.in_flight < u64::from(limit))
    }

    /// Admits waiting calls while there is capacity, one of each caller in turn.
    fn admit_waiting(&mut self) {
        while self.has_capacity() {
            let Some(caller) = self.turns.pop_front() else { return };
            let Some(queue) = self.queues.get_mut(&caller) else { continue };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&caller);
            } else {
                self.turns.push_back(caller);
            }
            if let Some(call) = next {
                self.in_flight += 1;
                // Fails if the call is being dropped; its permit is released then.
                let _ = call.admit.send(());
            }
        }
    }

    /// Removes a call from its queue. Returns whether it was there; otherwise it has been admitted.
    fn leave_queue(&mut self, caller: &Arc<str>, ticket: u64) -> bool {
        let Some(queue) = self.queues.get_mut(caller) else { return false };
        let Some(position) = queue.iter().position(|call| call.ticket == ticket) else { return false };
        queue.remove(position);
        if queue.is_empty() {
            self.queues.remove(caller);
            self.turns.retain(|other| other != caller);
        }
        true
    }
}

impl CallPermit {
    /// Marks the call as admitted, after its receiver was told.
    pub(crate) fn admitted(mut self) -> CallPermit {
        self.place = None;
        self
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if let Some((caller, ticket)) = &self.place
            && state.leave_queue(caller, *ticket)
        {
            return;
        }
        state.in_flight -= 1;
        state.admit_waiting();
    }
}

impl LimitScope<'_> {
    /// Value of `by` in the details of an error. `source` is taken: it means that the source itself refused.
    fn name(self) -> &'static str {
        match self {
            LimitScope::Caller => "caller",
            LimitScope::Source(_) => "source_limit",
            LimitScope::Tool(_) => "tool_limit",
        }
    }

    /// Describes the scope as the end of a phrase.
    fn describe(self) -> String {
        match self {
            LimitScope::Caller => "of one caller".to_owned(),
            LimitScope::Source(id) => format!("of the source `{id}`"),
            LimitScope::Tool(name) => format!("of the tool `{name}`"),
        }
    }
}

fn concurrency_error(scope: LimitScope<'_>, message: String) -> Error {
    let details =
        json!({ "by": scope.name(), "limit": "concurrent_calls", "retry_after_ms": CONCURRENCY_RETRY_DELAY_MS });
    let code = match scope {
        LimitScope::Caller | LimitScope::Source(_) => Code::RateLimited,
        // Not a limit of the configuration: the tool is busy.
        LimitScope::Tool(_) => Code::ToolUnavailable,
    };
    Error::new(code, message).with_details(details)
}

#[cfg(test)]
mod tests;
