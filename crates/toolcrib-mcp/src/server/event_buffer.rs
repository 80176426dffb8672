//! What is said to one HTTP client on one stream, in order: a bounded queue that keeps what was sent for a while, so
//! that a cut stream can be taken up again. The newest reader gets the messages; older ones wait behind it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::connection::lock;

/// What a stream keeps of what was sent already.
const MAX_RETAINED_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct EventBuffer {
    /// Names the stream within its session, in the ids of its events.
    pub(super) stream_number: u64,
    max_unread: usize,
    retention: Retention,
    state: Mutex<BufferState>,
    /// A reader left, or the end was read.
    reader_changed: Notify,
}

#[derive(Debug, Default)]
struct BufferState {
    messages: VecDeque<BufferedMessage>,
    /// The number of the next message to come, and of the next to be read.
    next_number: u64,
    next_unread: u64,
    ended: bool,
    readers: Vec<ReaderSlot>,
    last_reader_number: u64,
    /// How long the stream outlives its reader.
    resume_window: Option<Duration>,
}

#[derive(Debug)]
struct ReaderSlot {
    number: u64,
    waker: Option<Waker>,
}

#[derive(Debug, Clone)]
pub(super) struct BufferedMessage {
    pub(super) number: u64,
    pub(super) text: Bytes,
    pub(super) response_kind: Option<ResponseKind>,
}

/// Whether what was read is kept, for a stream that is cut and taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retention {
    Nothing,
    Latest,
}

/// A message that ends its stream, and what the HTTP status makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    Result,
    Error(i64),
}

/// Whether a message may be lost when the client does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePriority {
    Droppable,
    /// One that is still unread and says the same makes another needless.
    Deduplicated,
    Required,
}

impl EventBuffer {
    pub(super) fn new(number: u64, bound: usize, keeps: Retention) -> Arc<EventBuffer> {
        let state = BufferState { next_number: 1, next_unread: 1, ..BufferState::default() };
        Arc::new(EventBuffer {
            stream_number: number,
            max_unread: bound,
            retention: keeps,
            state: Mutex::new(state),
            reader_changed: Notify::new(),
        })
    }

    pub(super) fn push(&self, text: String, weight: MessagePriority) {
        self.add(text, weight, None);
    }

    /// The last message; what comes after it is lost.
    pub(super) fn finish(&self, text: String, last: ResponseKind) {
        self.add(text, MessagePriority::Required, Some(last));
        self.end();
    }

    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        for seat in &mut state.readers {
            seat.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn add(&self, text: String, weight: MessagePriority, last: Option<ResponseKind>) {
        let mut state = lock(&self.state);
        let unread = state.messages.iter().rev().take_while(|message| message.number >= state.next_unread);
        let unneeded = match weight {
            MessagePriority::Required => false,
            MessagePriority::Droppable => unread.count() >= self.max_unread,
            MessagePriority::Deduplicated => {
                unread.into_iter().enumerate().any(|(n, message)| message.text == text || n >= self.max_unread)
            }
        };
        if state.ended || unneeded {
            return;
        }
        let message = BufferedMessage { number: state.next_number, text: Bytes::from(text), response_kind: last };
        state.messages.push_back(message);
        state.next_number += 1;
        state.wake_newest_reader();
    }

    /// A reader of what comes from now on, or of what came after the message `after`.
    pub(super) fn add_reader(self: &Arc<Self>, after: Option<u64>) -> BufferReader {
        let mut state = lock(&self.state);
        if let Some(after) = after {
            state.next_unread = state.next_unread.min(after.saturating_add(1));
        }
        state.last_reader_number += 1;
        let seat = state.last_reader_number;
        state.readers.push(ReaderSlot { number: seat, waker: None });
        BufferReader { buffer: self.clone(), number: seat }
    }

    /// The number of the last message that was read.
    pub(super) fn last_read(&self) -> u64 {
        lock(&self.state).next_unread - 1
    }

    pub(super) fn reader_count(&self) -> usize {
        lock(&self.state).readers.len()
    }

    /// From now on a client that vanishes may come back within that time.
    pub(super) fn set_resume_window(&self, within: Duration) {
        lock(&self.state).resume_window = Some(within);
    }

    /// Waits until nobody reads any more, and nobody came back in time.
    pub(super) async fn wait_abandoned(&self) {
        loop {
            if self.reader_count() > 0 {
                self.reader_changed.notified().await;
                continue;
            }
            let within = lock(&self.state).resume_window.unwrap_or_default();
            tokio::time::sleep(within).await;
            if self.reader_count() == 0 {
                return;
            }
        }
    }

    /// Waits until the end was read, or nobody will read it.
    pub(super) async fn wait_drained(&self) {
        let Some(within) = lock(&self.state).resume_window else { return };
        let read_out = async {
            while !lock(&self.state).is_drained() {
                self.reader_changed.notified().await;
            }
        };
        tokio::select! {
            () = read_out => {}
            () = tokio::time::sleep(within) => {}
        }
    }
}

impl BufferState {
    fn wake_newest_reader(&mut self) {
        if let Some(waker) = self.readers.last_mut().and_then(|seat| seat.waker.take()) {
            waker.wake();
        }
    }

    fn is_drained(&self) -> bool {
        self.ended && self.next_unread == self.next_number
    }

    fn take_unread(&mut self, keeps: Retention) -> Option<BufferedMessage> {
        let message = self.messages.iter().find(|message| message.number >= self.next_unread)?.clone();
        self.next_unread = message.number + 1;
        let mut kept = 0;
        let read = self.messages.iter().filter(|message| message.number < self.next_unread);
        let surplus = match keeps {
            Retention::Nothing => self.next_unread,
            Retention::Latest => read
                .rev()
                .find_map(|message| {
                    kept += message.text.len();
                    (kept > MAX_RETAINED_BYTES).then_some(message.number + 1)
                })
                .unwrap_or_default(),
        };
        while self.messages.front().is_some_and(|message| message.number < surplus) {
            self.messages.pop_front();
        }
        Some(message)
    }
}

/// Reads a feed. Dropping it tells that the client is gone.
#[derive(Debug)]
pub(super) struct BufferReader {
    buffer: Arc<EventBuffer>,
    number: u64,
}

impl BufferReader {
    pub(super) fn buffer(&self) -> &Arc<EventBuffer> {
        &self.buffer
    }

    /// The next message; `None` at the end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<BufferedMessage>> {
        let mut state = lock(&self.buffer.state);
        let newest = state.readers.last().is_some_and(|seat| seat.number == self.number);
        if newest && let Some(message) = state.take_unread(self.buffer.retention) {
            if state.is_drained() {
                self.buffer.reader_changed.notify_one();
            }
            return Poll::Ready(Some(message));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        if let Some(seat) = state.readers.iter_mut().find(|seat| seat.number == self.number) {
            seat.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(super) async fn next(&mut self) -> Option<BufferedMessage> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for BufferReader {
    fn drop(&mut self) {
        let mut state = lock(&self.buffer.state);
        state.readers.retain(|seat| seat.number != self.number);
        // What is unread now belongs to the reader behind.
        state.wake_newest_reader();
        drop(state);
        self.buffer.reader_changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_text(message: Option<BufferedMessage>) -> String {
        String::from_utf8(message.unwrap().text.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_cut_stream_is_taken_up_where_it_was_cut() {
        let feed = EventBuffer::new(1, 8, Retention::Latest);
        feed.set_resume_window(Duration::from_secs(1));
        let mut first = feed.add_reader(None);
        feed.push("a".into(), MessagePriority::Droppable);
        feed.push("b".into(), MessagePriority::Droppable);
        let seen = first.next().await.unwrap().number;
        assert_eq!(message_text(first.next().await), "b");
        drop(first);
        feed.finish("c".into(), ResponseKind::Result);
        let mut again = feed.add_reader(Some(seen));
        assert_eq!(message_text(again.next().await), "b");
        assert_eq!(message_text(again.next().await), "c");
        assert!(again.next().await.is_none());
    }

    #[tokio::test]
    async fn only_the_newest_reader_gets_a_message_and_the_one_behind_takes_over() {
        let feed = EventBuffer::new(1, 8, Retention::Latest);
        let (mut older, mut newer) = (feed.add_reader(None), feed.add_reader(None));
        feed.push("a".into(), MessagePriority::Deduplicated);
        feed.push("a".into(), MessagePriority::Deduplicated);
        assert_eq!(message_text(newer.next().await), "a");
        feed.push("b".into(), MessagePriority::Deduplicated);
        drop(newer);
        assert_eq!(message_text(older.next().await), "b");
    }

    #[tokio::test]
    async fn what_nobody_reads_does_not_pile_up() {
        let feed = EventBuffer::new(1, 2, Retention::Nothing);
        let mut reader = feed.add_reader(None);
        for _ in 0..10 {
            feed.push("progress".into(), MessagePriority::Droppable);
        }
        feed.finish("answer".into(), ResponseKind::Result);
        assert_eq!(message_text(reader.next().await), "progress");
        assert_eq!(message_text(reader.next().await), "progress");
        assert_eq!(message_text(reader.next().await), "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_may_be_taken_up_is_given_up_only_after_a_while() {
        let feed = EventBuffer::new(1, 2, Retention::Nothing);
        feed.set_resume_window(Duration::from_secs(3));
        let (first, begun) = (feed.add_reader(None), tokio::time::Instant::now());
        drop(first);
        feed.wait_abandoned().await;
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
}
