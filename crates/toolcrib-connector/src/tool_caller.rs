//! Calls of tools by tools: the steps of a workflow call tools of other sources through a [`ToolCaller`], which applies
//! policy, circuit breaker and statistics as to any other call, and read the HTTP responses behind them from a
//! [`ResponseRecorder`], because expressions over status, headers and body need more than a tool result carries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_catalog::CatalogSource;
use toolcrib_core::execution::OperationResponse;
use toolcrib_core::principal::Principal;
use toolcrib_core::{Result, Source, SourceId};

use crate::context::CallContext;
use crate::output::CallOutput;
use crate::trace::Trace;

/// Gives the steps of a workflow access to the other sources of the registry. Each [`ToolCall`](crate::ToolCall) refers to one, so that no
/// connector holds a reference to its registry.
#[async_trait]
pub trait ToolCaller: Send + Sync {
    /// Returns every source with default settings and overrides applied.
    fn sources(&self) -> Arc<BTreeMap<SourceId, Arc<Source>>>;

    /// Returns the tools of a source; discovers it first if it never was. Fails if its tools stay unknown.
    async fn source_tools(&self, id: &SourceId, trace: Option<&Trace>) -> Result<Arc<CatalogSource>>;

    /// Fails when the document of a source names a server that it did not name when the project's file was trusted.
    fn ensure_servers_are_trusted(&self, id: &SourceId, servers: &BTreeSet<String>) -> Result<()>;

    /// Whether a caller may know of a tool, by its name in the catalogue. Denied tools are no secret.
    fn can_see_tool(&self, caller: &Principal, name: &str) -> bool;

    /// Whether there are tools of APIs that a caller may not know of, so that its errors must not name any.
    fn withholds_api_tools(&self, caller: &Principal) -> bool;

    /// Calls a tool like any other caller does, with policy, circuit breaker and statistics.
    async fn call_tool(self: Arc<Self>, request: CallRequest<'_>, context: &CallContext) -> Result<CallOutput>;
}

/// A request to call a tool.
pub struct CallRequest<'a> {
    /// Name of the tool, in any accepted spelling.
    pub name: &'a str,
    /// Arguments as the caller sent them, not yet validated.
    pub arguments: Value,
    /// The caller's `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// How a large result is returned.
    pub paging: ResultPaging,
    /// Do not discover the source to find the tool.
    pub skip_discovery: bool,
    /// Records the HTTP responses behind the call; used by workflow steps.
    pub response_recorder: Option<&'a ResponseRecorder>,
}

/// How a result above the source's `result_limit` is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultPaging {
    /// In pages.
    Pages,
    /// In pages that stay valid against the tool's output schema: the structured content is never cut, and a page is an
    /// error if the structured content alone is too large.
    DeclaredPages,
    /// At once, however large.
    Whole,
}

/// Options of a workflow step for its call, and a shared slot for the last relevant response. Retried responses are not
/// recorded.
#[derive(Clone)]
pub struct ResponseRecorder {
    last_response: Arc<Mutex<Option<OperationResponse>>>,
    /// Handling of redirect responses.
    pub redirects: RedirectMode,
    /// Sent in addition to the arguments of the tool.
    pub undeclared: UndeclaredParameters,
}

/// Parts of a request that a workflow step sends although its operation does not declare them.
#[derive(Clone, Default)]
pub struct UndeclaredParameters {
    /// Media type of the body.
    pub content_type: Option<String>,
    /// Body in an encoding that the operation does not declare, with the name of its argument. It is not among the
    /// arguments, because their schema does not apply to it.
    pub body: Option<(String, Value)>,
    /// Parts of the query, by name.
    pub query: Map<String, Value>,
    /// Headers by name, `Authorization` included. For the server of the API alone.
    pub headers: Map<String, Value>,
}

/// Handling of a redirect response by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectMode {
    /// Sends the request to the target.
    Follow,
    /// Takes it as the final response, because the step of a workflow expects a redirect status.
    Return,
}

impl UndeclaredParameters {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.content_type.is_none() && self.body.is_none() && !self.has_values()
    }

    /// Whether there are values, which may be credentials.
    pub fn has_values(&self) -> bool {
        !self.query.is_empty() || !self.headers.is_empty()
    }
}

/// Omits the values, which may be credentials.
impl fmt::Debug for UndeclaredParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |values: &Map<String, Value>| values.keys().cloned().collect::<Vec<_>>();
        let mut debug = f.debug_struct("UndeclaredParameters");
        debug.field("content_type", &self.content_type);
        debug.field("query", &names(&self.query)).field("headers", &names(&self.headers)).finish()
    }
}

impl ResponseRecorder {
    /// Creates an empty recorder.
    pub fn new(redirects: RedirectMode, undeclared: UndeclaredParameters) -> ResponseRecorder {
        ResponseRecorder { last_response: Arc::default(), redirects, undeclared }
    }

    /// Replaces the recorded response.
    pub fn record(&self, response: OperationResponse) {
        *self.last_response.lock() = Some(response);
    }

    /// Replaces the body: the result of a polled job is a part of its last response.
    pub fn record_body(&self, body: &Value) {
        if let Some(response) = self.last_response.lock().as_mut() {
            response.body = Some(body.clone());
        }
    }

    /// Takes the recorded response out.
    pub fn take(&self) -> Option<OperationResponse> {
        self.last_response.lock().take()
    }
}

/// Omits the response: content of tools does not belong in logs.
impl fmt::Debug for ResponseRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseRecorder").field("redirects", &self.redirects).finish_non_exhaustive()
    }
}

/// Omits arguments and `_meta`, which may hold sensitive data.
impl fmt::Debug for CallRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRequest").field("name", &self.name).finish_non_exhaustive()
    }
}
