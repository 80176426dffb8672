//! The requests of one endpoint or byte stream that wait for answers of their client, by their `requestState`.
//!
//! The table is an index: whether a request is suspended is part of its phase. Each entry belongs to a suspended
//! [`Request`], which adds and removes it under the lock of its phase. Only the oldest entry is removed here, with the
//! cancellation of its request, when the table is full.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{options::ServerOptions, request::Request};
use crate::error::RpcError;

/// Part of the states created here, after the prefix of all handles. Other states belong to a server behind the
/// service, which receives them. So relayed and local questions can be told apart without a table.
const STATE_MARK: &str = "toolcrib-";

/// Table of the suspended requests.
#[derive(Debug)]
pub(super) struct SuspendedRequests {
    /// Text with which the states of this table begin.
    state_prefix: String,
    max: usize,
    /// Oldest first.
    by_state: Mutex<Vec<(String, Arc<Request>)>>,
}

impl SuspendedRequests {
    /// Creates an empty table.
    pub(super) fn new(options: &ServerOptions) -> SuspendedRequests {
        SuspendedRequests {
            state_prefix: format!("{}{STATE_MARK}", options.handle_prefix),
            max: options.max_suspended_requests.max(1),
            by_state: Mutex::default(),
        }
    }

    /// Whether a `requestState` was created here, and not by a server behind the service.
    pub(super) fn is_local(&self, state: &str) -> bool {
        state.starts_with(&self.state_prefix)
    }

    /// Adds a request and returns its new state. The state is random, because it is all that a client needs to resume
    /// the request. When the table is full, the oldest request is cancelled: clients that never come back must not
    /// block others.
    pub(super) fn insert(&self, request: Arc<Request>) -> String {
        let state = format!("{}{:032x}", self.state_prefix, rand::random::<u128>());
        let mut by_state = self.by_state.lock();
        while by_state.len() >= self.max {
            by_state.remove(0).1.cancellation().cancel();
        }
        by_state.push((state.clone(), request));
        state
    }

    /// Returns the request with this state.
    pub(super) fn find(&self, state: &str) -> Result<Arc<Request>, RpcError> {
        let by_state = self.by_state.lock();
        let entry = by_state.iter().find(|(known, _)| known == state);
        entry.map(|(_, request)| request.clone()).ok_or_else(unknown_state)
    }

    /// Removes a state; returns whether it existed. A later request with it gets an error.
    pub(super) fn remove(&self, state: &str) -> bool {
        let mut by_state = self.by_state.lock();
        let index = by_state.iter().position(|(known, _)| known == state);
        index.map(|index| by_state.remove(index)).is_some()
    }
}

/// The error for a `requestState` that resumes no request.
pub(super) fn unknown_state() -> RpcError {
    let message = "this `requestState` is unknown, has expired, or belongs to another request";
    RpcError::new(RpcError::INVALID_PARAMS, message)
}
