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
    Peer, envelope,
    feed::{Feed, Last, Weight},
    held::Ask,
    shared::{Desk, Shared},
};
use crate::{
    connection::lock,
    era::Era,
    error::{RpcError, WireError},
};

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Arc<Peer>,
    pub(super) method: String,
    pub(super) name: Option<String>,
    pub(super) cancel: CancellationToken,
    /// Where a client of old brings the answers to what it was asked.
    pub(super) desk: Option<Arc<Desk>>,
    pub(super) manner: Manner,
    pub(super) way: Mutex<Way>,
    /// The way changed, or something was asked.
    pub(super) stirred: Notify,
}

/// What the client wants to hear besides the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Whether there is a stream for anything but the answer.
    pub(super) talks: bool,
    pub(super) logs: bool,
}

/// Where messages go at the moment. Without a sink the exchange is over, or held until its client comes back.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) id: Box<RawValue>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) sink: Option<Sink>,
    pub(super) held_until: Option<Instant>,
    pub(super) asks: Vec<Ask>,
    pub(super) asked: u64,
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// The response of one HTTP request.
    Feed(Arc<Feed>),
    /// The one writer of a byte stream.
    Line(mpsc::Sender<String>),
}

impl Exchange {
    pub(super) fn is_modern(&self) -> bool {
        self.peer.era == Era::Modern
    }

    /// Says something now or not at all, and never after the answer.
    pub(super) fn say(&self, text: impl FnOnce(&Way) -> Result<String, WireError>, weight: Weight) {
        let way = lock(&self.way);
        let (Some(sink), true) = (&way.sink, self.manner.talks) else { return };
        let Ok(text) = text(&way) else { return };
        match sink {
            Sink::Feed(feed) => feed.push(text, weight),
            Sink::Line(line) => drop(line.try_send(text)),
        }
    }

    /// Says something that must not be lost, and waits for room; false when there is nobody to hear it.
    pub(super) async fn tell(&self, text: String, weight: Weight) -> bool {
        let sink = lock(&self.way).sink.clone();
        match sink {
            Some(Sink::Feed(feed)) => {
                feed.push(text, weight);
                true
            }
            Some(Sink::Line(line)) => line.send(text).await.is_ok(),
            None => false,
        }
    }

    /// Answers the client's request, and with it closes the way.
    pub(super) async fn answer(&self, outcome: Result<Box<RawValue>, RpcError>) {
        let (id, sink) = {
            let mut way = lock(&self.way);
            (way.id.clone(), way.sink.take())
        };
        let Some(sink) = sink else { return };
        let last = match &outcome {
            Ok(_) => Last::Result,
            Err(error) => Last::Error(error.code),
        };
        let outcome = match self.peer.era {
            Era::Modern => outcome.map(|result| envelope::complete(result, &self.shared.info)),
            Era::Legacy(_) => outcome,
        };
        sink.finish(envelope::response(&id, &outcome), last).await;
    }

    /// Gives its id back, unless a held exchange already did.
    pub(super) fn leave(&self) {
        let way = lock(&self.way);
        if let (Some(desk), None) = (&self.desk, way.held_until) {
            desk.leave(&way.id);
        }
    }

    /// Ends without an answer, as a request that was taken back must.
    pub(super) fn end(&self) {
        if let Some(Sink::Feed(feed)) = lock(&self.way).sink.take() {
            feed.end();
        }
    }

    /// From now on nothing can be asked, by whoever still holds an outlet.
    pub(super) fn close(&self) {
        let mut way = lock(&self.way);
        way.closed = true;
        way.asks.clear();
    }

    pub(super) fn feed(&self) -> Option<Arc<Feed>> {
        match &lock(&self.way).sink {
            Some(Sink::Feed(feed)) => Some(feed.clone()),
            Some(Sink::Line(_)) | None => None,
        }
    }
}

impl Sink {
    pub(super) async fn finish(self, text: String, last: Last) {
        match self {
            Sink::Feed(feed) => feed.finish(text, last),
            Sink::Line(line) => drop(line.send(text).await),
        }
    }
}
