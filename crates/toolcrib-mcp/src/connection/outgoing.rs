//! Types of the request path: a request before and after encoding, its deadline and callbacks, and the results of
//! sending a message and of dispatching a received one.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::in_flight::SendState;
use crate::options::{NotificationHandler, Relay, RequestOptions, ServerRequestHandler};

/// A request before it is encoded and has an id.
#[derive(Clone)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: &'a str,
    /// A JSON object.
    pub(crate) params: Option<&'a RawValue>,
    /// Sent with the request over HTTP; ignored by the other transports.
    pub(crate) headers: HeaderMap,
    /// Replaces capabilities, answers and state with those of a downstream client.
    pub(crate) relay: Option<&'a Relay>,
}

/// Deadline, cancellation and callbacks of one request.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// Covers the whole request: sending, waiting, session renewal and `input_required` rounds.
    pub(crate) deadline: Instant,
    /// Set if the caller wants progress; the request then carries a progress token.
    pub(crate) progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// Fires when the caller cancels the request.
    pub(crate) cancel: CancellationToken,
    pub(crate) handler: Option<ServerRequestHandler>,
    pub(crate) on_notification: Option<NotificationHandler>,
}

/// An encoded message for the transport.
pub(crate) struct OutgoingMessage<'a> {
    /// `None` for a message that expects no response.
    pub(crate) id: Option<u64>,
    /// Empty for a response to a request of the server.
    pub(crate) method: &'a str,
    /// The JSON text. The transport takes it when it sends the message.
    pub(crate) text: String,
    /// Headers of this message over HTTP, taken by the transport.
    pub(crate) headers: HeaderMap,
    /// Shared with the guard of the request, which may cancel the message while it is queued.
    pub(crate) send_state: Arc<SendState>,
}

/// Result of sending a message.
pub(crate) enum DeliveryStatus {
    /// Sent; over Streamable HTTP the response was dispatched, too.
    Sent,
    /// The server no longer knows the session and did not process the message.
    SessionLost,
}

/// Kind of a received text. For a batch, the last response or error; HTTP uses it to decide whether the POST was
/// answered.
pub(crate) enum DispatchOutcome {
    /// The response to the request with this id.
    Response(u64),
    /// An error that names no request. Over HTTP it answers the request it came back for.
    ErrorWithoutId(crate::error::RpcError),
    /// A request or notification of the server.
    Other,
    /// Not a JSON-RPC message.
    Ignored,
}

impl DispatchOutcome {
    /// Combines with a request or notification of the same batch; a response takes precedence.
    pub(super) fn or_other(self) -> DispatchOutcome {
        match self {
            DispatchOutcome::Response(_) | DispatchOutcome::ErrorWithoutId(_) => self,
            DispatchOutcome::Other | DispatchOutcome::Ignored => DispatchOutcome::Other,
        }
    }
}

impl RequestContext {
    /// Starts the clock: the timeout of `options` counts from now.
    pub(crate) fn new(options: &RequestOptions) -> RequestContext {
        RequestContext {
            deadline: deadline_after(options.timeout),
            progress: options.progress.clone(),
            cancel: options.cancel.clone(),
            handler: options.handler.clone(),
            on_notification: options.on_notification.clone(),
        }
    }

    /// A context without callbacks, for requests that the client makes by itself.
    pub(crate) fn with_deadline(deadline: Instant) -> RequestContext {
        RequestContext {
            deadline,
            progress: None,
            cancel: CancellationToken::new(),
            handler: None,
            on_notification: None,
        }
    }
}

/// Returns the instant `duration` from now. Capped, because adding `Duration::MAX` to an instant overflows.
pub(crate) fn deadline_after(duration: Duration) -> Instant {
    // Ten years, in place of "for ever".
    const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(MAX_WAIT)
}
