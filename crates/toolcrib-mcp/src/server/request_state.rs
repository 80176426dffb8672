//! State of one client request from its arrival to its response: the channel to the client, cancellation, and the
//! questions it puts to the client.
//!
//! [`super::dispatch`] drives the request, [`super::input_required`] suspends and resumes it, and the service reaches
//! the client through [`ClientHandle`](super::ClientHandle). All three share this state.
//!
//! Nothing may follow the response. The sink is therefore taken out of the channel, under its lock, before the response
//! is sent; `try_send` holds the lock while it sends, and `send` is awaited by the work that produces the response.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    McpPeer,
    client_requests::ClientRequests,
    envelope,
    event_buffer::{EventBuffer, MessagePriority, ResponseKind},
    input_required::ClientQuestion,
    shared::ServerShared,
    sink::Sink,
};
use crate::{
    era::Era,
    error::{RpcError, WireError},
};

/// Shared by the task of the request and by the handles that the service holds.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) shared: Arc<ServerShared>,
    pub(super) peer: Arc<McpPeer>,
    pub(super) method: String,
    /// The tool, prompt or resource that the request is about.
    pub(super) name: Option<String>,
    /// Fires when the client cancels the request or disconnects.
    pub(super) cancel: CancellationToken,
    /// Requests of the same client; `None` for a stateless one. A legacy client's answers to questions arrive there.
    pub(super) client_requests: Option<Arc<ClientRequests>>,
    pub(super) stream_options: StreamOptions,
    pub(super) channel: Mutex<ResponseChannel>,
    /// Fires when `channel` got a new sink or a new question.
    pub(super) wake: Notify,
}

/// Which messages the client accepts besides the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamOptions {
    /// Whether messages can be sent before the response.
    pub(super) can_stream: bool,
    /// Whether a client of 2026-07-28 asked for log messages.
    pub(super) wants_logs: bool,
}

/// Current route to the client. Without a sink the request is finished, or suspended until its client repeats it.
#[derive(Debug)]
pub(super) struct ResponseChannel {
    /// JSON-RPC id of the request; a new one after it was resumed.
    pub(super) id: Box<RawValue>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) sink: Option<Sink>,
    /// Deadline for the client to resume the request; `None` while it is not suspended.
    pub(super) suspended_until: Option<Instant>,
    /// Questions of the service that the client has not answered (2026-07-28 only).
    pub(super) questions: Vec<ClientQuestion>,
    /// Number of questions so far, for unique keys.
    pub(super) question_count: u64,
    /// No question can be asked any more.
    pub(super) closed: bool,
}

impl RequestState {
    /// Whether the client uses 2026-07-28.
    pub(super) fn is_modern(&self) -> bool {
        self.peer.era == Era::Modern
    }

    /// Sends a message without waiting, or drops it. Holding the lock ensures that nothing follows the response, which
    /// the specification forbids.
    pub(super) fn try_send(
        &self,
        text: impl FnOnce(&ResponseChannel) -> Result<String, WireError>,
        priority: MessagePriority,
    ) {
        let channel = self.channel.lock();
        let (Some(sink), true) = (&channel.sink, self.stream_options.can_stream) else { return };
        let Ok(text) = text(&channel) else { return };
        sink.try_send(text, priority);
    }

    /// Sends a message and waits for room in the queue; returns `false` when there is no client to send it to. The lock
    /// is not held meanwhile, so the work of the request must wait for this before it returns.
    pub(super) async fn send(&self, text: String, priority: MessagePriority) -> bool {
        let sink = self.channel.lock().sink.clone();
        match sink {
            Some(sink) => sink.send(text, priority).await,
            None => false,
        }
    }

    /// Sends the response and takes the sink, so that nothing can be sent after it.
    pub(super) async fn respond(&self, outcome: Result<Box<RawValue>, RpcError>) {
        let (id, sink) = {
            let mut channel = self.channel.lock();
            (channel.id.clone(), channel.sink.take())
        };
        let Some(sink) = sink else { return };
        let kind = match &outcome {
            Ok(_) => ResponseKind::Result,
            Err(error) => ResponseKind::Error(error.code),
        };
        let outcome = match self.peer.era {
            Era::Modern => outcome.map(|result| envelope::add_result_metadata(result, &self.shared.server_info)),
            Era::Legacy(_) => outcome,
        };
        sink.finish(envelope::encode_response(&id, &outcome), kind).await;
    }

    /// Frees the JSON-RPC id for another request. A suspended request has freed it already.
    pub(super) fn release_id(&self) {
        let channel = self.channel.lock();
        if let (Some(client_requests), None) = (&self.client_requests, channel.suspended_until) {
            client_requests.unregister(&channel.id);
        }
    }

    /// Ends the request without a response, as the specification requires for a cancelled one. An HTTP response then
    /// ends without a message; on a byte stream nothing happens.
    pub(super) fn end(&self) {
        if let Some(sink) = self.channel.lock().sink.take() {
            sink.end();
        }
    }

    /// Rejects further questions from handles that outlive the request, and fails the open ones.
    pub(super) fn close(&self) {
        let mut channel = self.channel.lock();
        channel.closed = true;
        channel.questions.clear();
    }

    /// Returns the event buffer of the current HTTP response, if there is one.
    pub(super) fn event_buffer(&self) -> Option<Arc<EventBuffer>> {
        self.channel.lock().sink.as_ref()?.event_buffer().cloned()
    }
}
