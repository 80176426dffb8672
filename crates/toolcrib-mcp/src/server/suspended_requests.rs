//! The requests of one endpoint or byte stream that wait for answers of their client, by their `requestState`.
//!
//! The table is an index: whether a request is suspended is part of its phase. Each entry belongs to a suspended
//! [`Request`], which adds and removes it under the lock of its phase. Only the oldest entry is removed here, with the
//! cancellation of its request, when the table is full.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use super::{
    options::{HandlePrefix, ServerOptions},
    request::Request,
};
use crate::{error::RpcError, message::to_raw};

/// Part of the states created here, after the prefix of all handles. Other states belong to a server behind the
/// service, which receives them. So relayed and local questions can be told apart without a table.
const STATE_MARK: &str = "toolcrib-";

/// Table of the suspended requests.
#[derive(Debug)]
pub(super) struct SuspendedRequests {
    handles: HandlePrefix,
    max: usize,
    /// Oldest first.
    by_state: Mutex<Vec<(String, Arc<Request>)>>,
}

impl SuspendedRequests {
    /// Creates an empty table.
    pub(super) fn new(options: &ServerOptions) -> SuspendedRequests {
        SuspendedRequests {
            handles: options.handles.clone(),
            max: options.max_suspended_requests.max(1),
            by_state: Mutex::default(),
        }
    }

    /// Whether a `requestState` was created here or by a related process, and not by a server behind the service.
    pub(super) fn is_local(&self, state: &str) -> bool {
        state.split_once(STATE_MARK).is_some_and(|(prefix, _)| self.handles.is_known(prefix))
    }

    /// Adds a request and returns its new state. When the table is full, the oldest request is cancelled: clients that
    /// never come back must not block others.
    pub(super) fn insert(&self, request: Arc<Request>) -> String {
        let state = self.handles.create_handle(STATE_MARK);
        let mut by_state = self.by_state.lock();
        while by_state.len() >= self.max {
            by_state.remove(0).1.cancellation().cancel();
        }
        by_state.push((state.clone(), request));
        state
    }

    /// Returns the request with this local state.
    pub(super) fn find(&self, state: &str) -> Result<Arc<Request>, RpcError> {
        let by_state = self.by_state.lock();
        let entry = by_state.iter().find(|(known, _)| known == state);
        let is_own = || state.split_once(STATE_MARK).is_some_and(|(prefix, _)| self.handles.is_own(prefix));
        let missing = || if is_own() { unknown_state() } else { lost_request() };
        entry.map(|(_, request)| request.clone()).ok_or_else(missing)
    }

    /// Removes a state; returns whether it existed. A later request with it gets an error.
    pub(super) fn remove(&self, state: &str) -> bool {
        let mut by_state = self.by_state.lock();
        let index = by_state.iter().position(|(known, _)| known == state);
        index.map(|index| by_state.remove(index)).is_some()
    }
}

/// The error for the `requestState` of a related process.
fn lost_request() -> RpcError {
    let message = "the request with this `requestState` was suspended in another process and is lost; send it again \
                   without `requestState`";
    let data = to_raw(&json!({ "retryable": true })).ok();
    RpcError { data, ..RpcError::new(RpcError::INVALID_PARAMS, message) }
}

/// The error for a `requestState` that resumes no request.
pub(super) fn unknown_state() -> RpcError {
    let message = "this `requestState` is unknown, has expired, or belongs to another request";
    RpcError::new(RpcError::INVALID_PARAMS, message)
}
