//! Requests in flight: the waiting side, the state shared with the transport's writer, and cancellation on drop.
//!
//! The caller of a request may give up at any moment by dropping its future. The [`InFlightRequest`] then removes the
//! request from the table, and decides by its [`SendState`] whether the server has to be told:
//!
//! ```text
//! queued ── mark_sent ──▶ sent ── drop ──▶ `notifications/cancelled`
//!    └───── cancel ─────▶ cancelled        the writer skips the message, the server never sees it
//! ```

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{sync::oneshot, time::timeout};

use super::{ClientTransport, OutgoingRequest, WireConnection};
use crate::{
    era::Era,
    error::WireError,
    message,
    options::{NotificationHandler, ProgressHandler, RequestOptions, ServerRequestHandler},
};

/// How long a cancelled request waits until the server has the reason.
const CANCEL_REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// Entry of the connection's table of requests that wait for a response.
pub(super) struct PendingRequest {
    pub(super) response: oneshot::Sender<Result<Box<RawValue>, WireError>>,
    /// Receives the parameters of each progress notification.
    pub(super) progress: Option<ProgressHandler>,
    /// Answers requests of the server on the response stream of this request.
    pub(super) handler: Option<ServerRequestHandler>,
    /// Receives notifications on the response stream of this request.
    pub(super) on_notification: Option<NotificationHandler>,
}

/// Receives the outcome; closed without a value when the connection ends.
pub(super) type ResponseReceiver = oneshot::Receiver<Result<Box<RawValue>, WireError>>;

/// RAII guard for a request in flight. If dropped before the response, it withdraws the request, or cancels it on the
/// server if it was sent.
pub(super) struct InFlightRequest {
    pub(super) id: u64,
    connection: Arc<WireConnection>,
    pub(super) send_state: Arc<SendState>,
    /// Whether the server may be notified of a cancellation.
    cancellable: bool,
    /// Reason that the caller gave for cancelling, if any.
    cancel_reason: Option<Arc<OnceLock<String>>>,
}

impl InFlightRequest {
    /// Maps a closed response channel to the reason why the connection ended.
    pub(super) fn resolve<T>(
        &self,
        response: Result<Result<T, WireError>, oneshot::error::RecvError>,
    ) -> Result<T, WireError> {
        response.unwrap_or_else(|_| Err(self.connection.end_error(self.send_state.is_sent())))
    }

    /// Cancels the request on a legacy server over HTTP if the caller gave a reason. Called while the response stream is
    /// still open: a server may take the end of the stream for a cancellation, which would overtake the reason.
    pub(super) async fn send_cancel_reason(&self) {
        let Some(reason) = self.cancel_reason.as_ref().and_then(|reason| reason.get()) else { return };
        let ends_with_stream = matches!(self.connection.transport, ClientTransport::Http(_));
        if !ends_with_stream || self.connection.era() == Era::Modern || !self.cancellable || !self.send_state.is_sent()
        {
            return;
        }
        let Ok(text) = message::encode_cancelled(self.id, Some(reason)) else { return };
        let sending = self.connection.send_message("notifications/cancelled", text);
        if timeout(CANCEL_REASON_TIMEOUT, sending).await.is_ok_and(|sent| sent.is_ok()) {
            self.unregister(());
        }
    }

    /// Removes the request from the table, so that dropping the guard sends no cancellation, and returns `outcome`.
    pub(super) fn unregister<T>(&self, outcome: T) -> T {
        self.connection.pending.lock().remove(&self.id);
        outcome
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let unanswered = self.connection.pending.lock().remove(&self.id).is_some();
        // After the entry is removed, so that a response which arrives now is ignored. The exchange of states decides
        // the race with the writer: either it never sends the message, or the server is notified.
        let cancelled_before_sending = self.send_state.cancel();
        if unanswered && !cancelled_before_sending && self.cancellable {
            let reason = self.cancel_reason.as_ref().and_then(|reason| reason.get());
            self.connection.notify_cancelled(self.id, reason.map(String::as_str));
        }
    }
}

impl WireConnection {
    /// Assigns an id to a request and registers it for its response. Fails when the connection ended; nothing was sent
    /// then.
    pub(super) fn register_request(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
        options: &RequestOptions<'_>,
    ) -> Result<(InFlightRequest, ResponseReceiver), WireError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (response, receiver) = oneshot::channel();
        let pending = PendingRequest {
            response,
            progress: options.progress.cloned(),
            handler: options.handler.cloned(),
            on_notification: options.on_notification.cloned(),
        };
        if let Some(progress) = options.progress.filter(|_| options.as_task) {
            self.keep_task_progress(id, progress);
        }
        self.pending.lock().insert(id, pending);
        // Checked after the insertion: `end` clears the table once, and would miss a request inserted later.
        if self.is_ended() {
            self.pending.lock().remove(&id);
            return Err(self.end_error(false));
        }
        // The specification forbids cancelling `initialize`.
        let cancellable = request.method != "initialize";
        let in_flight = InFlightRequest {
            id,
            connection: self.clone(),
            send_state: Arc::default(),
            cancellable,
            cancel_reason: options.cancel_reason.cloned(),
        };
        Ok((in_flight, receiver))
    }
}

/// Whether a message was sent, agreed atomically between its caller and the transport's writer. A request that was not
/// sent can be repeated safely, whatever the tool does.
#[derive(Debug, Default)]
pub(crate) struct SendState(AtomicU8);

// States of a message. A queued one may become sent or cancelled; these two are final, except that an incomplete write
// makes a sent one queued again.
const QUEUED: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

impl SendState {
    /// Marks the message as sent, before the first byte is written. Returns `false` when the caller cancelled it and it
    /// must not be sent.
    pub(crate) fn mark_sent(&self) -> bool {
        let before = self.0.compare_exchange(QUEUED, SENT, Ordering::AcqRel, Ordering::Acquire);
        before != Err(CANCELLED)
    }

    /// Reverts [`SendState::mark_sent`] after an incomplete write, which the server cannot have acted on.
    pub(crate) fn mark_unsent(&self) {
        self.0.store(QUEUED, Ordering::Release);
    }

    /// Cancels a message that still waits in the queue. Returns `false` when it was sent already.
    pub(crate) fn cancel(&self) -> bool {
        let before = self.0.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        before != Err(SENT)
    }

    /// Whether the server may have received the message: `true` from the moment before its first byte is written.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Acquire) == SENT
    }
}
