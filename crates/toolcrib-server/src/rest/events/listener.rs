//! One event stream. Records come without gap or duplicate, because a listener that falls behind reads them from the
//! journal; measurements may be lost then, which the event `lost` reports.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::HistoryQuery;
use toolcrib::{Principal, Registry, Result};

use super::EventFormat;
use super::feed::ListenerPermit;
use super::sse::{self, FeedEvent, ScopedEvent, SseEvent};
use crate::position::POSITION_TIMEOUT;
use crate::state::AppState;

/// Interval of comments on an idle stream. Proxies close connections that are silent for long.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of records read from the journal at a time. A client that resumes from far back gets them batch by batch, as
/// fast as it reads.
const RECORD_BATCH_SIZE: usize = 500;

/// State of one event stream.
pub(super) struct EventListener {
    registry: Registry,
    /// The client: it gets what it may know of.
    principal: Principal,
    events: broadcast::Receiver<FeedEvent>,
    /// Sequence number of the last record sent, or of the one to start after.
    last_seq: u64,
    /// True when the journal has records after `last_seq` that must be read from it. Events of the feed wait in the
    /// channel meanwhile.
    is_behind: bool,
    /// Digest of the client's tool list as it was told last, or when the stream was opened.
    inventory_hash: Fingerprint,
    /// `Some` with the URI of the store, if events are sent as CloudEvents.
    cloud_source: Option<String>,
    /// Rendered events that are sent next.
    pending: VecDeque<Bytes>,
    closed: CancellationToken,
    _permit: ListenerPermit,
}

impl EventListener {
    /// Opens a stream. Subscribes to the feed before it reads the journal, so that no record between the two is missed.
    pub(super) async fn new(
        app: &AppState,
        principal: Principal,
        permit: ListenerPermit,
        after: Option<u64>,
        format: EventFormat,
    ) -> Result<EventListener> {
        let events = app.event_feed.events.subscribe();
        let closed = app.event_feed.closed.clone();
        let registry = app.registry.clone();
        // The client may come from a node that is ahead of this one, which would send it records again.
        if let Some(after) = after {
            registry.wait_for_position(after, POSITION_TIMEOUT).await;
        }
        let inventory_hash = registry.view(&principal).hash();
        let head = registry.position();
        // A number that was not reached comes from another journal, or from a node that is far ahead. Starting at the
        // head may send a record twice, but misses none.
        let last_seq = after.unwrap_or(head).min(head);
        // `retry` tells browsers to reconnect after two seconds; the comment shows a client at once that the stream is
        // open.
        let pending = VecDeque::from([Bytes::from_static(b"retry: 2000\n\n: listening\n\n")]);
        let cloud_source = (format == EventFormat::CloudEvents).then(|| registry.history().store_uri());
        let is_behind = last_seq < head;
        let mut listener = EventListener {
            registry,
            principal,
            events,
            last_seq,
            is_behind,
            inventory_hash,
            cloud_source,
            pending,
            closed,
            _permit: permit,
        };
        listener.read_journal().await?;
        Ok(listener)
    }

    /// Returns the response body. It ends with the server, or when the journal cannot be read; a client that reconnects
    /// with `Last-Event-ID` continues where it ended.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut listener| async move {
            let next = listener.next_chunk().await?;
            Some((Ok(next), listener))
        })
    }

    /// Waits for the next event or keep-alive comment.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                return Some(chunk);
            }
            // Records from the journal come first: those in the feed may be later ones.
            if self.is_behind {
                self.read_journal().await.ok()?;
                continue;
            }
            let event = tokio::select! {
                biased;
                () = self.closed.cancelled() => return None,
                event = self.events.recv() => event,
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            };
            match event {
                Ok(FeedEvent::Record { seq, event }) if seq == self.last_seq + 1 => {
                    self.last_seq = seq;
                    self.push(&event);
                }
                // Sent already, or after a gap that is filled from the journal.
                Ok(FeedEvent::Record { seq, .. }) => self.is_behind = seq > self.last_seq,
                Ok(FeedEvent::Measurement(event)) => self.push(&event),
                Ok(FeedEvent::CatalogChanged(event)) => self.push_catalog(&event),
                Ok(FeedEvent::Lost(count)) | Err(RecvError::Lagged(count)) => {
                    self.is_behind = true;
                    self.pending.push_back(self.render(&sse::render_lost(count, self.registry.now())));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Reads the next batch of records from the journal, if the listener is behind.
    async fn read_journal(&mut self) -> Result<()> {
        if !self.is_behind {
            return Ok(());
        }
        let query = HistoryQuery { limit: Some(RECORD_BATCH_SIZE), ..HistoryQuery::after(self.last_seq) };
        let head = self.registry.inventory().version;
        let records = self.registry.history_for(&self.principal).records(&query).await?;
        // A full batch may not be the last one.
        self.is_behind = records.len() == RECORD_BATCH_SIZE;
        self.last_seq = records.last().map_or(self.last_seq, |record| record.seq);
        if !self.is_behind {
            // The last records may be ones that the client may not know of.
            self.last_seq = self.last_seq.max(head);
        }
        let texts: Vec<Bytes> = records.iter().map(|record| self.render(&SseEvent::record(record))).collect();
        self.pending.extend(texts);
        Ok(())
    }

    /// Adds an event, if the client may know of it.
    fn push(&mut self, event: &ScopedEvent) {
        let event = event.for_principal(&self.registry, &self.principal);
        self.pending.extend(event.map(|event| self.render(&event)));
    }

    /// Adds an event `catalog`, if the client's own tool list has changed.
    fn push_catalog(&mut self, event: &ScopedEvent) {
        let Some(event) = event.for_principal(&self.registry, &self.principal) else { return };
        if let Some(hash) = event.inventory_hash().filter(|hash| *hash != self.inventory_hash) {
            self.inventory_hash = hash;
            self.pending.push_back(self.render(&event));
        }
    }

    /// Returns the text of an event in the format of this listener.
    fn render(&self, event: &SseEvent) -> Bytes {
        match &self.cloud_source {
            Some(source) => event.cloud_text(source),
            None => event.text(),
        }
    }
}
