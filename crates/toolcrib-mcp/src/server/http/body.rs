//! Body of a response: complete bytes, or an event stream that reads from an event buffer.
//!
//! ```text
//! id: 2-0
//! retry: 500
//! data:
//!
//! id: 2-1
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}
//!
//! : alive
//!
//! ```
//!
//! The first event primes the stream (2025-11-25), so that a client which loses it before the first message can resume.
//! An id is the number of the stream within its session and that of the message within the stream.

use std::{
    borrow::Cow,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::server::event_buffer::{BufferReader, BufferedMessage};

/// SSE comment that keeps proxies and clients from closing an idle stream.
const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": alive\n\n");

/// Body of an endpoint's response. Dropping an event stream before its end means that the client disconnected, which
/// cancels its request unless the client resumes the stream.
#[derive(Debug)]
pub struct EndpointBody(BodyContent);

/// Kind of body.
#[derive(Debug)]
enum BodyContent {
    /// Emptied when it is sent.
    Full(Bytes),
    Events(EventStreamBody),
}

/// Encodes the messages of an event buffer as server-sent events.
#[derive(Debug)]
pub(super) struct EventStreamBody {
    reader: BufferReader,
    /// Sent before the reader is polled.
    first_chunk: Option<Bytes>,
    ids: EventIds,
    keep_alive: Duration,
    /// Fires when no event was sent for `keep_alive`.
    keep_alive_timer: Pin<Box<Sleep>>,
    /// The response was encoded; the stream ends after it.
    is_finished: bool,
}

/// Whether events have ids, with which a client can resume the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventIds {
    /// 2026-07-28: streams cannot be resumed.
    None,
    /// An id with each message.
    Each,
    /// Also an empty event with an id at the start (2025-11-25), so that the stream is resumable before its first
    /// message.
    WithPriming,
}

impl EndpointBody {
    /// A body of complete bytes.
    pub(super) fn full(bytes: impl Into<Bytes>) -> EndpointBody {
        EndpointBody(BodyContent::Full(bytes.into()))
    }

    /// An event stream that consists of one message.
    pub(super) fn single_event(text: &str) -> EndpointBody {
        EndpointBody::full(format!("data: {}\n\n", replace_line_breaks(text.into())))
    }

    /// An event stream. `first` is a message that was read already.
    pub(super) fn events(
        reader: BufferReader,
        ids: EventIds,
        first: Option<BufferedMessage>,
        keep_alive: Duration,
    ) -> EndpointBody {
        let mut events = EventStreamBody {
            reader,
            first_chunk: None,
            ids,
            keep_alive,
            keep_alive_timer: Box::pin(sleep(keep_alive)),
            is_finished: false,
        };
        let mut first_chunk = match ids {
            // The retry delay must be shorter than `ServerOptions::resume_window`.
            EventIds::WithPriming => {
                let buffer = events.reader.buffer();
                let position = first.as_ref().map_or_else(|| buffer.last_read(), |first| first.number - 1);
                format!("id: {}-{position}\nretry: 500\ndata:\n\n", buffer.stream_number)
            }
            EventIds::None | EventIds::Each => String::new(),
        };
        if let Some(first) = &first {
            first_chunk.push_str(&events.encode_event(first));
        }
        // Many HTTP servers and proxies send the headers only with the first bytes of the body.
        events.first_chunk = Some(if first_chunk.is_empty() { KEEP_ALIVE_COMMENT } else { Bytes::from(first_chunk) });
        EndpointBody(BodyContent::Events(events))
    }
}

impl EventStreamBody {
    /// Encodes one message as an event.
    fn encode_event(&mut self, message: &BufferedMessage) -> String {
        self.is_finished = message.response_kind.is_some();
        let text = replace_line_breaks(String::from_utf8_lossy(&message.text));
        match self.ids {
            EventIds::None => format!("data: {text}\n\n"),
            EventIds::Each | EventIds::WithPriming => {
                format!("id: {}-{}\ndata: {text}\n\n", self.reader.buffer().stream_number, message.number)
            }
        }
    }

    /// Polls the next bytes: the first chunk, a message, or a keep-alive comment.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first_chunk) = self.first_chunk.take() {
            return Poll::Ready(Some(first_chunk));
        }
        if self.is_finished {
            return Poll::Ready(None);
        }
        // A message resets the timer, so comments are sent on an idle stream only.
        if let Poll::Ready(message) = self.reader.poll_next(context) {
            self.keep_alive_timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(message.map(|message| Bytes::from(self.encode_event(&message))));
        }
        // Polled last: otherwise a due comment would delay a message that is there already.
        if self.keep_alive_timer.as_mut().poll(context).is_ready() {
            self.keep_alive_timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(Some(KEEP_ALIVE_COMMENT));
        }
        Poll::Pending
    }
}

/// Makes a message fit into one `data` field. Raw JSON may contain line breaks between tokens (never inside them); a
/// space is equivalent there.
fn replace_line_breaks(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text }
}

impl http_body::Body for EndpointBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.0 {
            BodyContent::Full(bytes) if bytes.is_empty() => None,
            BodyContent::Full(bytes) => Some(std::mem::take(bytes)),
            BodyContent::Events(events) => std::task::ready!(events.poll_chunk(context)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, BodyContent::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyContent::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyContent::Events(_) => SizeHint::default(),
        }
    }
}
