//! One listener: records without gap or duplicate, measurements as long as it keeps up.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolcrib::registry::Wanted;
use toolcrib::{Registry, Result};

use super::feed::ListenerPermit;
use super::told::{self, Told};
use crate::house::House;

/// A proxy on the way takes a connection that is silent for dead.
const ALIVE: Duration = Duration::from_secs(15);
/// How many records are read from the journal in one go.
const BATCH: usize = 500;

pub(super) struct Listener {
    registry: Registry,
    told: broadcast::Receiver<Told>,
    /// The last record that was passed on, or that this listener does not want.
    last: u64,
    /// Whether the journal has more than was passed on.
    behind: bool,
    ready: VecDeque<Bytes>,
    closed: CancellationToken,
    _permit: ListenerPermit,
}

impl Listener {
    /// Listens first and reads then, so that nothing falls in between.
    pub(super) async fn new(house: &House, permit: ListenerPermit, after: Option<u64>) -> Result<Listener> {
        let (told, closed) = (house.feed.subscribe(), house.feed.closed());
        let registry = house.registry.clone();
        let head = registry.inventory().version;
        // Whoever has heard of more than there is heard it of another journal, or from somebody who is ahead of us:
        // better to hear a record twice than to miss one.
        let last = after.unwrap_or(head).min(head);
        let ready = VecDeque::from([Bytes::from_static(b"retry: 2000\n\n: listening\n\n")]);
        let mut listener = Listener { registry, told, last, behind: last < head, ready, closed, _permit: permit };
        listener.read_on().await?;
        Ok(listener)
    }

    /// Ends with the server, or when the journal cannot be read: who connects again goes on where this one ended.
    pub(super) fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut listener| async move {
            let next = listener.next().await?;
            Some((Ok(next), listener))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.behind {
                self.read_on().await.ok()?;
                continue;
            }
            let heard = tokio::select! {
                biased;
                () = self.closed.cancelled() => return None,
                heard = self.told.recv() => heard,
                () = tokio::time::sleep(ALIVE) => return Some(Bytes::from_static(b": still here\n\n")),
            };
            match heard {
                Ok(Told::Record { seq, text }) if seq == self.last + 1 => {
                    self.last = seq;
                    return Some(text);
                }
                Ok(Told::Record { seq, .. }) => self.behind = seq > self.last,
                Ok(Told::Measure(text)) => return Some(text),
                Ok(Told::Lost(count)) | Err(RecvError::Lagged(count)) => {
                    self.behind = true;
                    self.ready.push_back(told::lost(count));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Takes what the journal has after the last record, some of it at a time.
    async fn read_on(&mut self) -> Result<()> {
        if !self.behind {
            return Ok(());
        }
        let wanted = Wanted { limit: Some(BATCH), ..Wanted::after(self.last) };
        let records = self.registry.history(&wanted).await?;
        self.behind = records.len() == BATCH;
        for record in &records {
            self.last = record.seq;
            if let Told::Record { text, .. } = told::record(record) {
                self.ready.push_back(text);
            }
        }
        Ok(())
    }
}
