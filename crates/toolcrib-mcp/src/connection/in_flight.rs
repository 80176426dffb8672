//! A request in flight: who waits for it, whether it has left, and that the server hears when nobody waits any more.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::{OutgoingRequest, RequestContext, WireConnection, lock};
use crate::{
    error::WireError,
    options::{NotificationHandler, ServerRequestHandler},
};

pub(super) struct PendingRequest {
    pub(super) response: oneshot::Sender<Result<Box<RawValue>, WireError>>,
    pub(super) progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// Who answers what is asked, and is told what is said, on the stream of its answer.
    pub(super) handler: Option<ServerRequestHandler>,
    pub(super) on_notification: Option<NotificationHandler>,
}

pub(super) type ResponseReceiver = oneshot::Receiver<Result<Box<RawValue>, WireError>>;

/// A request in flight. Dropped before its answer, it tells the server that nobody waits any more.
pub(super) struct InFlightRequest {
    pub(super) id: u64,
    connection: Arc<WireConnection>,
    pub(super) send_state: Arc<SendState>,
    cancellable: bool,
}

impl InFlightRequest {
    pub(super) fn resolve<T>(
        &self,
        answer: Result<Result<T, WireError>, oneshot::error::RecvError>,
    ) -> Result<T, WireError> {
        answer.unwrap_or_else(|_| Err(self.connection.end_error(self.send_state.is_sent())))
    }

    pub(super) fn unregister<T>(&self, outcome: T) -> T {
        lock(&self.connection.pending).remove(&self.id);
        outcome
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let unanswered = lock(&self.connection.pending).remove(&self.id).is_some();
        let withdrawn = self.send_state.cancel();
        if unanswered && !withdrawn && self.cancellable {
            self.connection.notify_cancelled(self.id);
        }
    }
}

impl WireConnection {
    pub(super) fn register_request(
        self: &Arc<Self>,
        ask: &OutgoingRequest<'_>,
        terms: &RequestContext,
    ) -> Result<(InFlightRequest, ResponseReceiver), WireError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let (progress, handler, heard) = (terms.progress.clone(), terms.handler.clone(), terms.on_notification.clone());
        lock(&self.pending).insert(id, PendingRequest { response: answer, progress, handler, on_notification: heard });
        // Looked at after inserting: `end` clears what it finds.
        if self.is_ended() {
            lock(&self.pending).remove(&id);
            return Err(self.end_error(false));
        }
        // The specification forbids to cancel `initialize`.
        let cancellable = ask.method != "initialize";
        Ok((InFlightRequest { id, connection: self.clone(), send_state: Arc::default(), cancellable }, receiver))
    }
}

/// Whether a message has left, agreed between who waits for its answer and who writes it.
#[derive(Debug, Default)]
pub(crate) struct SendState(AtomicU8);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

impl SendState {
    /// False when it was withdrawn and must not be sent.
    pub(crate) fn mark_sent(&self) -> bool {
        let before = self.0.compare_exchange(QUEUED, SENT, Ordering::AcqRel, Ordering::Acquire);
        before != Err(CANCELLED)
    }

    /// It did not get through whole, so nobody has acted on it.
    pub(crate) fn mark_unsent(&self) {
        self.0.store(QUEUED, Ordering::Release);
    }

    /// False when it was too late.
    pub(crate) fn cancel(&self) -> bool {
        let before = self.0.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        before != Err(SENT)
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Acquire) == SENT
    }
}
