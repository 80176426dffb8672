//! To the source: past its breaker, and back with what that says about the source. Nothing it was given in confidence
//! comes back in an error.

use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use crate::breaker::Admission;
use crate::connections::Slot;
use crate::connector::{Answer, Call, CallFailure, Request};
use crate::registry::Shared;
use crate::secret::{Confided, hide};

impl Shared {
    /// Sends a call to its source, unless that rests.
    pub(super) async fn send(&self, source: &Source, call: Call) -> Result<Answer> {
        self.permitted(&source.id)?;
        let slot = self.connections.slot(source);
        let admitted = self.admit(&slot, &source.id)?;
        let answer = slot.connector.call(call).await;
        admitted.judge(answer, source, self.options.clock.now())
    }

    /// Sends any other request to its source, unless that rests.
    pub(super) async fn send_request(&self, source: &Source, request: Request) -> Result<Box<RawValue>> {
        self.permitted(&source.id)?;
        let slot = self.connections.slot(source);
        let admitted = self.admit(&slot, &source.id)?;
        let answer = slot.connector.request(request).await;
        admitted.judge(answer, source, self.options.clock.now())
    }

    /// Text of a source, without what was given to it in confidence.
    pub(super) fn hidden(&self, id: &SourceId, text: &str) -> String {
        let source = self.now.load().sources.get(id).cloned();
        source.map_or_else(|| text.to_owned(), |source| hide(text, &source.kind))
    }

    fn admit<'a>(&self, slot: &'a Slot, id: &SourceId) -> Result<Admitted<'a>> {
        let admission = slot.breaker().admit(self.options.clock.now()).map_err(|wait| {
            let message = format!("`{id}` failed too often and rests; try again in {} s", wait.as_secs().max(1));
            Error::new(Code::ToolUnavailable, message)
                .with_details(json!({ "retry_after_ms": wait.as_millis() as u64 }))
        })?;
        Ok(Admitted { slot, admission, judged: false })
    }
}

/// A call on its way. Its caller may leave at any point, so that it says nothing must be told by dropping it.
struct Admitted<'a> {
    slot: &'a Slot,
    admission: Admission,
    judged: bool,
}

impl Admitted<'_> {
    /// Only what speaks of the source's own health moves its breaker.
    fn judge<T>(mut self, answer: Result<T, CallFailure>, source: &Source, now: Timestamp) -> Result<T> {
        self.judged = true;
        let mut breaker = self.slot.breaker();
        match &answer {
            Ok(_) | Err(CallFailure::Refused(_)) => breaker.succeeded(self.admission),
            Err(CallFailure::Lost(_)) => breaker.failed(self.admission, now),
            Err(CallFailure::Undecided(_)) => breaker.undecided(self.admission),
        }
        drop(breaker);
        answer.map_err(|failure| Confided::to(&source.kind).hide_in(failure.into_error()))
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.judged {
            self.slot.breaker().undecided(self.admission);
        }
    }
}
