//! The [`Connector`] trait (discover, call, request, close) and the types that pass through it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;
use toolcrib_core::features::OfferedFeatures;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::context::{CallContext, CallDeadline, ClientId};
use crate::document::DocumentVersions;
use crate::secret::ReferenceValues;
use crate::tool_caller::{ResponseRecorder, ToolCaller};
use crate::tool_result::ToolResult;
use crate::trace::Trace;

/// Speaks one source's protocol. An implementation keeps no catalogue, makes no policy decision, and ends every wait at
/// the deadline it is given.
#[async_trait]
pub trait Connector: Send + Sync + std::fmt::Debug {
    /// Reads the tool list of the source.
    async fn discover(&self, discovery: Discovery) -> Result<Discovered>;
    /// Calls one tool of the source.
    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure>;
    /// Sends any other request of the source's protocol and returns its result unchanged. Fails for a source that is no
    /// MCP server.
    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        let SourceRequest { source, method, .. } = request;
        let message = format!("`{source}` is not an MCP server and does not support `{method}`");
        Err(CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message)))
    }
    /// Whether a connection is open now. Does not wait for one that is being established.
    fn is_connected(&self) -> bool {
        false
    }
    /// Releases connections, subscriptions and other state held for this client alone.
    async fn client_disconnected(&self, _client: ClientId) {}
    /// Whether [`Connector::maintain`] has work, such as a lost connection that resource subscriptions depend on.
    fn needs_maintenance(&self) -> bool {
        false
    }
    /// Reconnects and resubscribes as far as possible. Failures are retried by a later call.
    async fn maintain(&self) {}
    /// Moves the clients' resource subscriptions out, for the connector that replaces this one.
    fn take_subscriptions(&self) -> SourceSubscriptions {
        SourceSubscriptions::default()
    }
    /// Continues the subscriptions of the connector that this one replaces.
    fn restore_subscriptions(&self, _subscriptions: SourceSubscriptions) {}
    /// Closes all connections and ends the processes behind them. Calls in flight may finish first.
    async fn close(&self) {}
}

/// Parameters of one discovery.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Limit for the whole discovery, connecting included.
    pub timeout: Duration,
    /// MCP protocol version found by the last discovery; saves a probe.
    pub era: Option<String>,
    /// Whether a call follows, so that a new connection is kept open for it.
    pub keep_connection: bool,
    /// Documents that the stored tool list was read from. If they are unchanged, the source is not parsed again.
    pub known_versions: Option<DocumentVersions>,
    /// Values of the source's references, read for this discovery.
    pub references: Arc<ReferenceValues>,
    /// Trace that the discovery belongs to; propagated to the source.
    pub trace: Option<Trace>,
}

/// Outcome of a discovery: the tool list and facts about the source, as the source sent them.
#[derive(Debug, Default)]
pub struct Discovered {
    /// Tool definitions in MCP form, as raw JSON.
    pub tools: Vec<Box<RawValue>>,
    /// Tools left out of the list, with the reason.
    pub skipped: Vec<SkippedTool>,
    /// Negotiated MCP protocol version; `None` for sources that are no MCP server.
    pub era: Option<String>,
    /// Names of the MCP capabilities that the server announced.
    pub capabilities: Vec<String>,
    /// Time to live of the list, if the source declares one.
    pub ttl_ms: Option<u64>,
    /// The source declares its list private: it must not be shared with other users.
    pub private: bool,
    /// Title, description and instructions of the source, as text for search.
    pub about: Option<String>,
    /// Prompts, resources and instructions of an MCP server; `None` where the discovery tells nothing about them.
    pub features: Option<OfferedFeatures>,
    /// Prompts and resources of an MCP server that are still being read; `None` if `features` has them, or if the
    /// discovery tells nothing about them.
    pub pending_features: Option<PendingFeatures>,
    /// Servers that the document sends requests to. Empty for sources without a document, and where the configuration
    /// names the server itself.
    pub servers: BTreeSet<String>,
    /// Versions of the documents that were read; `None` if nothing can be recognised next time.
    pub versions: Option<DocumentVersions>,
    /// Set when the documents are unchanged since `known_versions`. `tools` is empty and the stored manifest stays
    /// current.
    pub unchanged: bool,
}

/// Prompts and resources of an MCP server that are being read. Tools do not wait for them. Each item of the stream
/// replaces the one before; the last one is complete. The stream ends within the timeout of the discovery; when the
/// connector closes, it ends without a complete item. Dropping the stream cancels the requests and closes a connection
/// that was opened for them.
pub struct PendingFeatures(pub BoxStream<'static, FeatureReading>);

impl fmt::Debug for PendingFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingFeatures").finish_non_exhaustive()
    }
}

/// Prompts and resources as far as they were read.
#[derive(Debug, Default)]
pub struct FeatureReading {
    /// The lists; one that was not read leaves the known one in place.
    pub offered: OfferedFeatures,
    /// Lists that could not be read, by method, with the reason.
    pub failed_lists: Vec<SkippedTool>,
    /// Smallest time to live of the lists that declare one.
    pub ttl_ms: Option<u64>,
    /// The source declares one of its lists private.
    pub private: bool,
    /// Whether every list was read or failed.
    pub is_complete: bool,
}

/// One call of one tool.
#[derive(Clone)]
pub struct ToolCall<'a> {
    /// Name of the tool at its source, without the source prefix.
    pub tool: &'a str,
    /// Validated against the tool's schema by the call path.
    pub arguments: &'a RawValue,
    /// Schema as listed; the MCP client reads header annotations from it.
    pub input_schema: &'a RawValue,
    /// Execution specification that the connector attached to the tool at discovery, for tools that are no MCP tools.
    pub execution_spec: Option<&'a RawValue>,
    /// The caller's `_meta`, passed on to an MCP server.
    pub meta: Option<&'a RawValue>,
    /// Whether the call may be repeated after it was sent.
    pub is_idempotent: bool,
    /// Whether an MCP server wants the tool called as a task (`execution.taskSupport: required`).
    pub requires_task: bool,
    /// Deadline of this call; `context.deadline` is what the caller asked for, if anything.
    pub deadline: CallDeadline,
    /// Caller, cancellation and listeners, as the edge made them.
    pub context: &'a CallContext,
    /// Span of this call, propagated to the source; `context.trace` is its parent.
    pub span: Option<&'a Trace>,
    /// Records HTTP responses for the steps of a workflow.
    pub response_recorder: Option<&'a ResponseRecorder>,
    /// Calls tools of other sources, for the steps of a workflow.
    pub tool_caller: Option<&'a Arc<dyn ToolCaller>>,
}

/// A request of the source's protocol that is no tool call, such as `resources/read`.
#[derive(Debug, Clone)]
pub struct SourceRequest<'a> {
    /// Source that it is sent to.
    pub source: &'a SourceId,
    /// Method of the protocol, such as `resources/read`.
    pub method: &'a str,
    /// Parameters, passed on unchanged.
    pub params: Option<&'a RawValue>,
    /// Deadline of this request.
    pub deadline: CallDeadline,
    /// Caller, cancellation and listeners.
    pub context: &'a CallContext,
}

/// Resource subscriptions of a source, moved to the new connector when the source is reconfigured: the connection of a
/// client, `None` for the shared one, with the subscriptions over it.
#[derive(Debug, Default)]
pub struct SourceSubscriptions(pub Vec<(Option<ClientId>, SubscribersByUri)>);

/// Subscribed clients by resource URI; `None` stands for callers without a client id.
pub type SubscribersByUri = BTreeMap<String, BTreeSet<Option<ClientId>>>;

impl SourceSubscriptions {
    /// Returns every subscribed URI once.
    pub fn uris(&self) -> BTreeSet<&String> {
        self.0.iter().flat_map(|(_, uris)| uris.keys()).collect()
    }
}

/// Failure of a call, classified by what it says about the health of the source.
#[derive(Debug)]
pub enum CallFailure {
    /// The source is alive and rejected the call.
    Rejected(Error),
    /// No response, because no connection could be made or it broke. Counts against the source.
    Unavailable(Error),
    /// No response within the source's own call timeout. Counts against the source.
    TimedOut(Error),
    /// Says nothing about the source: the caller cancelled, or its timeout is shorter than the source's own, or an
    /// error was found before anything was sent.
    Inconclusive(Error),
}

impl CallFailure {
    /// Drops the classification.
    pub fn into_error(self) -> Error {
        match self {
            CallFailure::Rejected(error)
            | CallFailure::Unavailable(error)
            | CallFailure::TimedOut(error)
            | CallFailure::Inconclusive(error) => error,
        }
    }

    /// Duplicates the failure for another call that waited for the same connection. The cause is dropped: it was logged
    /// with the first.
    pub fn clone_without_cause(&self) -> CallFailure {
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

    /// Changes the error and keeps the classification.
    pub fn map_error(self, change: impl FnOnce(Error) -> Error) -> CallFailure {
        match self {
            CallFailure::Rejected(error) => CallFailure::Rejected(change(error)),
            CallFailure::Unavailable(error) => CallFailure::Unavailable(change(error)),
            CallFailure::TimedOut(error) => CallFailure::TimedOut(change(error)),
            CallFailure::Inconclusive(error) => CallFailure::Inconclusive(change(error)),
        }
    }

    /// Failure of a call that its caller cancelled.
    pub fn cancelled() -> CallFailure {
        CallFailure::Inconclusive(Error::new(Code::ToolExecutionFailed, "the call was cancelled"))
    }
}

/// Omits arguments and `_meta`, which may hold sensitive data.
impl fmt::Debug for ToolCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall").field("tool", &self.tool).field("context", &self.context).finish_non_exhaustive()
    }
}
