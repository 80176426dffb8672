//! What an API answered during a call, for whoever needs to know more than its result: the steps of a workflow.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use toolcrib_core::arazzo::Response;

/// Is shown every answer that counts; the last one stays.
#[derive(Clone)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Option<Response>>>,
    /// Answers that point elsewhere are answers too, and not followed.
    pub(crate) sees_redirects: bool,
}

impl Witness {
    pub(crate) fn new(sees_redirects: bool) -> Witness {
        Witness { seen: Arc::default(), sees_redirects }
    }

    pub(crate) fn sees(&self, response: Response) {
        *self.seen() = Some(response);
    }

    /// The answer is only a part of what was seen.
    pub(crate) fn sees_body(&self, body: &Value) {
        if let Some(seen) = self.seen().as_mut() {
            seen.body = Some(body.clone());
        }
    }

    pub(crate) fn take(&self) -> Option<Response> {
        self.seen().take()
    }

    fn seen(&self) -> MutexGuard<'_, Option<Response>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without the answer: what a tool said belongs in no log.
impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("sees_redirects", &self.sees_redirects).finish_non_exhaustive()
    }
}
