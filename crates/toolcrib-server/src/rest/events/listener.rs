//! One listener: records without gap or duplicate, measurements as long as it keeps up.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolcrib::registry::HistoryQuery;
use toolcrib::{Registry, Result};

use super::feed::ListenerPermit;
use super::sse::{self, FeedEvent};
use crate::state::AppState;

/// A proxy on the way takes a connection that is silent for dead.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How many records are read from the journal in one go.
const RECORD_BATCH_SIZE: usize = 500;

pub(super) struct EventListener {
    registry: Registry,
    events: broadcast::Receiver<FeedEvent>,
    /// The last record that was passed on, or that this listener does not want.
    last_seq: u64,
    /// Whether the journal has more than was passed on.
    is_behind: bool,
    pending: VecDeque<Bytes>,
    closed: CancellationToken,
    _permit: ListenerPermit,
}

impl EventListener {
    /// Listens first and reads then, so that nothing falls in between.
    pub(super) async fn new(app: &AppState, permit: ListenerPermit, after: Option<u64>) -> Result<EventListener> {
        let (told, closed) = (app.event_feed.subscribe(), app.event_feed.closed_token());
        let registry = app.registry.clone();
        let head = registry.inventory().version;
        // Whoever has heard of more than there is heard it of another journal, or from somebody who is ahead of us:
        // better to hear a record twice than to miss one.
        let last = after.unwrap_or(head).min(head);
        let ready = VecDeque::from([Bytes::from_static(b"retry: 2000\n\n: listening\n\n")]);
        let mut listener = EventListener {
            registry,
            events: told,
            last_seq: last,
            is_behind: last < head,
            pending: ready,
            closed,
            _permit: permit,
        };
        listener.read_journal().await?;
        Ok(listener)
    }

    /// Ends with the server, or when the journal cannot be read: who connects again goes on where this one ended.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut listener| async move {
            let next = listener.next_chunk().await?;
            Some((Ok(next), listener))
        })
    }

    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(ready) = self.pending.pop_front() {
                return Some(ready);
            }
            if self.is_behind {
                self.read_journal().await.ok()?;
                continue;
            }
            let heard = tokio::select! {
                biased;
                () = self.closed.cancelled() => return None,
                heard = self.events.recv() => heard,
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => return Some(Bytes::from_static(b": still here\n\n")),
            };
            match heard {
                Ok(FeedEvent::Record { seq, text }) if seq == self.last_seq + 1 => {
                    self.last_seq = seq;
                    return Some(text);
                }
                Ok(FeedEvent::Record { seq, .. }) => self.is_behind = seq > self.last_seq,
                Ok(FeedEvent::Measurement(text)) => return Some(text),
                Ok(FeedEvent::Lost(count)) | Err(RecvError::Lagged(count)) => {
                    self.is_behind = true;
                    self.pending.push_back(sse::render_lost(count));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Takes what the journal has after the last record, some of it at a time.
    async fn read_journal(&mut self) -> Result<()> {
        if !self.is_behind {
            return Ok(());
        }
        let wanted = HistoryQuery { limit: Some(RECORD_BATCH_SIZE), ..HistoryQuery::after(self.last_seq) };
        let records = self.registry.history(&wanted).await?;
        self.is_behind = records.len() == RECORD_BATCH_SIZE;
        for record in &records {
            self.last_seq = record.seq;
            if let FeedEvent::Record { text, .. } = sse::render_record(record) {
                self.pending.push_back(text);
            }
        }
        Ok(())
    }
}
