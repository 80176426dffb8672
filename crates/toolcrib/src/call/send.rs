//! A call on its way to its source: past the limit of its tool and the source's breaker, and back with what that says
//! about the source. No secret of the source comes back in an error.

use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::redacted;
use crate::breaker::{Admission, Ticket, Unanswered};
use crate::clock::{Clock, after};
use crate::connections::{MAX_CALLS_PER_TOOL, Slot};
use crate::connector::{Answer, Call, CallFailure, Request, Terms};
use crate::registry::Shared;
use crate::store::Failure;

impl Shared {
    /// Sends a call to its source.
    pub(super) async fn send(&self, source: &Source, mut call: Call) -> Result<Answer> {
        self.permitted(&source.id)?;
        let slot = self.connections.slot(source);
        let deadline = after(call.terms.timeout);
        let _permit = permit(&slot, &source.id, &mut call, deadline).await?;
        let admitted = self.admit(&slot, &source.id, &mut call.terms, deadline).await?;
        let answer = slot.connector.call(call).await;
        let answer = admitted.judge(answer)?;
        if answer.layout.is_error { redacted(answer, slot.redactor()).await } else { Ok(answer) }
    }

    /// Sends any other request to its source.
    pub(super) async fn send_request(&self, source: &Source, mut request: Request) -> Result<Box<RawValue>> {
        self.permitted(&source.id)?;
        let slot = self.connections.slot(source);
        let deadline = after(request.terms.timeout);
        let admitted = self.admit(&slot, &source.id, &mut request.terms, deadline).await?;
        let answer = slot.connector.request(request).await;
        admitted.judge(answer)
    }

    /// Lets a call through, or makes it wait for the probe that is on its way. `terms` are left with the time that
    /// remains.
    async fn admit<'a>(
        &'a self,
        slot: &'a Slot,
        id: &SourceId,
        terms: &mut Terms,
        deadline: Instant,
    ) -> Result<Admitted<'a>> {
        let mut probe_ends = None;
        loop {
            let admission = slot.breaker().admit(Instant::now());
            match admission {
                Admission::Admitted(ticket) => {
                    return Ok(Admitted { slot, clock: &self.options.clock, ticket, judged: false });
                }
                Admission::Refused(wait) => return Err(paused(slot, id, wait)),
                Admission::AwaitProbe => {}
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

fn paused(slot: &Slot, id: &SourceId, wait: Duration) -> Error {
    let wait_ms = wait.as_millis() as u64;
    let failures = slot.breaker().failures();
    let seconds = wait_ms.div_ceil(1000);
    let message =
        format!("the circuit breaker of `{id}` is open after {failures} failures in a row; try again in {seconds} s");
    Error::new(Code::ToolUnavailable, message).with_details(json!({ "retry_after_ms": wait_ms }))
}

/// A place among the calls of a tool. The call is left with the time that remains.
async fn permit(slot: &Slot, id: &SourceId, call: &mut Call, deadline: Instant) -> Result<OwnedSemaphorePermit> {
    let permits = slot.permits(&call.tool);
    if let Ok(permit) = permits.clone().try_acquire_owned() {
        return Ok(permit);
    }
    // A source that is paused does not make its callers wait for their turn first.
    let pause = slot.breaker().paused_for(Instant::now());
    if let Some(wait) = pause {
        return Err(paused(slot, id, wait));
    }
    let busy = || {
        let waited = format_duration(call.terms.timeout);
        let message = format!(
            "{MAX_CALLS_PER_TOOL} calls of `{}` are in flight already, and none ended within {waited}; try again",
            call.tool
        );
        Error::new(Code::ToolUnavailable, message)
    };
    let permit = tokio::select! {
        permit = permits.acquire_owned() => permit.map_err(|_| busy())?,
        () = call.terms.cancel.cancelled() => return Err(CallFailure::cancelled().into_error()),
        () = tokio::time::sleep_until(deadline) => return Err(busy()),
    };
    call.terms.timeout = deadline.saturating_duration_since(Instant::now());
    Ok(permit)
}

/// A call that was let through. When its caller leaves, it is dropped and says nothing about the source.
struct Admitted<'a> {
    slot: &'a Slot,
    clock: &'a Clock,
    ticket: Ticket,
    judged: bool,
}

impl Admitted<'_> {
    /// Only what speaks of the source's own health moves its breaker.
    fn judge<T>(mut self, answer: Result<T, CallFailure>) -> Result<T> {
        self.judged = true;
        let now = Instant::now();
        let answer = answer.map_err(|failure| failure.map(|error| self.slot.redactor().redact_error(error)));
        let unanswered = |how, error: &Error| {
            self.slot.breaker().failed(self.ticket, how, Failure::of(error), now, self.clock.now());
        };
        let mut closed = false;
        match &answer {
            Ok(_) => closed = self.slot.breaker().succeeded(now),
            Err(CallFailure::Refused(_)) => self.slot.breaker().refused(self.ticket),
            Err(CallFailure::Lost(error)) => unanswered(Unanswered::Disconnected, error),
            Err(CallFailure::Late(error)) => unanswered(Unanswered::TimedOut, error),
            Err(CallFailure::Undecided(_)) => self.slot.breaker().undecided(self.ticket),
        }
        if closed || self.ticket.is_probe() {
            self.slot.probe_ended.notify_waiters();
        }
        answer.map_err(CallFailure::into_error)
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.judged {
            self.slot.breaker().undecided(self.ticket);
            if self.ticket.is_probe() {
                self.slot.probe_ended.notify_waiters();
            }
        }
    }
}
