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

use crate::server::feed::{Message, Reader};

const ALIVE: Bytes = Bytes::from_static(b": alive\n\n");

/// Dropping it before its end tells the endpoint that the client is gone.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Bytes),
    Events(Events),
}

#[derive(Debug)]
pub(super) struct Events {
    reader: Reader,
    /// What goes out before anything is read.
    ready: Option<Bytes>,
    ids: Ids,
    keep_alive: Duration,
    alive: Pin<Box<Sleep>>,
    over: bool,
}

/// Whether events have ids, by which their stream can be taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    None,
    Each,
    /// And one at once, so that the stream can be taken up before it said anything.
    Primed,
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
        Body(Kind::Whole(bytes.into()))
    }

    pub(super) fn events(reader: Reader, ids: Ids, first: Option<Message>, keep_alive: Duration) -> Body {
        let mut events =
            Events { reader, ready: None, ids, keep_alive, alive: Box::pin(sleep(keep_alive)), over: false };
        let mut ready = match ids {
            // A short pause, for the server waits only a little longer for the stream to be taken up.
            Ids::Primed => {
                let feed = events.reader.feed();
                let place = first.as_ref().map_or_else(|| feed.place(), |first| first.number - 1);
                format!("id: {}-{place}\nretry: 500\ndata:\n\n", feed.number)
            }
            Ids::None | Ids::Each => String::new(),
        };
        if let Some(first) = &first {
            ready.push_str(&events.write(first));
        }
        // The headers reach the client only with something behind them.
        events.ready = Some(if ready.is_empty() { ALIVE } else { Bytes::from(ready) });
        Body(Kind::Events(events))
    }
}

impl Events {
    fn write(&mut self, message: &Message) -> String {
        self.over = message.last.is_some();
        let text = String::from_utf8_lossy(&message.text);
        // Raw JSON may hold line breaks between its tokens (never inside them), where a space means the same.
        let text = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text };
        match self.ids {
            Ids::None => format!("data: {text}\n\n"),
            Ids::Each | Ids::Primed => {
                format!("id: {}-{}\ndata: {text}\n\n", self.reader.feed().number, message.number)
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(ready) = self.ready.take() {
            return Poll::Ready(Some(ready));
        }
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(message) = self.reader.poll_next(context) {
            self.alive.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(message.map(|message| Bytes::from(self.write(&message))));
        }
        if self.alive.as_mut().poll(context).is_ready() {
            self.alive.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(Some(ALIVE));
        }
        Poll::Pending
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => None,
            Kind::Whole(bytes) => Some(std::mem::take(bytes)),
            Kind::Events(events) => std::task::ready!(events.poll(context)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}
