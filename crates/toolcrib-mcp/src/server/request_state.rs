//! One request from the moment it is read until its answer is written: where its messages go, and whether they still
//! may.

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    McpPeer, envelope,
    event_buffer::{EventBuffer, MessagePriority, ResponseKind},
    input_required::ClientQuestion,
    shared::{ClientRequests, ServerShared},
};
use crate::{
    connection::lock,
    era::Era,
    error::{RpcError, WireError},
};

#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) shared: Arc<ServerShared>,
    pub(super) peer: Arc<McpPeer>,
    pub(super) method: String,
    pub(super) name: Option<String>,
    pub(super) cancel: CancellationToken,
    /// Where a client of old brings the answers to what it was asked.
    pub(super) client_requests: Option<Arc<ClientRequests>>,
    pub(super) stream_options: StreamOptions,
    pub(super) channel: Mutex<ResponseChannel>,
    /// The way changed, or something was asked.
    pub(super) wake: Notify,
}

/// What the client wants to hear besides the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamOptions {
    /// Whether there is a stream for anything but the answer.
    pub(super) can_stream: bool,
    pub(super) wants_logs: bool,
}

/// Where messages go at the moment. Without a sink the exchange is over, or held until its client comes back.
#[derive(Debug)]
pub(super) struct ResponseChannel {
    pub(super) id: Box<RawValue>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) sink: Option<Sink>,
    pub(super) suspended_until: Option<Instant>,
    pub(super) questions: Vec<ClientQuestion>,
    pub(super) question_count: u64,
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// The response of one HTTP request.
    Http(Arc<EventBuffer>),
    /// The one writer of a byte stream.
    Stdio(mpsc::Sender<String>),
}

impl RequestState {
    pub(super) fn is_modern(&self) -> bool {
        self.peer.era == Era::Modern
    }

    /// Says something now or not at all, and never after the answer.
    pub(super) fn try_send(
        &self,
        text: impl FnOnce(&ResponseChannel) -> Result<String, WireError>,
        weight: MessagePriority,
    ) {
        let way = lock(&self.channel);
        let (Some(sink), true) = (&way.sink, self.stream_options.can_stream) else { return };
        let Ok(text) = text(&way) else { return };
        match sink {
            Sink::Http(feed) => feed.push(text, weight),
            Sink::Stdio(line) => drop(line.try_send(text)),
        }
    }

    /// Says something that must not be lost, and waits for room; false when there is nobody to hear it.
    pub(super) async fn send(&self, text: String, weight: MessagePriority) -> bool {
        let sink = lock(&self.channel).sink.clone();
        match sink {
            Some(Sink::Http(feed)) => {
                feed.push(text, weight);
                true
            }
            Some(Sink::Stdio(line)) => line.send(text).await.is_ok(),
            None => false,
        }
    }

    /// Answers the client's request, and with it closes the way.
    pub(super) async fn respond(&self, outcome: Result<Box<RawValue>, RpcError>) {
        let (id, sink) = {
            let mut way = lock(&self.channel);
            (way.id.clone(), way.sink.take())
        };
        let Some(sink) = sink else { return };
        let last = match &outcome {
            Ok(_) => ResponseKind::Result,
            Err(error) => ResponseKind::Error(error.code),
        };
        let outcome = match self.peer.era {
            Era::Modern => outcome.map(|result| envelope::add_result_metadata(result, &self.shared.server_info)),
            Era::Legacy(_) => outcome,
        };
        sink.finish(envelope::encode_response(&id, &outcome), last).await;
    }

    /// Gives its id back, unless a held exchange already did.
    pub(super) fn release_id(&self) {
        let way = lock(&self.channel);
        if let (Some(desk), None) = (&self.client_requests, way.suspended_until) {
            desk.unregister(&way.id);
        }
    }

    /// Ends without an answer, as a request that was taken back must.
    pub(super) fn end(&self) {
        if let Some(Sink::Http(feed)) = lock(&self.channel).sink.take() {
            feed.end();
        }
    }

    /// From now on nothing can be asked, by whoever still holds an outlet.
    pub(super) fn close(&self) {
        let mut way = lock(&self.channel);
        way.closed = true;
        way.questions.clear();
    }

    pub(super) fn event_buffer(&self) -> Option<Arc<EventBuffer>> {
        match &lock(&self.channel).sink {
            Some(Sink::Http(feed)) => Some(feed.clone()),
            Some(Sink::Stdio(_)) | None => None,
        }
    }
}

impl Sink {
    pub(super) async fn finish(self, text: String, last: ResponseKind) {
        match self {
            Sink::Http(feed) => feed.finish(text, last),
            Sink::Stdio(line) => drop(line.send(text).await),
        }
    }
}
