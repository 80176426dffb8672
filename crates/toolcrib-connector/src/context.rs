//! Context of a call: who calls, until when, and how to reach the caller meanwhile. The edge (MCP, REST, the command
//! line, an embedding program) makes it once; everything below, down to the wire, borrows it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_core::Error;
use toolcrib_core::inventory::Actor;
use toolcrib_core::principal::{Principal, PrincipalIdentity};

use crate::clock::deadline_after;
use crate::connector::CallFailure;
use crate::trace::Trace;

/// Identifies a client connection. The component that assigns the ids reports the end of a connection with
/// `Registry::client_disconnected`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Client that may read what is stored of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultOwner {
    /// The connection that called, until it ends.
    Session(ClientId),
    /// The principal that called, where there is no such connection.
    Principal(PrincipalIdentity),
}

/// Context of a call. The default is a call without a client, with the source's own timeout.
#[derive(Clone, Default)]
pub struct CallContext {
    /// Named in logs and in records of calls.
    pub caller: Principal,
    /// Deadline that the caller sets; `None` for the source's `call_timeout`.
    pub deadline: Option<CallDeadline>,
    /// Cancels the call, at its source too.
    pub cancel: CancellationToken,
    /// The caller's reason for cancelling, set before `cancel` fires; passed on to the source.
    pub cancel_reason: Option<Arc<OnceLock<String>>>,
    /// Actor of records that follow from the call, such as a discovery before it; `None` for that of the registry.
    pub actor: Option<Actor>,
    /// Trace that the call belongs to. The source receives the span of the call as its parent.
    pub trace: Option<Trace>,
    /// The user has confirmed the call, as the policy verdict `ask` demands.
    pub consent: bool,
    /// The client connection that calls; `None` for calls by the embedding program.
    pub client: Option<ClientId>,
    /// The client has no connection that outlives this call: pages of a large result can be read by every client of the
    /// same principal, and no connection to the source is kept for this client alone.
    pub stateless: bool,
    /// The caller can read resources: large binary content of an API's response is held and linked to, instead of
    /// included in the result.
    pub hold_binaries: bool,
    /// Protocol era of an MCP source that serves the caller best.
    pub era: EraPreference,
    /// Capabilities that an MCP client declared, a JSON object. An MCP source of 2026-07-28 sees those that can be used
    /// through Toolcrib with each request (see also [`InputRelay`]); an older one sees the extensions among them if its
    /// connection serves this client alone.
    pub capabilities: Option<Arc<RawValue>>,
    /// Receives the parameters of each progress notification.
    pub on_progress: Option<ProgressListener>,
    /// Receives log messages and other notifications that the source sends during the call.
    pub on_notification: Option<NotificationListener>,
    /// Minimum level of log messages that the caller wants; sent to sources that support it.
    pub log_level: Option<String>,
    /// Answers requests that the source sends during the call: elicitation, sampling.
    pub on_question: Option<QuestionHandler>,
    /// Set if the caller answers questions with another call instead; see [`InputRelay`].
    pub input_relay: Option<InputRelay>,
}

/// Protocol era of an MCP source in which a caller can use everything that it supports, such as questions and
/// subscriptions. It matters for sources that speak both eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraPreference {
    /// Whichever connection is open.
    #[default]
    Any,
    /// Versions up to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// Receives the parameters of a progress notification, in the order of arrival. Must not block: the connection to the
/// source waits for it.
pub type ProgressListener = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Receives method and parameters of a notification. Must not block, like a [`ProgressListener`].
pub type NotificationListener = Arc<dyn Fn(&str, Option<&RawValue>) + Send + Sync>;

/// Answers a question of a source.
pub type QuestionHandler =
    Arc<dyn Fn(SourceQuestion) -> BoxFuture<'static, Result<Box<RawValue>, QuestionError>> + Send + Sync>;

/// Request of a source to the caller, such as `elicitation/create`. Untrusted.
#[derive(Debug, Clone)]
pub struct SourceQuestion {
    /// Method, such as `elicitation/create`.
    pub method: String,
    /// Parameters as the source sent them.
    pub params: Option<Box<RawValue>>,
}

/// Why a question has no answer, with the code and data of JSON-RPC. The source receives it unchanged.
#[derive(Debug, Clone)]
pub struct QuestionError {
    /// Error code of JSON-RPC.
    pub code: i64,
    /// Reason, for the source.
    pub message: String,
    /// Further details, as JSON.
    pub data: Option<Box<RawValue>>,
}

/// Marks a call for a client of MCP 2026-07-28. A source of that version sees the client's capabilities, and its
/// `input_required` result is returned to the client, which answers with another call.
#[derive(Debug, Clone)]
pub struct InputRelay {
    /// Capabilities of the client, a JSON object.
    pub capabilities: Box<RawValue>,
    /// The client's answers to an earlier `input_required` result.
    pub responses: Option<Box<RawValue>>,
    /// State that came with that result.
    pub state: Option<Box<RawValue>>,
}

/// Deadline of a call: one for all its waits, from the discovery of the source to the response.
#[derive(Debug, Clone, Copy)]
pub struct CallDeadline {
    /// End of all waits.
    pub at: Instant,
    /// Timeout that the caller or the source set, for messages.
    pub limit: Duration,
    /// Whether the source has at least its own call timeout. Only then does a timeout count against the source. Set by
    /// the dispatcher.
    is_conclusive: bool,
}

impl CallContext {
    /// Returns who may read what is stored of the result: the pages of a large one, and binary content.
    pub fn result_owner(&self) -> ResultOwner {
        match self.client.filter(|_| !self.stateless) {
            Some(client) => ResultOwner::Session(client),
            None => ResultOwner::Principal(self.caller.identity().clone()),
        }
    }
}

impl CallDeadline {
    /// If the steps before a call take less than this, the source has its full timeout, and a timeout counts for the
    /// circuit breaker.
    pub const MIN_DISCOVERY_DURATION: Duration = Duration::from_millis(100);

    /// Starts the clock of a timeout.
    pub fn after(limit: Duration) -> CallDeadline {
        CallDeadline { at: deadline_after(limit), limit, is_conclusive: false }
    }

    /// Starts the clock of the source's own timeout, of which a discovery may have used up a part.
    pub fn for_source(call_timeout: Duration, used: Duration) -> CallDeadline {
        let at = deadline_after(call_timeout.saturating_sub(used));
        CallDeadline { at, limit: call_timeout, is_conclusive: used.is_zero() }
    }

    /// Returns the deadline with the time that is left for the source compared with the source's own timeout. A caller
    /// that sets the same timeout leaves a little less, which does not matter. Repeated after each wait.
    pub fn compared_with(self, call_timeout: Duration) -> CallDeadline {
        CallDeadline { is_conclusive: self.remaining() + Self::MIN_DISCOVERY_DURATION > call_timeout, ..self }
    }

    /// Classifies a timeout: it counts against the source only if the source had its own call timeout.
    pub fn timeout_failure(self, error: Error) -> CallFailure {
        if self.is_conclusive { CallFailure::TimedOut(error) } else { CallFailure::Inconclusive(error) }
    }

    /// Returns the time left; zero once the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CallContext");
        debug.field("caller", &self.caller).field("deadline", &self.deadline).field("client", &self.client);
        debug.finish_non_exhaustive()
    }
}
