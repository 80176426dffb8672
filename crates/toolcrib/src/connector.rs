//! How a source is spoken to: discover, call, ask, close. What lies behind knows no catalogue and makes no policy.

pub mod builtin;
mod http_rejection;
pub mod mcp;
pub mod openapi;
mod tool_result;
pub mod workflow;

mod response_recorder;

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
use toolcrib_core::manifest::SetAsideTool;
use toolcrib_core::{Code, Error, Result};
use toolcrib_mcp::{Relay, ServerRequestHandler};

use crate::call::{CallNotification, ClientId};
use crate::trace::Trace;

pub use mcp::SourceSubscriptions;
pub(crate) use openapi::{DocumentLocation, read_file_blocking};
pub(crate) use response_recorder::ResponseRecorder;
pub(crate) use tool_result::ResultLayout;
pub use tool_result::{NOTES_KEY, ToolResult};

/// Speaks one source's protocol. It keeps no catalogue, makes no policy, and ends every wait at the deadline it is given.
#[async_trait]
pub trait Connector: Send + Sync + std::fmt::Debug {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered>;
    async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure>;
    /// Any other request of the source's protocol, and its result as it came.
    async fn request(&self, request: SourceRequest) -> Result<Box<RawValue>, CallFailure>;
    /// Whether a connection stands now.
    fn is_connected(&self) -> bool;
    /// Ends what was kept for one client alone.
    async fn client_disconnected(&self, _client: ClientId) {}
    /// Whether something that clients rely on is not as it should be, so that [`Connector::tend`] has work.
    fn needs_maintenance(&self) -> bool {
        false
    }
    /// Puts that right, as far as it can be.
    async fn maintain(&self) {}
    /// Gives away what clients watch, for the connector in its place.
    fn take_subscriptions(&self) -> SourceSubscriptions {
        SourceSubscriptions::default()
    }
    /// Watches it from now on.
    fn restore_subscriptions(&self, _watches: SourceSubscriptions) {}
    /// Ends the connection and everything behind it.
    async fn close(&self);
}

#[derive(Debug, Clone)]
pub struct Discovery {
    pub timeout: Duration,
    /// The protocol version found last time.
    pub era: Option<String>,
    /// Whether a call follows, so that the connection is worth keeping.
    pub keep_connection: bool,
    /// What the list we have was read from: when that is the same still, the source need not be read again.
    pub known_versions: Option<DocumentVersions>,
    /// What it is part of; the source is told.
    pub trace: Option<Trace>,
}

/// How documents are recognised, by where they are. A row beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DocumentVersions {
    /// Which reader made the list: another version may make another of the same documents.
    pub reader: String,
    pub documents: BTreeMap<String, DocumentVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentVersion {
    pub etag: Option<String>,
    pub hash: Fingerprint,
}

/// What a source offers, tool by tool, as it came.
#[derive(Debug, Default)]
pub struct Discovered {
    pub tools: Vec<Box<RawValue>>,
    pub excluded: Vec<SetAsideTool>,
    pub era: Option<String>,
    /// The names of the capabilities it announced.
    pub capabilities: Vec<String>,
    /// How long the source thinks its list holds.
    pub ttl_ms: Option<u64>,
    /// The source says that its list is for nobody else.
    pub private: bool,
    /// What the source says about itself, for search.
    pub about: Option<String>,
    /// Where its document says that requests go. Empty for a source that has none, or that says so itself.
    pub servers: BTreeSet<String>,
    /// What all this was read from.
    pub versions: Option<DocumentVersions>,
    /// It is what `known` was: there are no tools here, the list that holds goes on to.
    pub unchanged: bool,
}

#[derive(Debug)]
pub struct ToolCall {
    /// The source's own name.
    pub tool: String,
    pub arguments: Box<RawValue>,
    pub input_schema: Arc<RawValue>,
    /// How it is carried out, where the connector said so when it was discovered.
    pub execution_spec: Option<Arc<RawValue>>,
    /// The caller's `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// Whether it does no harm when it happens twice.
    pub is_idempotent: bool,
    pub context: CallContext,
}

/// A request that is no call.
#[derive(Debug)]
pub struct SourceRequest {
    pub method: String,
    pub params: Option<Box<RawValue>>,
    /// The caller's `_meta`; laid over what `params` has.
    pub meta: Option<Box<RawValue>>,
    pub context: CallContext,
}

/// On whose behalf a source is asked, and how long that one waits.
#[derive(Clone)]
pub struct CallContext {
    /// Who calls a tool, for the log.
    pub caller: String,
    pub timeout: Duration,
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub cancel: CancellationToken,
    /// Somebody said yes to what a policy asks about.
    pub consent: bool,
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this request.
    pub stateless: bool,
    /// Answers what the source asks back.
    pub on_server_request: Option<ServerRequestHandler>,
    /// The caller answers for itself where the source can be spoken to in its version.
    pub relay: Option<Relay>,
    pub notifications: Option<mpsc::Sender<CallNotification>>,
    /// From which level on the caller wants to hear what is logged.
    pub log_level: Option<String>,
    /// The call itself, for those who are asked on its behalf.
    pub trace: Option<Trace>,
    /// Is shown what an API answers.
    pub(crate) response_recorder: Option<ResponseRecorder>,
}

/// Why a call has no answer, and what that says about the source.
#[derive(Debug)]
pub enum CallFailure {
    /// The source is alive and refused.
    Rejected(Error),
    /// No answer came, because there was no connection or it broke.
    Unavailable(Error),
    /// No answer came within the source's own deadline.
    TimedOut(Error),
    /// It says nothing about the source: the caller left or waited for less time than the source may take, or a fault was
    /// found before anything was sent.
    Inconclusive(Error),
}

impl CallFailure {
    pub fn into_error(self) -> Error {
        match self {
            CallFailure::Rejected(error)
            | CallFailure::Unavailable(error)
            | CallFailure::TimedOut(error)
            | CallFailure::Inconclusive(error) => error,
        }
    }

    /// The same for another call that failed with it. Its cause was logged with the first.
    pub(crate) fn clone_without_cause(&self) -> CallFailure {
        let copied = |error: &Error| {
            let mut copy = Error::new(error.code, error.message.clone()).with_retryable(error.is_retryable());
            copy.details.clone_from(&error.details);
            copy
        };
        match self {
            CallFailure::Rejected(error) => CallFailure::Rejected(copied(error)),
            CallFailure::Unavailable(error) => CallFailure::Unavailable(copied(error)),
            CallFailure::TimedOut(error) => CallFailure::TimedOut(copied(error)),
            CallFailure::Inconclusive(error) => CallFailure::Inconclusive(copied(error)),
        }
    }

    /// The same with another error.
    pub(crate) fn map_error(self, change: impl FnOnce(Error) -> Error) -> CallFailure {
        match self {
            CallFailure::Rejected(error) => CallFailure::Rejected(change(error)),
            CallFailure::Unavailable(error) => CallFailure::Unavailable(change(error)),
            CallFailure::TimedOut(error) => CallFailure::TimedOut(change(error)),
            CallFailure::Inconclusive(error) => CallFailure::Inconclusive(change(error)),
        }
    }

    pub fn cancelled() -> CallFailure {
        CallFailure::Inconclusive(Error::new(Code::ToolExecutionFailed, "the call was cancelled"))
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Terms");
        shown.field("timeout", &self.timeout).field("client", &self.client).finish_non_exhaustive()
    }
}
