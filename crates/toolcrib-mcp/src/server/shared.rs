//! What all requests of one endpoint or stream share, and the desk of one client: which of its requests run, and what
//! it was asked.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{json, value::RawValue};
use tokio::{sync::oneshot, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{McpPeer, Service, options::ServerOptions, request_state::RequestState};
use crate::{
    connection::lock,
    era::Era,
    error::RpcError,
    message::{IncomingMessage, RawObject, to_raw},
};

pub(super) struct ServerShared {
    pub(super) service: Arc<dyn Service>,
    pub(super) options: ServerOptions,
    /// What we call ourselves, as results say it.
    pub(super) server_info: Box<RawValue>,
    /// Requests that wait for their client to come back, by their `requestState`, oldest first.
    pub(super) suspended: Mutex<Vec<(String, Arc<RequestState>)>>,
    /// How many subscriptions hold a resource, on a stream, which has one client. Locked while the service is asked, so
    /// that it hears of beginning and end in their order.
    pub(super) resource_subscribers: tokio::sync::Mutex<HashMap<String, usize>>,
    /// Every task there is. They all end with `closing`.
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
    /// Fires first, for what has something to say at its end.
    pub(super) draining: CancellationToken,
    /// Fires between the two: requests in progress get their response now, finished or not.
    pub(super) stopping: CancellationToken,
}

impl ServerShared {
    pub(super) fn new(service: Arc<dyn Service>, options: ServerOptions) -> Arc<ServerShared> {
        let info = to_raw(&json!({ "name": options.name, "version": options.version })).unwrap_or_default();
        let (held, listened, tasks) = (Mutex::default(), tokio::sync::Mutex::default(), TaskTracker::new());
        Arc::new(ServerShared {
            service,
            options,
            server_info: info,
            suspended: held,
            resource_subscribers: listened,
            tasks,
            closing: CancellationToken::new(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Responds to the requests in progress that they cannot be finished.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        let _in_time = timeout(self.options.cleanup_timeout, self.tasks.wait()).await;
    }
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A number no other client of this process has.
pub(super) fn next_peer_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl McpPeer {
    pub(super) fn new(era: Era, name: Option<String>, capabilities: Box<RawValue>, query: &str) -> McpPeer {
        McpPeer { id: next_peer_id(), era, name, capabilities, query: query.to_owned(), is_stateless: false }
    }
}

type ClientResponse = Result<Box<RawValue>, RpcError>;

/// One client's requests in flight and unanswered questions.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    running: Mutex<HashMap<String, CancellationToken>>,
    open_questions: Mutex<HashMap<u64, oneshot::Sender<ClientResponse>>>,
    last_question_id: AtomicU64,
}

impl ClientRequests {
    /// Enters a request; refuses one too many, and a second one of the same id.
    pub(super) fn register(&self, id: &RawValue, cancel: &CancellationToken, bound: usize) -> Result<(), RpcError> {
        let mut running = lock(&self.running);
        if running.len() >= bound {
            return Err(RpcError::new(RpcError::INTERNAL, format!("more than {bound} requests at once")));
        }
        if running.contains_key(id.get()) {
            let message = format!("the id {} is in use by a request that is not answered yet", id.get());
            return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
        }
        running.insert(id.get().to_owned(), cancel.clone());
        Ok(())
    }

    pub(super) fn unregister(&self, id: &RawValue) {
        lock(&self.running).remove(id.get());
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.running).is_empty()
    }

    /// Takes in what needs no answer: requests taken back, and answers to questions. The rest is of no interest.
    pub(super) fn handle_message(&self, incoming: IncomingMessage<'_>) {
        match incoming {
            IncomingMessage::Notification { method, params } if method == "notifications/cancelled" => {
                let params = params.and_then(RawObject::parse).unwrap_or_default();
                let running = lock(&self.running);
                if let Some(cancel) = params.get("requestId").and_then(|id| running.get(id.get())) {
                    cancel.cancel();
                }
            }
            IncomingMessage::Response { id, outcome } => {
                if let Some(waiting) = lock(&self.open_questions).remove(&id) {
                    let _nobody_waits = waiting.send(outcome.map(ToOwned::to_owned));
                }
            }
            IncomingMessage::Notification { .. }
            | IncomingMessage::ErrorWithoutId(_)
            | IncomingMessage::Request { .. } => {}
        }
    }

    /// A new question's id, and where its answer will come.
    pub(super) fn open_question(&self) -> (u64, oneshot::Receiver<ClientResponse>) {
        let id = self.last_question_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        lock(&self.open_questions).insert(id, sender);
        (id, receiver)
    }

    /// Whether that question was still open.
    pub(super) fn close_question(&self, id: u64) -> bool {
        lock(&self.open_questions).remove(&id).is_some()
    }
}
