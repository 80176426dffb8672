//! How a source is spoken to: discover, call, ask, close. What lies behind knows no catalogue and makes no policy.

mod answer;
pub mod builtin;
mod http_refusal;
pub mod mcp;
pub mod openapi;
pub mod workflow;

mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::SetAside;
use toolcrib_core::{Code, Error, Result};
use toolcrib_mcp::{Handler, Relay};

use crate::call::{ClientId, Said};
use crate::trace::Trace;

pub(crate) use answer::Layout;
pub use answer::{Answer, NOTES};
pub use mcp::Watches;
pub(crate) use openapi::{DocumentLocation, read_file_blocking};
pub(crate) use witness::Witness;

/// Speaks one source's protocol. It keeps no catalogue, makes no policy, and ends every wait at the deadline it is given.
#[async_trait]
pub trait Connector: Send + Sync + std::fmt::Debug {
    async fn discover(&self, discovery: Discovery) -> Result<Offer>;
    async fn call(&self, call: Call) -> Result<Answer, CallFailure>;
    /// Any other request of the source's protocol, and its result as it came.
    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure>;
    /// Whether a connection stands now.
    fn connected(&self) -> bool;
    /// Ends what was kept for one client alone.
    async fn client_gone(&self, _client: ClientId) {}
    /// Whether something that clients rely on is not as it should be, so that [`Connector::tend`] has work.
    fn neglected(&self) -> bool {
        false
    }
    /// Puts that right, as far as it can be.
    async fn tend(&self) {}
    /// Gives away what clients watch, for the connector in its place.
    fn hand_over(&self) -> Watches {
        Watches::default()
    }
    /// Watches it from now on.
    fn take_over(&self, _watches: Watches) {}
    /// Ends the connection and everything behind it.
    async fn close(&self);
}

#[derive(Debug, Clone)]
pub struct Discovery {
    pub timeout: Duration,
    /// The protocol version found last time.
    pub era: Option<String>,
    /// Whether a call follows, so that the connection is worth keeping.
    pub keep: bool,
    /// What the list we have was read from: when that is the same still, the source need not be read again.
    pub known: Option<Marks>,
    /// What it is part of; the source is told.
    pub trace: Option<Trace>,
}

/// How documents are recognised, by where they are. A row beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Marks {
    /// Which reader made the list: another version may make another of the same documents.
    pub reader: String,
    pub documents: BTreeMap<String, Mark>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub etag: Option<String>,
    pub hash: Fingerprint,
}

/// What a source offers, tool by tool, as it came.
#[derive(Debug, Default)]
pub struct Offer {
    pub tools: Vec<Box<RawValue>>,
    pub excluded: Vec<SetAside>,
    pub era: Option<String>,
    /// The names of the capabilities it announced.
    pub offers: Vec<String>,
    /// How long the source thinks its list holds.
    pub ttl_ms: Option<u64>,
    /// The source says that its list is for nobody else.
    pub private: bool,
    /// What the source says about itself, for search.
    pub about: Option<String>,
    /// Where its document says that requests go. Empty for a source that has none, or that says so itself.
    pub servers: BTreeSet<String>,
    /// What all this was read from.
    pub marks: Option<Marks>,
    /// It is what `known` was: there are no tools here, the list that holds goes on to.
    pub unchanged: bool,
}

#[derive(Debug)]
pub struct Call {
    /// The source's own name.
    pub tool: String,
    pub arguments: Box<RawValue>,
    pub input_schema: Arc<RawValue>,
    /// How it is carried out, where the connector said so when it was discovered.
    pub backing: Option<Arc<RawValue>>,
    /// The caller's `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// Whether it does no harm when it happens twice.
    pub repeatable: bool,
    pub terms: Terms,
}

/// A request that is no call.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    pub params: Option<Box<RawValue>>,
    /// The caller's `_meta`; laid over what `params` has.
    pub meta: Option<Box<RawValue>>,
    pub terms: Terms,
}

/// On whose behalf a source is asked, and how long that one waits.
#[derive(Clone)]
pub struct Terms {
    /// Who calls a tool, for the log.
    pub caller: String,
    pub timeout: Duration,
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub cancel: CancellationToken,
    /// Somebody said yes to what a policy asks about.
    pub consent: bool,
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this request.
    pub fleeting: bool,
    /// Answers what the source asks back.
    pub back: Option<Handler>,
    /// The caller answers for itself where the source can be spoken to in its version.
    pub relay: Option<Relay>,
    pub said: Option<mpsc::Sender<Said>>,
    /// From which level on the caller wants to hear what is logged.
    pub log_level: Option<String>,
    /// The call itself, for those who are asked on its behalf.
    pub trace: Option<Trace>,
    /// Is shown what an API answers.
    pub(crate) witness: Option<Witness>,
}

/// Why a call has no answer, and what that says about the source.
#[derive(Debug)]
pub enum CallFailure {
    /// The source is alive and refused.
    Refused(Error),
    /// No answer came, because there was no connection or it broke.
    Lost(Error),
    /// No answer came within the source's own deadline.
    Late(Error),
    /// It says nothing about the source: the caller left or waited for less time than the source may take, or a fault was
    /// found before anything was sent.
    Undecided(Error),
}

impl CallFailure {
    pub fn into_error(self) -> Error {
        match self {
            CallFailure::Refused(error)
            | CallFailure::Lost(error)
            | CallFailure::Late(error)
            | CallFailure::Undecided(error) => error,
        }
    }

    /// The same for another call that failed with it. Its cause was logged with the first.
    pub(crate) fn copy(&self) -> CallFailure {
        let copied = |error: &Error| {
            let mut copy = Error::new(error.code, error.message.clone()).with_retryable(error.retryable());
            copy.details.clone_from(&error.details);
            copy
        };
        match self {
            CallFailure::Refused(error) => CallFailure::Refused(copied(error)),
            CallFailure::Lost(error) => CallFailure::Lost(copied(error)),
            CallFailure::Late(error) => CallFailure::Late(copied(error)),
            CallFailure::Undecided(error) => CallFailure::Undecided(copied(error)),
        }
    }

    /// The same with another error.
    pub(crate) fn map(self, change: impl FnOnce(Error) -> Error) -> CallFailure {
        match self {
            CallFailure::Refused(error) => CallFailure::Refused(change(error)),
            CallFailure::Lost(error) => CallFailure::Lost(change(error)),
            CallFailure::Late(error) => CallFailure::Late(change(error)),
            CallFailure::Undecided(error) => CallFailure::Undecided(change(error)),
        }
    }

    pub fn cancelled() -> CallFailure {
        CallFailure::Undecided(Error::new(Code::ToolExecutionFailed, "the call was cancelled"))
    }
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Terms");
        shown.field("timeout", &self.timeout).field("client", &self.client).finish_non_exhaustive()
    }
}
