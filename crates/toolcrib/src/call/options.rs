//! Options of a call: timeout, cancellation, client, and the channels for what a source sends during the call.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{Relay, ServerRequestHandler};

use crate::connector::CallContext;
use crate::trace::Trace;

/// Identifies a client connection. The component that assigns the ids reports the end of a connection with
/// [`Registry::client_disconnected`](crate::Registry::client_disconnected).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A notification that a source sent during a call, such as `notifications/message`.
#[derive(Debug, Clone)]
pub struct CallNotification {
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

/// Options of one call; the default is a call without a client, with the source's own timeout.
#[derive(Default)]
pub struct CallOptions {
    /// Timeout of the call; `None` for the source's `call_timeout`.
    pub timeout: Option<Duration>,
    /// Receives the parameters of each progress notification.
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    /// Cancels the call, at its source too.
    pub cancel: CancellationToken,
    /// The user has confirmed the call, as the policy verdict `ask` demands.
    pub consent: bool,
    /// Do not discover the source to find the tool; the call itself still contacts its source.
    pub skip_discovery: bool,
    /// The client connection that calls, if any.
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this call: pages of a large result can be read by anyone who knows
    /// the cursor, and no connection to the source is kept for this client alone.
    pub stateless: bool,
    /// The caller's `_meta`, a JSON object. Passed on to the source, except for the keys that the protocol reserves.
    pub meta: Option<Box<RawValue>>,
    /// Answers requests that the source sends during this call: elicitation, sampling.
    pub on_server_request: Option<ServerRequestHandler>,
    /// Passes `input_required` of a 2026-07-28 source on to a caller of that version, which answers it with a new call.
    pub relay: Option<Relay>,
    /// Receives the source's notifications for this call. Those that do not fit into the channel are dropped.
    pub notifications: Option<mpsc::Sender<CallNotification>>,
    /// Minimum level of log messages that the caller wants; sent to sources that support it.
    pub log_level: Option<String>,
    /// Keep pages of a large result valid against the tool's output schema: the structured content is never cut, and a
    /// page is an error if the structured content alone is too large.
    pub enforce_output_schema: bool,
    /// Return the whole result at once, however large.
    pub unpaged: bool,
    /// Trace that the call belongs to. The source receives the span of the call as its parent.
    pub trace: Option<Trace>,
}

impl CallOptions {
    /// Builds the context that is passed to the connector. Caller, trace, recorder and tool caller are left for
    /// the dispatcher to fill in.
    pub(crate) fn call_context(&self, timeout: Duration) -> CallContext {
        CallContext {
            caller: String::new(),
            timeout,
            configured_timeout: self.timeout.unwrap_or(timeout),
            progress: self.progress.clone(),
            cancel: self.cancel.clone(),
            consent: self.consent,
            client: self.client,
            stateless: self.stateless,
            on_server_request: self.on_server_request.clone(),
            relay: self.relay.clone(),
            notifications: self.notifications.clone(),
            log_level: self.log_level.clone(),
            trace: None,
            response_recorder: None,
            tool_caller: None,
        }
    }

    /// Returns the client that may read the pages of a large result; `None` means anyone who knows the cursor.
    pub(crate) fn result_owner(&self) -> Option<ClientId> {
        self.client.filter(|_| !self.stateless)
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CallOptions");
        debug.field("timeout", &self.timeout).field("client", &self.client).field("consent", &self.consent);
        debug.field("has_request_handler", &self.on_server_request.is_some()).finish_non_exhaustive()
    }
}
