//! A call on its way to its source: past the limit of its tool and the source's breaker, and back with what that says
//! about the source. No secret of the source comes back in an error.

use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::redact_result;
use crate::breaker::{BreakerDecision, BreakerPermit, NoResponseReason};
use crate::clock::{Clock, deadline_after};
use crate::connections::{ConnectorSlot, MAX_CALLS_PER_TOOL};
use crate::connector::{CallContext, CallFailure, SourceRequest, ToolCall, ToolResult};
use crate::registry::RegistryInner;
use crate::store::ErrorSummary;

impl RegistryInner {
    /// Sends a call to its source.
    pub(super) async fn send_call(&self, source: &Source, mut call: ToolCall) -> Result<ToolResult> {
        self.ensure_can_contact(&source.id)?;
        let slot = self.connectors.slot(source);
        let deadline = deadline_after(call.context.timeout);
        let _permit = acquire_call_permit(&slot, &source.id, &mut call, deadline).await?;
        let admitted = self.admit_call(&slot, &source.id, &mut call.context, deadline).await?;
        let answer = slot.connector.call(call).await;
        let answer = admitted.report(answer)?;
        if answer.layout.is_error { redact_result(answer, slot.redactor()).await } else { Ok(answer) }
    }

    /// Sends any other request to its source.
    pub(super) async fn send_request(&self, source: &Source, mut request: SourceRequest) -> Result<Box<RawValue>> {
        self.ensure_can_contact(&source.id)?;
        let slot = self.connectors.slot(source);
        let deadline = deadline_after(request.context.timeout);
        let admitted = self.admit_call(&slot, &source.id, &mut request.context, deadline).await?;
        let answer = slot.connector.request(request).await;
        admitted.report(answer)
    }

    /// Lets a call through, or makes it wait for the probe that is on its way. `terms` are left with the time that
    /// remains.
    async fn admit_call<'a>(
        &'a self,
        slot: &'a ConnectorSlot,
        id: &SourceId,
        terms: &mut CallContext,
        deadline: Instant,
    ) -> Result<BreakerGuard<'a>> {
        let mut probe_ends = None;
        loop {
            let admission = slot.breaker().admit(Instant::now());
            match admission {
                BreakerDecision::Allow(ticket) => {
                    return Ok(BreakerGuard { slot, clock: &self.options.clock, permit: ticket, reported: false });
                }
                BreakerDecision::Reject(wait) => return Err(breaker_open_error(slot, id, wait)),
                BreakerDecision::WaitForProbe => {}
            }
            let Some(ended) = probe_ends.take() else {
                // Its end is noticed from here on; it may have come just before, so the breaker is asked once more.
                let mut ended = Box::pin(slot.probe_ended.notified());
                ended.as_mut().enable();
                probe_ends = Some(ended);
                continue;
            };
            tokio::select! {
                () = ended => {}
                () = terms.cancel.cancelled() => return Err(CallFailure::cancelled().into_error()),
                () = tokio::time::sleep_until(deadline) => {
                    let message = format!("`{id}` failed too often, and the probe that tries it again has not ended");
                    return Err(Error::new(Code::ToolUnavailable, message));
                }
            }
            terms.timeout = deadline.saturating_duration_since(Instant::now());
        }
    }
}

fn breaker_open_error(slot: &ConnectorSlot, id: &SourceId, wait: Duration) -> Error {
    let wait_ms = wait.as_millis() as u64;
    let failures = slot.breaker().failures();
    let seconds = wait_ms.div_ceil(1000);
    let message =
        format!("the circuit breaker of `{id}` is open after {failures} failures in a row; try again in {seconds} s");
    Error::new(Code::ToolUnavailable, message).with_details(json!({ "retry_after_ms": wait_ms }))
}

/// A place among the calls of a tool. The call is left with the time that remains.
async fn acquire_call_permit(
    slot: &ConnectorSlot,
    id: &SourceId,
    call: &mut ToolCall,
    deadline: Instant,
) -> Result<OwnedSemaphorePermit> {
    let permits = slot.call_permits(&call.tool);
    if let Ok(permit) = permits.clone().try_acquire_owned() {
        return Ok(permit);
    }
    // A source that is paused does not make its callers wait for their turn first.
    let pause = slot.breaker().remaining_open_time(Instant::now());
    if let Some(wait) = pause {
        return Err(breaker_open_error(slot, id, wait));
    }
    let busy = || {
        let waited = format_duration(call.context.timeout);
        let message = format!(
            "{MAX_CALLS_PER_TOOL} calls of `{}` are in flight already, and none ended within {waited}; try again",
            call.tool
        );
        Error::new(Code::ToolUnavailable, message)
    };
    let permit = tokio::select! {
        permit = permits.acquire_owned() => permit.map_err(|_| busy())?,
        () = call.context.cancel.cancelled() => return Err(CallFailure::cancelled().into_error()),
        () = tokio::time::sleep_until(deadline) => return Err(busy()),
    };
    call.context.timeout = deadline.saturating_duration_since(Instant::now());
    Ok(permit)
}

/// A call that was let through. When its caller leaves, it is dropped and says nothing about the source.
struct BreakerGuard<'a> {
    slot: &'a ConnectorSlot,
    clock: &'a Clock,
    permit: BreakerPermit,
    reported: bool,
}

impl BreakerGuard<'_> {
    /// Only what speaks of the source's own health moves its breaker.
    fn report<T>(mut self, answer: Result<T, CallFailure>) -> Result<T> {
        self.reported = true;
        let now = Instant::now();
        let answer = answer.map_err(|failure| failure.map_error(|error| self.slot.redactor().redact_error(error)));
        let unanswered = |how, error: &Error| {
            self.slot.breaker().record_failure(
                self.permit,
                how,
                ErrorSummary::from_error(error),
                now,
                self.clock.now(),
            );
        };
        let mut closed = false;
        match &answer {
            Ok(_) => closed = self.slot.breaker().record_success(now),
            Err(CallFailure::Rejected(_)) => self.slot.breaker().record_rejection(self.permit),
            Err(CallFailure::Unavailable(error)) => unanswered(NoResponseReason::Disconnected, error),
            Err(CallFailure::TimedOut(error)) => unanswered(NoResponseReason::TimedOut, error),
            Err(CallFailure::Inconclusive(_)) => self.slot.breaker().record_inconclusive(self.permit),
        }
        if closed || self.permit.is_probe() {
            self.slot.probe_ended.notify_waiters();
        }
        answer.map_err(CallFailure::into_error)
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
