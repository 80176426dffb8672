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
const KEPT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Feed {
    /// Names the stream within its session, in the ids of its events.
    pub(super) number: u64,
    bound: usize,
    keeps: Keeps,
    state: Mutex<State>,
    /// A reader left, or the end was read.
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// The number of the next message to come, and of the next to be read.
    next: u64,
    cursor: u64,
    ended: bool,
    readers: Vec<Seat>,
    seats: u64,
    /// How long the stream outlives its reader.
    resume_within: Option<Duration>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    waker: Option<Waker>,
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) text: Bytes,
    pub(super) last: Option<Last>,
}

/// Whether what was read is kept, for a stream that is cut and taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    Nothing,
    Latest,
}

/// A message that ends its stream, and what the HTTP status makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Result,
    Error(i64),
}

/// Whether a message may be lost when the client does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Droppable,
    /// One that is still unread and says the same makes another needless.
    Once,
    Needed,
}

impl Feed {
    pub(super) fn new(number: u64, bound: usize, keeps: Keeps) -> Arc<Feed> {
        let state = State { next: 1, cursor: 1, ..State::default() };
        Arc::new(Feed { number, bound, keeps, state: Mutex::new(state), news: Notify::new() })
    }

    pub(super) fn push(&self, text: String, weight: Weight) {
        self.add(text, weight, None);
    }

    /// The last message; what comes after it is lost.
    pub(super) fn finish(&self, text: String, last: Last) {
        self.add(text, Weight::Needed, Some(last));
        self.end();
    }

    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        for seat in &mut state.readers {
            seat.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn add(&self, text: String, weight: Weight, last: Option<Last>) {
        let mut state = lock(&self.state);
        let unread = state.messages.iter().rev().take_while(|message| message.number >= state.cursor);
        let unneeded = match weight {
            Weight::Needed => false,
            Weight::Droppable => unread.count() >= self.bound,
            Weight::Once => unread.into_iter().enumerate().any(|(n, message)| message.text == text || n >= self.bound),
        };
        if state.ended || unneeded {
            return;
        }
        let message = Message { number: state.next, text: Bytes::from(text), last };
        state.messages.push_back(message);
        state.next += 1;
        state.wake();
    }

    /// A reader of what comes from now on, or of what came after the message `after`.
    pub(super) fn reader(self: &Arc<Self>, after: Option<u64>) -> Reader {
        let mut state = lock(&self.state);
        if let Some(after) = after {
            state.cursor = state.cursor.min(after.saturating_add(1));
        }
        state.seats += 1;
        let seat = state.seats;
        state.readers.push(Seat { number: seat, waker: None });
        Reader { feed: self.clone(), seat }
    }

    /// The number of the last message that was read.
    pub(super) fn place(&self) -> u64 {
        lock(&self.state).cursor - 1
    }

    pub(super) fn readers(&self) -> usize {
        lock(&self.state).readers.len()
    }

    /// From now on a client that vanishes may come back within that time.
    pub(super) fn resumable(&self, within: Duration) {
        lock(&self.state).resume_within = Some(within);
    }

    /// Waits until nobody reads any more, and nobody came back in time.
    pub(super) async fn abandoned(&self) {
        loop {
            if self.readers() > 0 {
                self.news.notified().await;
                continue;
            }
            let within = lock(&self.state).resume_within.unwrap_or_default();
            tokio::time::sleep(within).await;
            if self.readers() == 0 {
                return;
            }
        }
    }

    /// Waits until the end was read, or nobody will read it.
    pub(super) async fn settled(&self) {
        let Some(within) = lock(&self.state).resume_within else { return };
        let read_out = async {
            while !lock(&self.state).read_out() {
                self.news.notified().await;
            }
        };
        tokio::select! {
            () = read_out => {}
            () = tokio::time::sleep(within) => {}
        }
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.readers.last_mut().and_then(|seat| seat.waker.take()) {
            waker.wake();
        }
    }

    fn read_out(&self) -> bool {
        self.ended && self.cursor == self.next
    }

    fn take(&mut self, keeps: Keeps) -> Option<Message> {
        let message = self.messages.iter().find(|message| message.number >= self.cursor)?.clone();
        self.cursor = message.number + 1;
        let mut kept = 0;
        let read = self.messages.iter().filter(|message| message.number < self.cursor);
        let surplus = match keeps {
            Keeps::Nothing => self.cursor,
            Keeps::Latest => read
                .rev()
                .find_map(|message| {
                    kept += message.text.len();
                    (kept > KEPT_BYTES).then_some(message.number + 1)
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
pub(super) struct Reader {
    feed: Arc<Feed>,
    seat: u64,
}

impl Reader {
    pub(super) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// The next message; `None` at the end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut state = lock(&self.feed.state);
        let newest = state.readers.last().is_some_and(|seat| seat.number == self.seat);
        if newest && let Some(message) = state.take(self.feed.keeps) {
            if state.read_out() {
                self.feed.news.notify_one();
            }
            return Poll::Ready(Some(message));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        if let Some(seat) = state.readers.iter_mut().find(|seat| seat.number == self.seat) {
            seat.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(super) async fn next(&mut self) -> Option<Message> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = lock(&self.feed.state);
        state.readers.retain(|seat| seat.number != self.seat);
        // What is unread now belongs to the reader behind.
        state.wake();
        drop(state);
        self.feed.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: Option<Message>) -> String {
        String::from_utf8(message.unwrap().text.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_cut_stream_is_taken_up_where_it_was_cut() {
        let feed = Feed::new(1, 8, Keeps::Latest);
        feed.resumable(Duration::from_secs(1));
        let mut first = feed.reader(None);
        feed.push("a".into(), Weight::Droppable);
        feed.push("b".into(), Weight::Droppable);
        let seen = first.next().await.unwrap().number;
        assert_eq!(text(first.next().await), "b");
        drop(first);
        feed.finish("c".into(), Last::Result);
        let mut again = feed.reader(Some(seen));
        assert_eq!(text(again.next().await), "b");
        assert_eq!(text(again.next().await), "c");
        assert!(again.next().await.is_none());
    }

    #[tokio::test]
    async fn only_the_newest_reader_gets_a_message_and_the_one_behind_takes_over() {
        let feed = Feed::new(1, 8, Keeps::Latest);
        let (mut older, mut newer) = (feed.reader(None), feed.reader(None));
        feed.push("a".into(), Weight::Once);
        feed.push("a".into(), Weight::Once);
        assert_eq!(text(newer.next().await), "a");
        feed.push("b".into(), Weight::Once);
        drop(newer);
        assert_eq!(text(older.next().await), "b");
    }

    #[tokio::test]
    async fn what_nobody_reads_does_not_pile_up() {
        let feed = Feed::new(1, 2, Keeps::Nothing);
        let mut reader = feed.reader(None);
        for _ in 0..10 {
            feed.push("progress".into(), Weight::Droppable);
        }
        feed.finish("answer".into(), Last::Result);
        assert_eq!(text(reader.next().await), "progress");
        assert_eq!(text(reader.next().await), "progress");
        assert_eq!(text(reader.next().await), "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_may_be_taken_up_is_given_up_only_after_a_while() {
        let feed = Feed::new(1, 2, Keeps::Nothing);
        feed.resumable(Duration::from_secs(3));
        let (first, begun) = (feed.reader(None), tokio::time::Instant::now());
        drop(first);
        feed.abandoned().await;
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
}
