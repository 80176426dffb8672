//! Types of the request path: a request before and after encoding, and the results of sending a message and of
//! dispatching a received one.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::in_flight::SendState;

/// A request before it is encoded and has an id.
#[derive(Clone)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: &'a str,
    /// A JSON object.
    pub(crate) params: Option<&'a RawValue>,
    /// Sent with the request over HTTP; ignored by the other transports.
    pub(crate) headers: HeaderMap,
}

impl<'a> OutgoingRequest<'a> {
    /// Creates a request without headers.
    pub(crate) fn new(method: &'a str, params: Option<&'a RawValue>) -> OutgoingRequest<'a> {
        OutgoingRequest { method, params, headers: HeaderMap::new() }
    }
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

/// Returns the instant `duration` from now. Capped, because adding `Duration::MAX` to an instant overflows.
pub(crate) fn deadline_after(duration: Duration) -> Instant {
    // Ten years, in place of "for ever".
    const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(MAX_WAIT)
}
