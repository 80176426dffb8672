//! State shared by all requests of one endpoint or byte stream, and the table of one client's requests and unanswered
//! questions.
//!
//! A [`ServerShared`] exists once per endpoint or byte stream, a [`ClientRequests`] once per session or byte stream;
//! stateless requests of 2026-07-28 over HTTP have none, because no second request can refer to them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde_json::{json, value::RawValue};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{McpPeer, Service, options::ServerOptions, request_state::RequestState};
use crate::{
    era::Era,
    error::RpcError,
    message::{IncomingMessage, RawObject, to_raw},
};

/// Shared state. Shutdown has three phases, each with a token: `draining`, `stopping`, `closing`. A later token never
/// fires before an earlier one in an orderly shutdown; dropping an endpoint or a stream skips to the last.
pub(super) struct ServerShared {
    pub(super) service: Arc<dyn Service>,
    pub(super) options: ServerOptions,
    /// `serverInfo` of this server, encoded once.
    pub(super) server_info: Box<RawValue>,
    /// Requests that wait for answers of their client, with their `requestState`, oldest first.
    pub(super) suspended: Mutex<Vec<(String, Arc<RequestState>)>>,
    /// Number of subscriptions per resource URI, on a byte stream, which has one client. Locked while the service is
    /// called, so that it gets subscribe and unsubscribe of one resource in order.
    pub(super) resource_subscribers: tokio::sync::Mutex<HashMap<String, usize>>,
    /// All tasks of the endpoint or stream. They end at the latest when `closing` fires.
    pub(super) tasks: TaskTracker,
    /// First phase: no new requests; streams and subscriptions end; requests in progress may finish.
    pub(super) draining: CancellationToken,
    /// Second phase: unfinished requests get [`Service::shutdown_response`].
    pub(super) stopping: CancellationToken,
    /// Third phase: everything is cancelled.
    pub(super) closing: CancellationToken,
}

impl ServerShared {
    /// Creates the shared state without any task.
    pub(super) fn new(service: Arc<dyn Service>, options: ServerOptions) -> Arc<ServerShared> {
        let server_info = to_raw(&json!({ "name": options.name, "version": options.version })).unwrap_or_default();
        Arc::new(ServerShared {
            service,
            options,
            server_info,
            suspended: Mutex::default(),
            resource_subscribers: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Starts the second phase of shutdown and waits until the unfinished requests have their responses, at most for
    /// the cleanup timeout. The caller has closed the task tracker, else the wait would not end early.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        // Tasks that take longer are cancelled in the next phase.
        let _ = timeout(self.options.cleanup_timeout, self.tasks.wait()).await;
    }
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerShared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns a peer id that is unique in this process.
pub(super) fn next_peer_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl McpPeer {
    /// Creates a peer with a new id.
    pub(super) fn new(era: Era, name: Option<String>, capabilities: Box<RawValue>, query: &str) -> McpPeer {
        McpPeer { id: next_peer_id(), era, name, capabilities, query: query.to_owned(), is_stateless: false }
    }
}

/// A client's answer to a question.
type ClientResponse = Result<Box<RawValue>, RpcError>;

/// Requests in progress and unanswered questions of one session or byte stream.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    /// Cancellation tokens of the requests in progress, by the raw JSON of their ids.
    running: Mutex<HashMap<String, CancellationToken>>,
    /// Questions to a legacy client that wait for a response, by our id.
    open_questions: Mutex<HashMap<u64, oneshot::Sender<ClientResponse>>>,
    /// Ids of questions count from 1 per client, independent of the client's own ids.
    last_question_id: AtomicU64,
}

impl ClientRequests {
    /// Registers a request. Fails when there are `max` already, or when its id is in use.
    pub(super) fn register(&self, id: &RawValue, cancel: &CancellationToken, max: usize) -> Result<(), RpcError> {
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

    /// Frees the id of a request.
    pub(super) fn unregister(&self, id: &RawValue) {
        self.running.lock().remove(id.get());
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
                    cancel.cancel();
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
