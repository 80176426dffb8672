//! The requests in progress of one client by their ids, and the questions that a legacy client has not answered.
//!
//! A [`ClientRequests`] exists once per session or byte stream. Stateless requests of 2026-07-28 over HTTP have none,
//! because no second request can refer to them.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{RpcError, sanitize_excerpt},
    message::{IncomingMessage, RawObject},
};

/// A client's answer to a question.
pub(super) type ClientResponse = Result<Box<RawValue>, RpcError>;

/// Cancellation of a request by its client.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancellation {
    pub(super) token: CancellationToken,
    /// The client's reason, set before the token fires.
    pub(super) reason: Arc<OnceLock<String>>,
}

/// Requests in progress and unanswered questions of one session or byte stream.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    /// Requests in progress, by the raw JSON of their ids.
    running: Mutex<HashMap<String, Cancellation>>,
    /// Questions to a legacy client that wait for a response, by our id.
    open_questions: Mutex<HashMap<u64, oneshot::Sender<ClientResponse>>>,
    /// Ids of questions count from 1 per client, independent of the client's own ids.
    last_question_id: AtomicU64,
}

/// JSON-RPC id of a request in progress. RAII guard: dropping it frees the id for another request of the client.
#[derive(Debug)]
pub(super) struct RequestId {
    value: Box<RawValue>,
    /// `None` for a stateless client.
    registered_in: Option<Arc<ClientRequests>>,
}

impl RequestId {
    /// Registers the id of a request, so that the client can cancel it. Fails when the client has `max` requests
    /// already, or when the id is in use.
    pub(super) fn register(
        value: Box<RawValue>,
        client_requests: Option<&Arc<ClientRequests>>,
        cancel: &Cancellation,
        max: usize,
    ) -> Result<RequestId, RpcError> {
        if let Some(client_requests) = client_requests {
            client_requests.register(&value, cancel, max)?;
        }
        Ok(RequestId { value, registered_in: client_requests.cloned() })
    }

    /// Returns the id as the client sent it.
    pub(super) fn value(&self) -> &RawValue {
        &self.value
    }
}

impl Drop for RequestId {
    fn drop(&mut self) {
        if let Some(client_requests) = &self.registered_in {
            client_requests.running.lock().remove(self.value.get());
        }
    }
}

impl ClientRequests {
    fn register(&self, id: &RawValue, cancel: &Cancellation, max: usize) -> Result<(), RpcError> {
        let mut running = self.running.lock();
        if running.len() >= max {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {max} requests at once")));
        }
        if running.contains_key(id.get()) {
            // A second request under the same id could be neither cancelled nor answered unambiguously.
            let message = format!("the id {} is in use by another request", id.get());
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        running.insert(id.get().to_owned(), cancel.clone());
        Ok(())
    }

    /// Whether no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.running.lock().is_empty()
    }

    /// Handles a message that gets no response: a cancellation, or the answer to a question. Others are ignored.
    pub(super) fn handle_message(&self, incoming: IncomingMessage<'_>) {
        match incoming {
            IncomingMessage::Notification { method, params } if method == "notifications/cancelled" => {
                let params = params.and_then(RawObject::parse).unwrap_or_default();
                let running = self.running.lock();
                // Compared as raw JSON, like the keys of the table. An unknown id is ignored: the request may have
                // ended just now.
                if let Some(cancel) = params.get("requestId").and_then(|id| running.get(id.get())) {
                    if let Some(reason) = params.get_string("reason") {
                        // Set once: a repeated cancellation does not change it.
                        let _ = cancel.reason.set(sanitize_excerpt(&reason));
                    }
                    cancel.token.cancel();
                }
            }
            IncomingMessage::Response { id, outcome } => {
                if let Some(question) = self.open_questions.lock().remove(&id) {
                    // The service may have stopped waiting just now.
                    let _ = question.send(outcome.map(ToOwned::to_owned));
                }
            }
            IncomingMessage::Notification { .. }
            | IncomingMessage::ErrorWithoutId(_)
            | IncomingMessage::Request { .. } => {}
        }
    }

    /// Registers a question; returns its id and the receiver of the answer.
    pub(super) fn open_question(&self) -> (u64, oneshot::Receiver<ClientResponse>) {
        let id = self.last_question_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        self.open_questions.lock().insert(id, sender);
        (id, receiver)
    }

    /// Removes a question; returns whether it was still unanswered.
    pub(super) fn close_question(&self, id: u64) -> bool {
        self.open_questions.lock().remove(&id).is_some()
    }
}
