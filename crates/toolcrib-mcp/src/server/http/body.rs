//! The body of a response: bytes, or a stream of events that lives as long as somebody reads it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::server::event_buffer::{BufferReader, BufferedMessage};

const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": alive\n\n");

/// Dropping it before its end tells the endpoint that the client is gone.
#[derive(Debug)]
pub struct EndpointBody(BodyContent);

#[derive(Debug)]
enum BodyContent {
    Full(Bytes),
    Events(EventStreamBody),
}

#[derive(Debug)]
pub(super) struct EventStreamBody {
    reader: BufferReader,
    /// What goes out before anything is read.
    first_chunk: Option<Bytes>,
    ids: EventIds,
    keep_alive: Duration,
    keep_alive_timer: Pin<Box<Sleep>>,
    is_finished: bool,
}

/// Whether events have ids, by which their stream can be taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventIds {
    None,
    Each,
    /// And one at once, so that the stream can be taken up before it said anything.
    WithPriming,
}

impl EndpointBody {
    pub(super) fn full(bytes: impl Into<Bytes>) -> EndpointBody {
        EndpointBody(BodyContent::Full(bytes.into()))
    }

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
        let mut ready = match ids {
            // A short pause, for the server waits only a little longer for the stream to be taken up.
            EventIds::WithPriming => {
                let feed = events.reader.buffer();
                let place = first.as_ref().map_or_else(|| feed.last_read(), |first| first.number - 1);
                format!("id: {}-{place}\nretry: 500\ndata:\n\n", feed.stream_number)
            }
            EventIds::None | EventIds::Each => String::new(),
        };
        if let Some(first) = &first {
            ready.push_str(&events.encode_event(first));
        }
        // The headers reach the client only with something behind them.
        events.first_chunk = Some(if ready.is_empty() { KEEP_ALIVE_COMMENT } else { Bytes::from(ready) });
        EndpointBody(BodyContent::Events(events))
    }
}

impl EventStreamBody {
    fn encode_event(&mut self, message: &BufferedMessage) -> String {
        self.is_finished = message.response_kind.is_some();
        let text = String::from_utf8_lossy(&message.text);
        // Raw JSON may hold line breaks between its tokens (never inside them), where a space means the same.
        let text = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text };
        match self.ids {
            EventIds::None => format!("data: {text}\n\n"),
            EventIds::Each | EventIds::WithPriming => {
                format!("id: {}-{}\ndata: {text}\n\n", self.reader.buffer().stream_number, message.number)
            }
        }
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(ready) = self.first_chunk.take() {
            return Poll::Ready(Some(ready));
        }
        if self.is_finished {
            return Poll::Ready(None);
        }
        if let Poll::Ready(message) = self.reader.poll_next(context) {
            self.keep_alive_timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(message.map(|message| Bytes::from(self.encode_event(&message))));
        }
        if self.keep_alive_timer.as_mut().poll(context).is_ready() {
            self.keep_alive_timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(Some(KEEP_ALIVE_COMMENT));
        }
        Poll::Pending
    }
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
