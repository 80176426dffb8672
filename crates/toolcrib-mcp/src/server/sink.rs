//! Destination of the messages to a client: the response of one HTTP request, or the writer of a byte stream.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::event_buffer::{EventBuffer, MessagePriority, ResponseKind};

/// Destination of messages.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// The response of one HTTP request, or the notification stream of a session.
    Http(Arc<EventBuffer>),
    /// The writer task of a byte stream, shared by all its requests.
    Stdio(mpsc::Sender<String>),
}

impl Sink {
    /// Sends a message without waiting. On a byte stream whose queue is full, the message is dropped.
    pub(super) fn try_send(&self, text: String, priority: MessagePriority) {
        match self {
            Sink::Http(buffer) => buffer.push(text, priority),
            Sink::Stdio(outgoing) => drop(outgoing.try_send(text)),
        }
    }

    /// Sends a message and waits for room in the queue of a byte stream; returns `false` when the stream has ended.
    pub(super) async fn send(&self, text: String, priority: MessagePriority) -> bool {
        match self {
            Sink::Http(buffer) => {
                buffer.push(text, priority);
                true
            }
            Sink::Stdio(outgoing) => outgoing.send(text).await.is_ok(),
        }
    }

    /// Sends the response, after which an HTTP response ends.
    pub(super) async fn finish(&self, text: String, kind: ResponseKind) {
        match self {
            Sink::Http(buffer) => buffer.finish(text, kind),
            Sink::Stdio(outgoing) => drop(outgoing.send(text).await),
        }
    }

    /// Ends an HTTP response without a further message. A byte stream goes on, since it belongs to all requests.
    pub(super) fn end(&self) {
        match self {
            Sink::Http(buffer) => buffer.end(),
            Sink::Stdio(_) => {}
        }
    }

    /// Returns the event buffer of an HTTP response.
    pub(super) fn event_buffer(&self) -> Option<&Arc<EventBuffer>> {
        match self {
            Sink::Http(buffer) => Some(buffer),
            Sink::Stdio(_) => None,
        }
    }
}
