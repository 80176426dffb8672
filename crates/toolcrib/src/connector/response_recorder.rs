//! Records the HTTP response behind a tool call. The steps of a workflow evaluate expressions over status, headers and
//! body, which a tool result does not carry.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use toolcrib_workflow::OperationResponse;

/// Shared slot for the last relevant response of a call. Retried responses are not recorded.
#[derive(Clone)]
pub(crate) struct ResponseRecorder {
    last_response: Arc<Mutex<Option<OperationResponse>>>,
    /// Treats redirect responses as final instead of following them, because the step expects a redirect status.
    pub(crate) keep_redirects: bool,
}

impl ResponseRecorder {
    pub(crate) fn new(keep_redirects: bool) -> ResponseRecorder {
        ResponseRecorder { last_response: Arc::default(), keep_redirects }
    }

    /// Replaces the recorded response.
    pub(crate) fn record(&self, response: OperationResponse) {
        *self.last_response.lock() = Some(response);
    }

    /// Replaces the body: the result of a polled job is a part of its last response.
    pub(crate) fn record_body(&self, body: &Value) {
        if let Some(response) = self.last_response.lock().as_mut() {
            response.body = Some(body.clone());
        }
    }

    /// Takes the recorded response out.
    pub(crate) fn take(&self) -> Option<OperationResponse> {
        self.last_response.lock().take()
    }
}

/// Omits the response: content of tools does not belong in logs.
impl fmt::Debug for ResponseRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseRecorder").field("keep_redirects", &self.keep_redirects).finish_non_exhaustive()
    }
}
