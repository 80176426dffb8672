//! On whose behalf a source is asked, and on which terms.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{Handler, Relay};

use crate::connector::Terms;
use crate::trace::Trace;

/// Which client connection calls. Who numbers them says so with [`Registry::client_gone`](crate::Registry::client_gone)
/// when one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What a source says to the caller of a call under way, such as `notifications/message`.
#[derive(Debug, Clone)]
pub struct Said {
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
    pub cached: bool,
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this call: what is held of a large result is for whoever knows the
    /// cursor, and no connection of its own is kept for it.
    pub fleeting: bool,
    /// The caller's `_meta`, an object. It passes to the source, except for what the protocol has in it for itself.
    pub meta: Option<Box<RawValue>>,
    /// Answers what the source asks back during this call: elicitation, sampling.
    pub back: Option<Handler>,
    /// A caller of 2026-07-28 answers a source of that version for itself: a result may then be `input_required`.
    pub relay: Option<Relay>,
    /// Gets what the source says to this caller. One that does not keep up misses some.
    pub said: Option<mpsc::Sender<Said>>,
    /// From which level on the caller wants to hear what is logged; told to sources that want to know.
    pub log_level: Option<String>,
    /// A result that is given in pages is held against the tool's output schema, where there is one: its structured
    /// content is never cut, and where that is too large, the page is an error that says so.
    pub fits_schema: bool,
    /// The whole result at once, however large.
    pub whole: bool,
    /// What the call is part of. Its source is told, with the call in its place.
    pub trace: Option<Trace>,
}

impl CallOptions {
    pub(crate) fn terms(&self, timeout: Duration) -> Terms {
        Terms {
            caller: String::new(),
            timeout,
            progress: self.progress.clone(),
            cancel: self.cancel.clone(),
            consent: self.consent,
            client: self.client,
            fleeting: self.fleeting,
            back: self.back.clone(),
            relay: self.relay.clone(),
            said: self.said.clone(),
            log_level: self.log_level.clone(),
            trace: None,
            witness: None,
        }
    }

    /// Who may read what is held of a large result.
    pub(crate) fn keeper(&self) -> Option<ClientId> {
        self.client.filter(|_| !self.fleeting)
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CallOptions");
        shown.field("timeout", &self.timeout).field("client", &self.client).field("consent", &self.consent);
        shown.field("can_ask_back", &self.back.is_some()).finish_non_exhaustive()
    }
}
