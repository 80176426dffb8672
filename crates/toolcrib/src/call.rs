//! Tool calls: one straight function from a name to a result, with one error code for each step that can fail.
//!
//! Steps: count the call for its caller, discover the source if needed, find the tool, check that it is enabled,
//! allowed and may run on this node, validate the arguments, wait for the limits of caller and source, pass the circuit
//! breaker, send, clean and page the result. The steps are in the submodules; the protocols are left to the connectors.
//!
//! ```text
//! step                                       code if it fails
//! calls per minute of the caller             RATE_LIMITED
//! discover the source, if unknown            TOOL_UNAVAILABLE
//! find the tool, check that it is enabled    TOOL_NOT_IMPLEMENTED; TOOL_UNAVAILABLE if its source has no list
//! policy                                     FORBIDDEN
//! the source runs on other nodes             TOOL_UNAVAILABLE
//! validate the arguments                     TOOL_INVALID_INPUT
//! limits of caller and source                RATE_LIMITED
//! circuit breaker, connection                TOOL_UNAVAILABLE
//! after the request was sent                 TOOL_EXECUTION_FAILED
//! ```

// The builder of a call; context and result are types of `toolcrib-connector`.
mod builder;

// The steps of a call, and other requests.
mod admission;
mod arguments;
mod find_tool;
mod policy;
mod recorder;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_catalog::{CatalogSource, View};
use toolcrib_core::freshness::Freshness;
use toolcrib_core::json::to_exact_raw;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::{Principal, ViewNarrowing};
use toolcrib_core::source::{ArgumentValidation, ResultText, SourceKind, SourceSettings};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::{ParsedToolName, TaskMode, parse_tool_name};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use crate::connector::{CallFailure, SourceRequest, ToolCall, ToolCaller, ToolResult, run_blocking};
use crate::connectors::Connectors;
use crate::held_binaries::BinaryStore;
use crate::limits::{CallerLimits, LimitScope};
use crate::monitoring::Monitoring;
use crate::options::RegistryOptions;
use crate::refresh::{Refresher, Requester};
use crate::registry::{Registry, Visibility};
use crate::result_pages::{PageShape, PageStore};
use crate::state::State;
use crate::store::ErrorSummary;
use crate::trace::Trace;
use admission::{LimitWaits, acquire_tool_permit};
use arguments::{ValidatedArguments, ValidationPermits, invalid_arguments_error};
use policy::{check_enabled, check_policy};
use recorder::{CallError, CallProgress, CallRecorder};

pub use crate::held_binaries::{HeldBinary, is_held_uri};
pub use crate::notice::CallFinished;
pub use crate::result_pages::is_cursor as is_result_cursor;
pub use builder::Call;
pub(crate) use find_tool::{explain_source, find_readable_tool, find_tool};
pub use requests::McpCapability;
#[cfg(feature = "mcp")]
pub(crate) use requests::format_extension;
pub(crate) use requests::parse_extension;
pub(crate) use toolcrib_connector::ResultOwner;
pub use toolcrib_connector::{
    CallContext, CallDeadline, CallOutput, CallRequest, ClientId, EraPreference, InputRelay, NotificationListener,
    ProgressListener, QuestionError, QuestionHandler, ResultPage, ResultPaging, SourceQuestion,
};

/// Dispatches calls: finds the tool, checks policy and arguments, and sends the call to its source.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) state: Arc<State>,
    connectors: Arc<Connectors>,
    refresher: Arc<Refresher>,
    pub(crate) options: Arc<RegistryOptions>,
    pub(crate) monitoring: Arc<Monitoring>,
    /// Large results that clients read page by page.
    pub(crate) result_pages: PageStore,
    /// Binary content that results link to.
    pub(crate) held_binaries: BinaryStore,
    /// Limits of each caller; those of a source are in its slot.
    pub(crate) caller_limits: CallerLimits,
    /// Bounds the argument validations that run on blocking threads.
    validation_permits: ValidationPermits,
}

/// Origin of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOrigin {
    /// The caller itself.
    Caller,
    /// A workflow that the caller has called. Its step counts for the limits of its source. It neither counts for the
    /// caller again nor waits for the caller's other calls, of which the workflow itself is one.
    WorkflowStep,
}

impl Registry {
    /// Returns a page of a large result. Does not call the tool again. The client and the caller are those of the
    /// context. Fails with `TOOL_INVALID_INPUT` if the cursor is unknown, expired, or belongs to another client or
    /// caller.
    pub fn result_page(&self, cursor: &str, context: &CallContext) -> Result<CallOutput> {
        self.dispatcher.result_pages.read_page(&context.result_owner(), cursor)
    }

    /// Returns binary content that a result links to (`CallContext::hold_binaries`). The client and the caller are those
    /// of the context. Fails with `NOT_FOUND` if nothing is held there for them any more.
    pub fn held_binary(&self, uri: &str, context: &CallContext) -> Result<HeldBinary> {
        self.dispatcher.held_binaries.read(uri, context)
    }

    /// Releases what belongs to a disconnected client: its own connections to sources, its stored result pages and
    /// binaries.
    /// Returns at once; the connections are closed in the background.
    pub fn client_disconnected(&self, client: ClientId) {
        self.dispatcher.result_pages.remove_client(client);
        self.dispatcher.held_binaries.remove_client(client);
        for connector in self.connectors.connectors() {
            self.tasks.spawn(async move { connector.client_disconnected(client).await });
        }
    }
}

impl Dispatcher {
    pub(crate) fn new(
        state: Arc<State>,
        connectors: Arc<Connectors>,
        refresher: Arc<Refresher>,
        monitoring: Arc<Monitoring>,
        options: Arc<RegistryOptions>,
    ) -> Dispatcher {
        let result_pages = PageStore::new(state.node.clone());
        let held_binaries = BinaryStore::new(state.node.clone());
        let caller_limits = CallerLimits::new(state.settings.load().caller_limits);
        let validation_permits = ValidationPermits::default();
        Dispatcher {
            state,
            connectors,
            refresher,
            options,
            monitoring,
            result_pages,
            held_binaries,
            caller_limits,
            validation_permits,
        }
    }

    /// Calls a tool for a caller.
    pub(crate) async fn call(self: &Arc<Self>, request: CallRequest<'_>, context: &CallContext) -> Result<CallOutput> {
        self.record_call(request, context, CallOrigin::Caller).await
    }

    /// Calls a tool and records the outcome. The only path to a tool, for agents as well as for workflow steps.
    async fn record_call(
        self: &Arc<Self>,
        request: CallRequest<'_>,
        context: &CallContext,
        origin: CallOrigin,
    ) -> Result<CallOutput> {
        let mut recorder = CallRecorder::start(self, request.name, context, origin);
        let trace = recorder.trace.clone();
        let result = self.execute_call(request, context, origin, &trace, &mut recorder.progress).await;
        // A result with `isError` counts as a failure of the tool, although the call itself succeeded.
        let error = match &result {
            Ok(output) if output.is_error() => {
                let message = first_text_block(output.content()).unwrap_or_else(|| "the tool reported an error".into());
                Some(CallError {
                    failure: ErrorSummary::new(Code::ToolExecutionFailed, message),
                    reported_by_tool: true,
                })
            }
            Ok(_) => None,
            Err(failure) => Some(CallError { failure: ErrorSummary::from_error(failure), reported_by_tool: false }),
        };
        let elapsed_ms = recorder.finish(error);
        result.map(|mut output| {
            output.elapsed_ms = elapsed_ms;
            output
        })
    }

    /// The steps of a call. `progress` is updated on the way, so that the recorder knows how far a failed call came.
    async fn execute_call(
        self: &Arc<Self>,
        request: CallRequest<'_>,
        context: &CallContext,
        origin: CallOrigin,
        trace: &Trace,
        progress: &mut CallProgress,
    ) -> Result<CallOutput> {
        let CallRequest { name, arguments, meta, paging, skip_discovery, response_recorder } = request;
        let began = tokio::time::Instant::now();
        // First of all, so that calls count that fail in one of the steps below: they cost work too.
        let limited_caller = match origin {
            CallOrigin::Caller => self.caller_limits.find(&context.caller),
            CallOrigin::WorkflowStep => None,
        };
        if let Some(caller) = &limited_caller {
            caller.limiter.count_call(LimitScope::Caller, began)?;
        }
        if !skip_discovery {
            self.discover_for_call(name, context, Some(trace)).await?;
        }
        let discovered_in = began.elapsed();
        // One snapshot for the whole call: lookup, policy and source must be of the same version.
        let snapshot = self.state.snapshot();
        snapshot.ensure_usable()?;
        let scope = snapshot.scope(&context.caller);
        let view = View::for_scope(snapshot.catalog.clone(), &scope);
        let tool = find_tool(&snapshot, &view, &context.caller, name, self.state.now())?;
        progress.found_tool = Some((tool.source().clone(), tool.name().to_string()));
        // Refused calls end here. They are counted for their source in the metrics, but not in the tool's statistics.
        check_enabled(&tool)?;
        check_policy(&tool, &scope, context.consent)?;
        snapshot.ensure_may_start(tool.source())?;
        let call_spec = tool.call_spec()?;
        let source = snapshot.effective_sources.get(tool.source());
        let configured = self.state.settings.load_full();
        let settings = source.map_or(&configured.defaults, |source| &source.settings);
        // Without a deadline of the caller, the source's own timeout applies; a discovery before the call counts towards
        // it.
        let call_timeout = settings.call_timeout();
        let used = if discovered_in < CallDeadline::MIN_DISCOVERY_DURATION { Duration::ZERO } else { discovered_in };
        let deadline = context.deadline.unwrap_or_else(|| CallDeadline::for_source(call_timeout, used));
        let validated =
            self.validation_permits.validate(tool.source(), call_spec, arguments, deadline.at, &context.cancel).await?;
        // A workflow step sends its body apart from the arguments if their schema does not apply to it.
        let body = response_recorder.and_then(|recorder| recorder.undeclared.body.as_ref());
        let validated = match body {
            Some((argument, _)) => validated.or_else(|invalid| invalid.without_missing(argument)),
            None => validated,
        };
        let validated = match (validated, settings.validate()) {
            (Err(invalid), ArgumentValidation::Lenient) => invalid.accept_leniently(),
            (validated, _) => validated,
        };
        let ValidatedArguments { arguments, note } =
            validated.map_err(|invalid| invalid_arguments_error(tool.name().as_str(), &invalid.faults))?;
        // Only a call with the source's full timeout says something about the source when it times out: then it counts
        // for the circuit breaker, so the source's own timeout begins after the validation.
        let mut deadline = match context.deadline {
            Some(deadline) => deadline.compared_with(call_timeout),
            None if used.is_zero() => CallDeadline::for_source(call_timeout, used),
            None => deadline,
        };

        // Calls wait here, and not earlier, so that a call that cannot succeed fails at once. The permits are held until
        // the call has ended.
        let waits = LimitWaits { context, deadline: &mut deadline, call_timeout };
        let _permits =
            self.acquire_limit_permits(limited_caller.as_ref(), source.map(|source| &**source), waits).await?;

        // From here on the source may be contacted, so the call counts in the statistics of the tool.
        progress.called_tool = Some(tool.id());
        let arguments = to_exact_raw(&arguments).context(Code::Internal, "write the arguments")?;
        let tool_caller: Arc<dyn ToolCaller> = self.clone();
        let call = ToolCall {
            tool: tool.original_name(),
            arguments: &arguments,
            input_schema: &call_spec.input_schema,
            execution_spec: call_spec.execution_spec.as_deref(),
            meta: meta.as_deref(),
            is_idempotent: call_spec.hints.read_only_hint || call_spec.hints.idempotent_hint,
            requires_task: call_spec.task_support == TaskMode::Required,
            deadline,
            context,
            span: Some(trace),
            response_recorder,
            tool_caller: Some(&tool_caller),
        };
        let result = match source {
            Some(source) => self.send_call(source, call).await?,
            // A tool that the host program registered has no connection.
            None => self.connectors.builtins().call(&call).await.map_err(CallFailure::into_error)?,
        };
        // Clean before the note is added and before the size is compared: only what the source sent needs it, and
        // removed characters do not count towards `result_limit`.
        let result = match settings.results() {
            ResultText::Clean => rewrite_result(result, ToolResult::without_hidden_characters).await?,
            ResultText::Raw => result,
        };
        let result = match note {
            Some(note) => rewrite_result(result, move |result| result.with_note(&note)).await?,
            None => result,
        };
        // Only APIs: embedded resources of an MCP server are passed on as it sent them.
        let is_api = source.is_some_and(|source| matches!(source.kind, SourceKind::OpenApi(_)));
        let result = if context.hold_binaries && is_api {
            let dispatcher = self.clone();
            let context = context.clone();
            let limit = settings.result_limit();
            rewrite_result(result, move |result| dispatcher.held_binaries.hold(result, limit, &context)).await?
        } else {
            result
        };
        // Workflow steps and the command line take results whole, whatever their size.
        let id = tool.source().clone();
        let limit = settings.result_limit();
        if paging == ResultPaging::Whole || result.raw.get().len() as u64 <= limit {
            return Ok(CallOutput::new(id, result, None));
        }
        // The result is too large for one response: store it and return its first page.
        let has_output_schema = || tool.tool().is_ok_and(|tool| tool.output_schema.is_some());
        let shape = if paging == ResultPaging::DeclaredPages && has_output_schema() {
            PageShape::Declared
        } else {
            PageShape::Free
        };
        // Splitting a very large result takes a while, so it runs on a blocking thread.
        let dispatcher = self.clone();
        let owner = context.result_owner();
        run_blocking(move || dispatcher.result_pages.store(id, owner, result, limit, shape)).await
    }

    /// Sends a call to its source and reports the outcome to the circuit breaker.
    async fn send_call(&self, source: &Source, mut call: ToolCall<'_>) -> Result<ToolResult> {
        self.state.snapshot().ensure_can_contact(&source.id)?;
        let slot = self.connectors.slot(source);
        // Held until the call has ended.
        let _permit = acquire_tool_permit(&slot, source, &mut call).await?;
        let guard = self.admit_call(&slot, source, call.context, &mut call.deadline).await?;
        let result = slot.connector.call(&call).await;
        self.refresher.compare_values(source, &slot.references);
        let result = guard.report(Some(call.tool), result)?;
        // Servers that repeat their credentials, e.g. a header with a token, do it in error results. Successful results
        // pass unchanged.
        if !result.layout.is_error {
            return Ok(result);
        }
        let redactor = slot.redactor();
        rewrite_result(result, move |result| result.redact(&redactor)).await
    }

    /// Sends any other request to its source. The concurrency limit of tools does not apply.
    async fn send_request(&self, source: &Source, mut request: SourceRequest<'_>) -> Result<Box<RawValue>> {
        self.state.snapshot().ensure_can_contact(&source.id)?;
        let slot = self.connectors.slot(source);
        let guard = self.admit_call(&slot, source, request.context, &mut request.deadline).await?;
        let result = slot.connector.request(&request).await;
        self.refresher.compare_values(source, &slot.references);
        guard.report(None, result)
    }

    /// Discovers the source in a tool name if it was never discovered, within the timeout and cancellation of the call.
    /// Does not wait when the source's tools are known, even if this tool is not among them, or when the name is a bare
    /// name of no known tool.
    pub(crate) async fn discover_for_call(
        self: &Arc<Self>,
        name: &str,
        context: &CallContext,
        trace: Option<&Trace>,
    ) -> Result<()> {
        let requester = Requester { actor: context.actor.clone(), trace: trace.cloned() };
        let source = self.source_for_tool_name(name)?;
        let Some(id) = source.filter(|id| self.may_wait_for_tool(&context.caller, id, name)) else {
            if self.options.revalidate {
                // The tool may be one of a source that is not discovered yet: a later call may find it.
                self.refresher.refresh_in_background(requester);
            }
            return Ok(());
        };
        self.discover_source(&id, name, context, requester).await
    }

    /// Whether a call may wait for the tools of a source, and name it in an error: its caller may know of the source, or
    /// would see the tool if the source offers it.
    fn may_wait_for_tool(&self, caller: &Principal, id: &SourceId, name: &str) -> bool {
        let snapshot = self.state.snapshot();
        if snapshot.freshness(id, self.state.now()) != Freshness::Missing {
            return true;
        }
        let visibility = Visibility::new(snapshot, caller);
        let would_see = |name| match parse_tool_name(name) {
            Ok(ParsedToolName::Qualified { tool, .. }) => visibility.shows_tool(id, tool),
            Ok(ParsedToolName::Bare(_)) | Err(_) => false,
        };
        visibility.shows_source(id) || would_see(name)
    }

    /// Discovers a source if it was never discovered, within the timeout and cancellation of a request. `item` is the
    /// requested tool, prompt or resource, for the error.
    pub(crate) async fn discover_source(
        self: &Arc<Self>,
        id: &SourceId,
        item: &str,
        context: &CallContext,
        requester: Requester,
    ) -> Result<()> {
        let deadline = context.deadline.unwrap_or_else(|| {
            let snapshot = self.state.snapshot();
            let settings = snapshot.effective_sources.get(id).map(|source| &source.settings);
            let own = settings.map(SourceSettings::call_timeout);
            CallDeadline::after(own.unwrap_or_else(|| self.state.settings.load().defaults.call_timeout()))
        });
        tokio::select! {
            // `biased`: a discovery that has ended is used even if the call was cancelled or timed out at the same
            // moment.
            biased;
            () = self.refresher.ensure_discovered_for_call(id, requester) => Ok(()),
            () = context.cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep_until(deadline.at) => {
                let limit = format_duration(deadline.limit);
                let item = sanitize_truncated(item, 200);
                let message = format!("`{item}` is not known yet: `{id}` was not discovered within {limit}; try again");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }

    /// See [`Sources::find_by_tool_name`](crate::registry::Sources::find_by_tool_name).
    pub(crate) fn source_for_tool_name(&self, name: &str) -> Result<Option<SourceId>> {
        let snapshot = self.state.snapshot();
        Ok(match parse_tool_name(name)? {
            ParsedToolName::Qualified { source, .. } => {
                SourceId::from_name(source).ok().filter(|id| snapshot.inventory.source(id).is_some())
            }
            ParsedToolName::Bare(_) => snapshot.catalog.find(name).ok().map(|tool| tool.source().clone()),
        })
    }
}

#[async_trait]
impl ToolCaller for Dispatcher {
    fn sources(&self) -> Arc<BTreeMap<SourceId, Arc<Source>>> {
        self.state.snapshot().effective_sources.clone()
    }

    async fn source_tools(&self, id: &SourceId, trace: Option<&Trace>) -> Result<Arc<CatalogSource>> {
        let requester = Requester { trace: trace.cloned(), ..Requester::default() };
        self.refresher.ensure_discovered_for_call(id, requester).await;
        // Load the snapshot after waiting: discovery has replaced it.
        let snapshot = self.state.snapshot();
        snapshot.catalog.source(id).cloned().ok_or_else(|| {
            explain_source(&snapshot, id, self.state.now()).unwrap_or_else(|| {
                let error = Error::new(Code::ToolUnavailable, format!("the tools of `{id}` are unknown"));
                let route = format!("POST /api/sources/{id}/refresh");
                error.with_next_step(&format!("toolcrib refresh {id}"), &route, "tries again")
            })
        })
    }

    fn ensure_servers_are_trusted(&self, id: &SourceId, servers: &BTreeSet<String>) -> Result<()> {
        self.state.trust.load().ensure_servers_are_trusted(id, servers)
    }

    fn can_see_tool(&self, caller: &Principal, name: &str) -> bool {
        let view = self.state.snapshot().view(&caller.narrowed(ViewNarrowing::default()));
        view.find_included(name).is_ok_and(|tool| tool.verdict() < Verdict::Hide)
    }

    fn withholds_api_tools(&self, caller: &Principal) -> bool {
        let visibility = Visibility::new(self.state.snapshot(), &caller.narrowed(ViewNarrowing::default()));
        let sources = self.sources();
        let mut apis = sources.values().filter(|source| matches!(source.kind, SourceKind::OpenApi(_)));
        apis.any(|source| visibility.restricts(&source.id))
    }

    async fn call_tool(self: Arc<Self>, request: CallRequest<'_>, context: &CallContext) -> Result<CallOutput> {
        // A step needs the caller's access, but is not limited to the endpoint that the workflow was called at.
        if *context.caller.narrowing() == ViewNarrowing::default() {
            return self.record_call(request, context, CallOrigin::WorkflowStep).await;
        }
        let caller = context.caller.narrowed(ViewNarrowing::default());
        let context = CallContext { caller, ..context.clone() };
        self.record_call(request, &context, CallOrigin::WorkflowStep).await
    }
}

/// Maximum length of a result that is rewritten on the async thread of its call. Results up to the default
/// `result_limit` are shorter; most are only scanned, which takes less time than handing them to another thread.
const MAX_INLINE_RESULT_LEN: usize = 256 * 1024;

/// Rewrites a result: removes hidden characters or secrets, or adds a note. On a blocking thread if it is large.
async fn rewrite_result(
    result: ToolResult,
    rewrite: impl FnOnce(ToolResult) -> ToolResult + Send + 'static,
) -> Result<ToolResult> {
    if result.raw.get().len() <= MAX_INLINE_RESULT_LEN {
        return Ok(rewrite(result));
    }
    run_blocking(move || Ok(rewrite(result))).await
}

/// Returns the beginning of the first text block, as error message for the counters. Limited to 200 characters, because
/// the store keeps it as the last error of the tool.
fn first_text_block(content: &str) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(content).ok()?;
    let text = blocks.iter().find_map(|block| block.get("text")?.as_str())?;
    Some(sanitize_truncated(text, 200))
}
