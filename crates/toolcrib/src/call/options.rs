//! On whose behalf a source is asked, and on which terms.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{Relay, ServerRequestHandler};

use crate::connector::CallContext;
use crate::trace::Trace;

/// Which client connection calls. Who numbers them says so with [`Registry::client_gone`](crate::Registry::client_gone)
/// when one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What a source says to the caller of a call under way, such as `notifications/message`.
#[derive(Debug, Clone)]
pub struct CallNotification {
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

#[derive(Default)]
pub struct CallOptions {
    /// The source's `call_timeout` when there is none.
    pub timeout: Option<Duration>,
    /// Gets the parameters of each progress notification.
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub cancel: CancellationToken,
    /// Somebody said yes to what a policy asks about.
    pub consent: bool,
    /// Contact nobody to learn about the tool; the call itself contacts its source.
    pub skip_discovery: bool,
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this call: what is held of a large result is for whoever knows the
    /// cursor, and no connection of its own is kept for it.
    pub stateless: bool,
    /// The caller's `_meta`, an object. It passes to the source, except for what the protocol has in it for itself.
    pub meta: Option<Box<RawValue>>,
    /// Answers what the source asks back during this call: elicitation, sampling.
    pub on_server_request: Option<ServerRequestHandler>,
    /// A caller of 2026-07-28 answers a source of that version for itself: a result may then be `input_required`.
    pub relay: Option<Relay>,
    /// Gets what the source says to this caller. One that does not keep up misses some.
    pub notifications: Option<mpsc::Sender<CallNotification>>,
    /// From which level on the caller wants to hear what is logged; told to sources that want to know.
    pub log_level: Option<String>,
    /// A result that is given in pages is held against the tool's output schema, where there is one: its structured
    /// content is never cut, and where that is too large, the page is an error that says so.
    pub enforce_output_schema: bool,
    /// The whole result at once, however large.
    pub unpaged: bool,
    /// What the call is part of. Its source is told, with the call in its place.
    pub trace: Option<Trace>,
}

impl CallOptions {
    pub(crate) fn call_context(&self, timeout: Duration) -> CallContext {
        CallContext {
            caller: String::new(),
            timeout,
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
        }
    }

    /// Who may read what is held of a large result.
    pub(crate) fn result_owner(&self) -> Option<ClientId> {
        self.client.filter(|_| !self.stateless)
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CallOptions");
        shown.field("timeout", &self.timeout).field("client", &self.client).field("consent", &self.consent);
        shown.field("can_ask_back", &self.on_server_request.is_some()).finish_non_exhaustive()
    }
}
