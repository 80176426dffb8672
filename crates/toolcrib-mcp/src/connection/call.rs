//! A request in flight: who waits for it, whether it has left, and that the server hears when nobody waits any more.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::{Ask, Connection, Terms, lock};
use crate::{
    error::WireError,
    options::{Handler, Heard},
};

pub(super) struct Pending {
    pub(super) answer: oneshot::Sender<Result<Box<RawValue>, WireError>>,
    pub(super) progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// Who answers what is asked, and is told what is said, on the stream of its answer.
    pub(super) handler: Option<Handler>,
    pub(super) heard: Option<Heard>,
}

pub(super) type Receiver = oneshot::Receiver<Result<Box<RawValue>, WireError>>;

/// A request in flight. Dropped before its answer, it tells the server that nobody waits any more.
pub(super) struct Call {
    pub(super) id: u64,
    connection: Arc<Connection>,
    pub(super) ticket: Arc<Ticket>,
    cancellable: bool,
}

impl Call {
    pub(super) fn settle<T>(
        &self,
        answer: Result<Result<T, WireError>, oneshot::error::RecvError>,
    ) -> Result<T, WireError> {
        answer.unwrap_or_else(|_| Err(self.connection.ended_because(self.ticket.departed())))
    }

    pub(super) fn drop_quietly<T>(&self, outcome: T) -> T {
        lock(&self.connection.pending).remove(&self.id);
        outcome
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let unanswered = lock(&self.connection.pending).remove(&self.id).is_some();
        let withdrawn = self.ticket.withdraw();
        if unanswered && !withdrawn && self.cancellable {
            self.connection.tell_cancelled(self.id);
        }
    }
}

impl Connection {
    pub(super) fn register(self: &Arc<Self>, ask: &Ask<'_>, terms: &Terms) -> Result<(Call, Receiver), WireError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let (progress, handler, heard) = (terms.progress.clone(), terms.handler.clone(), terms.heard.clone());
        lock(&self.pending).insert(id, Pending { answer, progress, handler, heard });
        // Looked at after inserting: `end` clears what it finds.
        if self.is_ended() {
            lock(&self.pending).remove(&id);
            return Err(self.ended_because(false));
        }
        // The specification forbids to cancel `initialize`.
        let cancellable = ask.method != "initialize";
        Ok((Call { id, connection: self.clone(), ticket: Arc::default(), cancellable }, receiver))
    }
}

/// Whether a message has left, agreed between who waits for its answer and who writes it.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const DEPARTED: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Ticket {
    /// False when it was withdrawn and must not be sent.
    pub(crate) fn depart(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, DEPARTED, Ordering::AcqRel, Ordering::Acquire);
        before != Err(WITHDRAWN)
    }

    /// It did not get through whole, so nobody has acted on it.
    pub(crate) fn bounce(&self) {
        self.0.store(WAITING, Ordering::Release);
    }

    /// False when it was too late.
    pub(crate) fn withdraw(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        before != Err(DEPARTED)
    }

    pub(crate) fn departed(&self) -> bool {
        self.0.load(Ordering::Acquire) == DEPARTED
    }
}
