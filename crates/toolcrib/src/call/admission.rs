//! Admission of calls to their sources: the configured limits of caller and source, the concurrency limit of the tool,
//! the circuit breaker of the source, and the report of the outcome to the breaker. Errors are redacted before they leave
//! this module.
//!
//! The breaker is the last, so that no call that waits for a limit is its probe. Permits are acquired in one order:
//! caller, source, tool. A workflow has all of its own before its steps acquire theirs, which are of APIs alone, so
//! that none waits for another in a circle.
//!
//! All waits share the deadline of the call. Retries are made by the connectors, which know whether a request was sent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::{CallContext, CallDeadline, Dispatcher};
use crate::breaker::{BreakerDecision, BreakerPermit, FailedCall, NoResponseReason};
use crate::clock::{Clock, format_limit};
use crate::connector::{CallFailure, ToolCall};
use crate::connectors::ConnectorSlot;
use crate::limits::{Admission, CallLimiter, CallPermit, LimitScope, LimitedCaller};
use crate::store::ErrorSummary;

/// Bounds of the waits of a call for its limits.
pub(super) struct LimitWaits<'a> {
    pub(super) context: &'a CallContext,
    pub(super) deadline: &'a mut CallDeadline,
    /// Timeout of the source.
    pub(super) call_timeout: Duration,
}

/// RAII permits of a call within the limits of its caller and its source.
pub(super) struct LimitPermits {
    _caller: Option<CallPermit>,
    _source: Option<CallPermit>,
}

impl Dispatcher {
    /// Waits until a call is within the limits of its caller and its source. Fails with `RATE_LIMITED` if it exceeds the
    /// calls per minute of the source, if too many calls wait, or if the deadline of the call passes first.
    pub(super) async fn acquire_limit_permits(
        &self,
        caller: Option<&LimitedCaller>,
        source: Option<&Source>,
        mut waits: LimitWaits<'_>,
    ) -> Result<LimitPermits> {
        let source = source.filter(|source| !source.settings.limits.is_empty());
        // Before the waits: a call above the calls per minute is refused at once.
        let limited_source = source.map(|source| self.count_call_to_source(source)).transpose()?;
        let caller_permit = match caller {
            Some(caller) => Some(waits.wait_for(&caller.limiter, &caller.key, LimitScope::Caller).await?),
            None => None,
        };
        let source_permit = match limited_source {
            Some((id, limiter)) => {
                let key = waits.context.caller.identity().owner_key();
                Some(waits.wait_for(&limiter, &key, LimitScope::Source(id)).await?)
            }
            None => None,
        };
        Ok(LimitPermits { _caller: caller_permit, _source: source_permit })
    }

    /// Counts a call towards the calls per minute of its source. Returns the limiter for the calls in progress.
    fn count_call_to_source<'s>(&self, source: &'s Source) -> Result<(&'s SourceId, Arc<CallLimiter>)> {
        self.state.snapshot().ensure_can_contact(&source.id)?;
        let slot = self.connectors.slot(source);
        // A call that the breaker would refuse neither counts nor waits.
        fail_if_breaker_is_open(&slot, &source.id)?;
        slot.limiter.count_call(LimitScope::Source(&source.id), Instant::now())?;
        Ok((&source.id, slot.limiter.clone()))
    }

    /// Admits a call through the circuit breaker, waiting for a running probe to end.
    pub(super) async fn admit_call<'a>(
        &'a self,
        slot: &'a ConnectorSlot,
        source: &Source,
        context: &CallContext,
        deadline: &mut CallDeadline,
    ) -> Result<BreakerGuard<'a>> {
        let id = &source.id;
        // `Some` once this call has subscribed to the end of the probe.
        let mut probe_ended = None;
        loop {
            let decision = slot.breaker().admit(Instant::now());
            match decision {
                BreakerDecision::Allow(permit) => {
                    return Ok(BreakerGuard { slot, clock: &self.options.clock, permit, reported: false });
                }
                // Not waited for: the caller may have an alternative, and knows from the details when to try again.
                BreakerDecision::Reject(wait) => return Err(breaker_open_error(slot, id, wait)),
                BreakerDecision::WaitForProbe => {}
            }
            let Some(ended) = probe_ended.take() else {
                // Subscribe first, then ask the breaker once more: the probe may have ended in between.
                let mut ended = Box::pin(slot.probe_ended.notified());
                ended.as_mut().enable();
                probe_ended = Some(ended);
                continue;
            };
            tokio::select! {
                () = ended => {}
                () = context.cancel.cancelled() => return Err(CallFailure::cancelled().into_error()),
                () = tokio::time::sleep_until(deadline.at) => {
                    let message = format!("the circuit breaker of `{id}` is half-open and its probe has not finished; try again");
                    return Err(Error::new(Code::ToolUnavailable, message));
                }
            }
            *deadline = deadline.compared_with(source.settings.call_timeout());
        }
    }
}

impl LimitWaits<'_> {
    /// Waits for a permit of a limiter. `caller` is the key of the caller in its queue.
    async fn wait_for(
        &mut self,
        limiter: &Arc<CallLimiter>,
        caller: &Arc<str>,
        scope: LimitScope<'_>,
    ) -> Result<CallPermit> {
        // The fast path takes no timer. Dropping the permit leaves the queue.
        let (permit, admitted) = match limiter.start_call(caller) {
            Admission::Admitted(permit) => return Ok(permit),
            Admission::Waiting(permit, admitted) => (permit, admitted),
            Admission::QueueFull => return Err(limiter.queue_full_error(scope)),
        };
        tokio::select! {
            // `biased`: an admitted call is sent, even if its deadline passes at the same moment.
            biased;
            _ = admitted => {}
            () = self.context.cancel.cancelled() => return Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep_until(self.deadline.at) => {
                return Err(limiter.wait_timeout_error(scope, &format_limit(self.deadline.limit)));
            }
        }
        *self.deadline = self.deadline.compared_with(self.call_timeout);
        Ok(permit.admitted())
    }
}

/// Fails with `TOOL_UNAVAILABLE` while the breaker of a source refuses all calls.
fn fail_if_breaker_is_open(slot: &ConnectorSlot, id: &SourceId) -> Result<()> {
    let open_time = slot.breaker().remaining_open_time(Instant::now());
    open_time.map_or(Ok(()), |wait| Err(breaker_open_error(slot, id, wait)))
}

/// Returns `TOOL_UNAVAILABLE` with the time until the next probe. Details: `{"retry_after_ms": 1000}`. The message
/// rounds up to seconds, so that a caller that follows it is not too early.
fn breaker_open_error(slot: &ConnectorSlot, id: &SourceId, wait: Duration) -> Error {
    let wait_ms = wait.as_millis() as u64;
    let failures = slot.breaker().failures();
    let seconds = wait_ms.div_ceil(1000);
    let message =
        format!("the circuit breaker of `{id}` is open after {failures} failures in a row; try again in {seconds} s");
    Error::new(Code::ToolUnavailable, message).with_details(json!({ "retry_after_ms": wait_ms }))
}

/// Waits until a call is within the concurrency limit of its tool. The caller holds the permit until the call has ended, so
/// a tool that hangs keeps its own permits only.
pub(super) async fn acquire_tool_permit(
    slot: &ConnectorSlot,
    source: &Source,
    call: &mut ToolCall<'_>,
) -> Result<CallPermit> {
    let limiter = slot.tool_limiter(call.tool);
    if let Some(permit) = limiter.try_start_call() {
        return Ok(permit);
    }
    // With the breaker open the call would fail after the wait: fail at once instead.
    fail_if_breaker_is_open(slot, &source.id)?;
    let caller = call.context.caller.identity().owner_key();
    let call_timeout = source.settings.call_timeout();
    let mut waits = LimitWaits { context: call.context, deadline: &mut call.deadline, call_timeout };
    waits.wait_for(&limiter, &caller, LimitScope::Tool(call.tool)).await
}

/// RAII guard for a call admitted by the circuit breaker. If dropped before `report`, because the caller disconnected,
/// the call is recorded as inconclusive.
pub(super) struct BreakerGuard<'a> {
    slot: &'a ConnectorSlot,
    clock: &'a Clock,
    permit: BreakerPermit,
    /// Whether the outcome has been reported.
    reported: bool,
}

impl BreakerGuard<'_> {
    /// Reports the outcome to the breaker and redacts errors. Only outcomes that say something about the source's
    /// health move the breaker. `tool` is the called one; `None` for other requests.
    pub(super) fn report<T>(mut self, tool: Option<&str>, result: Result<T, CallFailure>) -> Result<T> {
        self.reported = true;
        let now = Instant::now();
        // First of all: the breaker keeps the error for display.
        let result = result.map_err(|failure| failure.map_error(|error| self.slot.redactor().redact_error(error)));
        let record_no_response = |reason, error: &Error| {
            let failure = FailedCall { tool: tool.map(str::to_owned), error: ErrorSummary::from_error(error) };
            self.slot.breaker().record_no_response(self.permit, reason, failure, now, self.clock.now());
        };
        let mut closed = false;
        match &result {
            Ok(_) => closed = self.slot.breaker().record_success(now),
            // The source answered, only not with a result.
            Err(CallFailure::Rejected(_)) => self.slot.breaker().record_rejection(self.permit),
            Err(CallFailure::Unavailable(error)) => record_no_response(NoResponseReason::Disconnected, error),
            Err(CallFailure::TimedOut(error)) => record_no_response(NoResponseReason::TimedOut, error),
            // Cancelled, or the caller gave less time than the source may take.
            Err(CallFailure::Inconclusive(_)) => self.slot.breaker().record_inconclusive(self.permit),
        }
        // Wake the calls that wait for the probe, or for the breaker to close.
        if closed || self.permit.is_probe() {
            self.slot.probe_ended.notify_waiters();
        }
        result.map_err(CallFailure::into_error)
    }
}

impl Drop for BreakerGuard<'_> {
    fn drop(&mut self) {
        if !self.reported {
            self.slot.breaker().record_inconclusive(self.permit);
            if self.permit.is_probe() {
                self.slot.probe_ended.notify_waiters();
            }
        }
    }
}
