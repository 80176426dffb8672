//! What an API answered during a call, for whoever needs to know more than its result: the steps of a workflow.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use toolcrib_core::arazzo::OperationResponse;

/// Is shown every answer that counts; the last one stays.
#[derive(Clone)]
pub(crate) struct ResponseRecorder {
    last_response: Arc<Mutex<Option<OperationResponse>>>,
    /// Answers that point elsewhere are answers too, and not followed.
    pub(crate) keep_redirects: bool,
}

impl ResponseRecorder {
    pub(crate) fn new(sees_redirects: bool) -> ResponseRecorder {
        ResponseRecorder { last_response: Arc::default(), keep_redirects: sees_redirects }
    }

    pub(crate) fn record(&self, response: OperationResponse) {
        *self.lock_response() = Some(response);
    }

    /// The answer is only a part of what was seen.
    pub(crate) fn record_body(&self, body: &Value) {
        if let Some(seen) = self.lock_response().as_mut() {
            seen.body = Some(body.clone());
        }
    }

    pub(crate) fn take(&self) -> Option<OperationResponse> {
        self.lock_response().take()
    }

    fn lock_response(&self) -> MutexGuard<'_, Option<OperationResponse>> {
        self.last_response.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without the answer: what a tool said belongs in no log.
impl fmt::Debug for ResponseRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("sees_redirects", &self.keep_redirects).finish_non_exhaustive()
    }
}
