//! Message queue of one HTTP event stream: bounded, ordered, and with the latest messages retained so that a client can
//! resume an interrupted stream.
//!
//! A stream may have several readers, because a client may reconnect before the server notices that the old connection
//! is dead. Only the newest reader gets messages; the next older one takes over when it is dropped.
//!
//! ```text
//! number    1 2 3 4 5 6 7 8 9
//!           └ retained ┘└ unread ┘
//!                       ^ next_unread  ^ next_number
//! ```
//!
//! A client that resumes after event `2-3` (stream 2, message 3) moves `next_unread` back to 4. The queue does not know
//! its HTTP connection: a reader that is dropped means that the client disconnected.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum bytes of messages that are retained after they were read. It bounds the memory of a stream whose client
/// reads all messages; a client that resumes at an older message misses those in between.
const MAX_RETAINED_BYTES: usize = 256 * 1024;

/// The queue of one stream, shared by its writers and readers.
#[derive(Debug)]
pub(super) struct EventBuffer {
    /// Number of the stream within its session; the first part of its event ids.
    pub(super) stream_number: u64,
    /// Maximum number of unread messages; beyond it, messages that are not required are dropped.
    max_unread: usize,
    retention: Retention,
    state: Mutex<BufferState>,
    /// Fires when a reader was dropped, or the last message was read.
    reader_changed: Notify,
}

#[derive(Debug, Default)]
struct BufferState {
    /// Retained and unread messages, in order of their numbers.
    messages: VecDeque<BufferedMessage>,
    /// Number of the next message to be added.
    next_number: u64,
    /// Number of the next message to be read.
    next_unread: u64,
    /// No message can be added any more.
    ended: bool,
    /// Open readers, oldest first.
    readers: Vec<ReaderSlot>,
    /// Number of the reader that was added last; numbers are not reused.
    last_reader_number: u64,
    /// Time for which the stream stays resumable without a reader; `None` if it is not resumable.
    resume_window: Option<Duration>,
}

/// Entry of one open reader.
#[derive(Debug)]
struct ReaderSlot {
    number: u64,
    /// Set while the reader waits for a message.
    waker: Option<Waker>,
}

/// One message of a stream.
#[derive(Debug, Clone)]
pub(super) struct BufferedMessage {
    /// Number within the stream, from 1; the second part of its event id.
    pub(super) number: u64,
    /// The JSON text.
    pub(super) text: Bytes,
    /// Set on the response, which ends the stream.
    pub(super) response_kind: Option<ResponseKind>,
}

/// Whether messages are retained after they were read, for a client that resumes the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retention {
    /// For streams of 2026-07-28, which cannot be resumed.
    Nothing,
    /// The latest [`MAX_RETAINED_BYTES`].
    Latest,
}

/// Kind of a response, from which the HTTP status is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    Result,
    /// An error with this JSON-RPC code.
    Error(i64),
}

/// Whether a message may be dropped when the client does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePriority {
    /// Progress and log messages: a client that does not read misses some.
    Droppable,
    /// Droppable, and also dropped when an equal message is still unread.
    Deduplicated,
    /// Responses and questions: added beyond the maximum, too, because the request depends on them.
    Required,
}

impl EventBuffer {
    /// Creates an empty stream without readers.
    pub(super) fn new(stream_number: u64, max_unread: usize, retention: Retention) -> Arc<EventBuffer> {
        let state = BufferState { next_number: 1, next_unread: 1, ..BufferState::default() };
        Arc::new(EventBuffer {
            stream_number,
            max_unread,
            retention,
            state: Mutex::new(state),
            reader_changed: Notify::new(),
        })
    }

    /// Adds a message that does not end the stream.
    pub(super) fn push(&self, text: String, priority: MessagePriority) {
        self.add(text, priority, None);
    }

    /// Adds the response and ends the stream; later messages are ignored. Never drops the response.
    pub(super) fn finish(&self, text: String, kind: ResponseKind) {
        self.add(text, MessagePriority::Required, Some(kind));
        self.end();
    }

    /// Ends the stream. Readers still get the unread messages.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        for reader in &mut state.readers {
            reader.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Adds a message and wakes the newest reader, unless the stream ended or the message is dropped.
    fn add(&self, text: String, priority: MessagePriority, response_kind: Option<ResponseKind>) {
        let mut state = self.state.lock();
        let unread = state.messages.iter().rev().take_while(|message| message.number >= state.next_unread);
        let is_dropped = match priority {
            MessagePriority::Required => false,
            MessagePriority::Droppable => unread.count() >= self.max_unread,
            // Two equal change notifications tell the client no more than one.
            MessagePriority::Deduplicated => {
                unread.into_iter().enumerate().any(|(n, message)| message.text == text || n >= self.max_unread)
            }
        };
        if state.ended || is_dropped {
            return;
        }
        let message = BufferedMessage { number: state.next_number, text: Bytes::from(text), response_kind };
        state.messages.push_back(message);
        state.next_number += 1;
        state.wake_newest_reader();
    }

    /// Adds a reader, which becomes the newest. It reads the unread messages, or all retained ones after number
    /// `after`.
    pub(super) fn add_reader(self: &Arc<Self>, after: Option<u64>) -> BufferReader {
        let mut state = self.state.lock();
        if let Some(after) = after {
            // Never forwards: a client cannot skip messages that it has not got.
            state.next_unread = state.next_unread.min(after.saturating_add(1));
        }
        state.last_reader_number += 1;
        let number = state.last_reader_number;
        state.readers.push(ReaderSlot { number, waker: None });
        BufferReader { buffer: self.clone(), number }
    }

    /// Returns the number of the last message that was read.
    pub(super) fn last_read(&self) -> u64 {
        self.state.lock().next_unread - 1
    }

    /// Returns the number of open readers.
    pub(super) fn reader_count(&self) -> usize {
        self.state.lock().readers.len()
    }

    /// Makes the stream resumable: a client that disconnects may come back within this time.
    pub(super) fn set_resume_window(&self, resume_window: Duration) {
        self.state.lock().resume_window = Some(resume_window);
    }

    /// Waits until the stream has had no reader for the whole resume window. A stream that is not resumable is
    /// abandoned as soon as it has no reader.
    pub(super) async fn wait_abandoned(&self) {
        loop {
            if self.reader_count() > 0 {
                self.reader_changed.notified().await;
                continue;
            }
            let resume_window = self.state.lock().resume_window.unwrap_or_default();
            tokio::time::sleep(resume_window).await;
            if self.reader_count() == 0 {
                return;
            }
        }
    }

    /// Waits until the last message was read, at most for the resume window. Returns at once if the stream is not
    /// resumable. Without this wait, the stream would be dropped with its task and could not be resumed.
    pub(super) async fn wait_drained(&self) {
        let Some(resume_window) = self.state.lock().resume_window else { return };
        let drained = async {
            while !self.state.lock().is_drained() {
                self.reader_changed.notified().await;
            }
        };
        tokio::select! {
            () = drained => {}
            () = tokio::time::sleep(resume_window) => {}
        }
    }
}

impl BufferState {
    /// Wakes the reader that gets the next message.
    fn wake_newest_reader(&mut self) {
        if let Some(waker) = self.readers.last_mut().and_then(|reader| reader.waker.take()) {
            waker.wake();
        }
    }

    /// Whether the stream ended and all its messages were read.
    fn is_drained(&self) -> bool {
        self.ended && self.next_unread == self.next_number
    }

    /// Returns the next unread message and discards the read ones that exceed the retention, oldest first.
    fn take_unread(&mut self, retention: Retention) -> Option<BufferedMessage> {
        let message = self.messages.iter().find(|message| message.number >= self.next_unread)?.clone();
        self.next_unread = message.number + 1;
        let mut retained_bytes = 0;
        let read = self.messages.iter().filter(|message| message.number < self.next_unread);
        // Messages with smaller numbers are discarded.
        let first_retained = match retention {
            Retention::Nothing => self.next_unread,
            Retention::Latest => read
                .rev()
                .find_map(|message| {
                    retained_bytes += message.text.len();
                    (retained_bytes > MAX_RETAINED_BYTES).then_some(message.number + 1)
                })
                .unwrap_or_default(),
        };
        while self.messages.front().is_some_and(|message| message.number < first_retained) {
            self.messages.pop_front();
        }
        Some(message)
    }
}

/// Reads one stream. Dropping it means that the client disconnected.
#[derive(Debug)]
pub(super) struct BufferReader {
    buffer: Arc<EventBuffer>,
    number: u64,
}

impl BufferReader {
    /// Returns the stream that is read.
    pub(super) fn buffer(&self) -> &Arc<EventBuffer> {
        &self.buffer
    }

    /// Polls the next message; `None` at the end of the stream. Readers that are not the newest stay pending.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<BufferedMessage>> {
        let mut state = self.buffer.state.lock();
        let is_newest = state.readers.last().is_some_and(|reader| reader.number == self.number);
        if is_newest && let Some(message) = state.take_unread(self.buffer.retention) {
            if state.is_drained() {
                self.buffer.reader_changed.notify_one();
            }
            return Poll::Ready(Some(message));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        if let Some(reader) = state.readers.iter_mut().find(|reader| reader.number == self.number) {
            reader.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for the next message; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<BufferedMessage> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for BufferReader {
    fn drop(&mut self) {
        let mut state = self.buffer.state.lock();
        state.readers.retain(|reader| reader.number != self.number);
        // The next older reader gets the unread messages.
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
    async fn an_interrupted_stream_is_resumed_after_the_last_seen_message() {
        let buffer = EventBuffer::new(1, 8, Retention::Latest);
        buffer.set_resume_window(Duration::from_secs(1));
        let mut first = buffer.add_reader(None);
        buffer.push("a".into(), MessagePriority::Droppable);
        buffer.push("b".into(), MessagePriority::Droppable);
        let seen = first.next().await.unwrap().number;
        assert_eq!(message_text(first.next().await), "b");
        drop(first);
        buffer.finish("c".into(), ResponseKind::Result);
        let mut resumed = buffer.add_reader(Some(seen));
        assert_eq!(message_text(resumed.next().await), "b");
        assert_eq!(message_text(resumed.next().await), "c");
        assert!(resumed.next().await.is_none());
    }

    #[tokio::test]
    async fn only_the_newest_reader_gets_messages_until_it_is_dropped() {
        let buffer = EventBuffer::new(1, 8, Retention::Latest);
        let mut older = buffer.add_reader(None);
        let mut newer = buffer.add_reader(None);
        buffer.push("a".into(), MessagePriority::Deduplicated);
        buffer.push("a".into(), MessagePriority::Deduplicated);
        assert_eq!(message_text(newer.next().await), "a");
        buffer.push("b".into(), MessagePriority::Deduplicated);
        drop(newer);
        assert_eq!(message_text(older.next().await), "b");
    }

    #[tokio::test]
    async fn unread_messages_are_bounded_and_the_response_is_kept() {
        let buffer = EventBuffer::new(1, 2, Retention::Nothing);
        let mut reader = buffer.add_reader(None);
        for _ in 0..10 {
            buffer.push("progress".into(), MessagePriority::Droppable);
        }
        buffer.finish("answer".into(), ResponseKind::Result);
        assert_eq!(message_text(reader.next().await), "progress");
        assert_eq!(message_text(reader.next().await), "progress");
        assert_eq!(message_text(reader.next().await), "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_resumable_stream_is_abandoned_after_its_resume_window() {
        let buffer = EventBuffer::new(1, 2, Retention::Nothing);
        buffer.set_resume_window(Duration::from_secs(3));
        let reader = buffer.add_reader(None);
        let started = tokio::time::Instant::now();
        drop(reader);
        buffer.wait_abandoned().await;
        assert_eq!(started.elapsed().as_secs(), 3);
    }
}
