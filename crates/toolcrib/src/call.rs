//! A call: one straight line from a name to an answer, and one code for each step that can fail.

mod arguments;
mod check;
mod options;
mod output;
mod recorder;
mod requests;
mod send;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use toolcrib_core::catalog::Caller;
use toolcrib_core::source::{ResultText, SourceSettings};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::{ParsedToolName, parse_tool_name};
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp};

use crate::connector::{CallContext, CallFailure, ResponseRecorder, ToolCall, ToolResult};
use crate::redact::Redactor;
use crate::refresh::RequiredFreshness;
use crate::registry::{Registry, RegistryInner};
use crate::result_pages::PageShape;
use crate::store::ErrorSummary;
use crate::trace::Trace;
use arguments::{Deadline, ValidatedArguments, invalid_arguments_error};
use check::{check_enabled, check_policy};
use recorder::{CallError, CallProgress, CallRecorder};

pub(crate) use arguments::ValidationPermits;
pub use options::{CallNotification, CallOptions, ClientId};
pub use output::{CallOutput, ResultPage};
pub use requests::McpCapability;

/// A call that ended: what is told of it to those who watch, and no more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallFinished {
    /// By the name that lists have, whatever spelling it was asked for by; one that is not known as it was asked for.
    pub tool: String,
    /// Of a call that came so far as to know it.
    pub source: Option<SourceId>,
    pub caller: String,
    /// `OK`, or the code of what went wrong.
    pub code: &'static str,
    /// When it ended.
    pub at: Timestamp,
    pub elapsed_ms: u64,
}

/// A discovery that took less was none: everything was known.
const MIN_DISCOVERY_DURATION: Duration = Duration::from_millis(100);

/// A call that somebody wishes for.
pub(crate) struct CallRequest<'a> {
    /// Any spelling of it.
    pub(crate) name: &'a str,
    pub(crate) input: Value,
    pub(crate) options: CallOptions,
    /// Is shown what an API answers.
    pub(crate) response_recorder: Option<ResponseRecorder>,
}

impl Registry {
    /// Calls a tool by any spelling of its name.
    pub async fn call(&self, caller: &Caller, name: &str, input: Value, options: CallOptions) -> Result<CallOutput> {
        self.shared.call(caller, CallRequest { name, input, options, response_recorder: None }).await
    }

    /// Why the tools of a source are not known, where they are not.
    pub fn source_failure(&self, id: &SourceId) -> Option<Error> {
        self.shared.explain_source(id)
    }

    /// A page of a large result. Nothing is called again.
    pub fn result_page(&self, client: Option<ClientId>, cursor: &str) -> Result<CallOutput> {
        self.shared.result_pages.read_page(client, cursor)
    }

    /// A client has left: its own connections and what was held for it end.
    pub fn client_disconnected(&self, client: ClientId) {
        self.shared.result_pages.remove_client(client);
        for connector in self.shared.connectors.connectors() {
            self.shared.tasks.spawn(async move { connector.client_disconnected(client).await });
        }
    }

    /// The source that a tool's name leads to: the one it names, or that of the tool where lists are known. Nothing
    /// where there is none, so that nothing has to be discovered to say so.
    pub fn source_for_tool_name(&self, name: &str) -> Result<Option<SourceId>> {
        self.shared.source_for_tool_name(name)
    }

    /// Discovers what a call that is about to be made needs to know: the source in the tool's name if it never was.
    /// Waits as long as the call may take.
    pub async fn discover_for_call(&self, name: &str, options: &CallOptions) -> Result<()> {
        self.shared.discover_for_call(name, options, options.trace.as_ref()).await
    }
}

impl RegistryInner {
    /// The one way to a tool, for agents and for the steps of workflows.
    pub(crate) async fn call(self: &Arc<Self>, caller: &Caller, wish: CallRequest<'_>) -> Result<CallOutput> {
        let mut underway = CallRecorder::start(self, wish.name, &caller.name, wish.options.trace.clone());
        let trace = underway.trace.clone();
        let result = self.execute_call(caller, wish, &trace, &mut underway.progress).await;
        let wrong = match &result {
            Ok(output) if output.is_error() => {
                let message = first_text_block(output.content()).unwrap_or_else(|| "the tool reported an error".into());
                Some(CallError {
                    failure: ErrorSummary::new(Code::ToolExecutionFailed, message),
                    reported_by_tool: true,
                })
            }
            Ok(_) => None,
            Err(error) => Some(CallError { failure: ErrorSummary::from_error(error), reported_by_tool: false }),
        };
        let elapsed_ms = underway.finish(wrong);
        result.map(|mut output| {
            output.elapsed_ms = elapsed_ms;
            output
        })
    }

    async fn execute_call(
        self: &Arc<Self>,
        caller: &Caller,
        wish: CallRequest<'_>,
        trace: &Trace,
        reached: &mut CallProgress,
    ) -> Result<CallOutput> {
        let CallRequest { name, input, options, response_recorder: witness } = wish;
        let began = tokio::time::Instant::now();
        self.discover_for_call(name, &options, Some(trace)).await?;
        let discovered_in = began.elapsed();
        // One moment for all: what is found and what is called must not be of two worlds.
        let now = self.snapshot.load_full();
        now.ensure_usable()?;
        let tool = self.find_tool(&now.catalog, name)?;
        reached.found_tool = Some((tool.source().clone(), tool.name().to_string()));
        check_enabled(&tool)?;
        check_policy(&tool, options.consent)?;
        let calling = tool.call_spec()?;
        let source = now.effective_sources.get(tool.source());
        let defaults = self.default_settings.load_full();
        let settings = source.map_or(&*defaults, |source| &source.settings);
        // Without a timeout of the caller the source's own counts, and what a discovery took is part of it.
        let own = options.timeout.is_none() && discovered_in < MIN_DISCOVERY_DURATION;
        let timeout = options.timeout.unwrap_or(settings.call_timeout()).saturating_sub(discovered_in);
        let deadline = Deadline::after(timeout);
        let validated =
            self.validation_permits.validate(tool.source(), calling, input, deadline, &options.cancel).await?;
        let ValidatedArguments { arguments: input, note } =
            validated.map_err(|faults| invalid_arguments_error(tool.name().as_str(), &faults))?;

        reached.called_tool = Some(tool.id());
        let call = ToolCall {
            tool: tool.original_name().to_owned(),
            arguments: to_raw_value(&input).context(Code::Internal, "write the arguments")?,
            input_schema: calling.input_schema.clone(),
            execution_spec: calling.execution_spec.clone(),
            meta: options.meta.clone(),
            is_idempotent: calling.hints.read_only_hint || calling.hints.idempotent_hint,
            context: CallContext {
                caller: caller.name.clone(),
                trace: Some(trace.clone()),
                response_recorder: witness,
                // A call with the source's own timeout tells something about the source if it is late, so that one stays.
                ..options.call_context(if own { settings.call_timeout() } else { deadline.remaining() })
            },
        };
        let answer = match source {
            Some(source) => self.send_call(source, call).await?,
            // A tool of the embedding host is behind no connection.
            None => self.connectors.builtins().call(call).await.map_err(CallFailure::into_error)?,
        };
        let answer = match settings.results() {
            ResultText::Clean => strip_hidden_text(answer).await?,
            ResultText::Raw => answer,
        };
        let answer = match note {
            Some(note) => add_note(answer, note).await?,
            None => answer,
        };
        let (id, limit) = (tool.source().clone(), settings.result_limit());
        if options.unpaged || answer.raw.get().len() as u64 <= limit {
            return Ok(CallOutput::new(id, answer, None));
        }
        let declared = options.enforce_output_schema && tool.tool().is_ok_and(|tool| tool.output_schema.is_some());
        let shape = if declared { PageShape::Declared } else { PageShape::Free };
        // Splitting a very large result takes a while: not on a thread that others wait for.
        let (shared, keeper) = (self.clone(), options.result_owner());
        let splitting =
            tokio::task::spawn_blocking(move || shared.result_pages.store(id, keeper, answer, limit, shape));
        splitting.await.context(Code::Internal, "a result could not be split")?
    }

    /// Discovers the source in a tool's name, within the time of the call and for as long as its caller is there.
    /// What is known is not waited for: a list that lacks the tool answers at once, as does a bare name that no list
    /// has.
    async fn discover_for_call(
        self: &Arc<Self>,
        name: &str,
        options: &CallOptions,
        trace: Option<&Trace>,
    ) -> Result<()> {
        let need = if options.skip_discovery { RequiredFreshness::Cached } else { RequiredFreshness::Discovered };
        let Some(id) = self.source_for_tool_name(name)? else {
            if need != RequiredFreshness::Cached && self.options.revalidate {
                // The next call may find it.
                self.refresh_in_background();
            }
            return Ok(());
        };
        let limit = options.timeout.unwrap_or_else(|| {
            let now = self.snapshot.load();
            let settings = now.effective_sources.get(&id).map(|source| &source.settings);
            settings.map_or_else(|| self.default_settings.load().call_timeout(), SourceSettings::call_timeout)
        });
        tokio::select! {
            biased;
            _discovered = self.ensure_freshness(need, Some(std::slice::from_ref(&id)), true, trace) => Ok(()),
            () = options.cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep(limit) => {
                let limit = format_duration(limit);
                let message = format!("`{name}` is not known yet: `{id}` was not discovered within {limit}; try again");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }

    fn source_for_tool_name(&self, name: &str) -> Result<Option<SourceId>> {
        let now = self.snapshot.load();
        Ok(match parse_tool_name(name)? {
            ParsedToolName::Qualified { source, .. } => {
                SourceId::from_name(source).ok().filter(|id| now.inventory.source(id).is_some())
            }
            ParsedToolName::Bare(_) => now.catalog.find(name).ok().map(|tool| tool.source().clone()),
        })
    }
}

/// Longest result that is cleaned on the thread of its call. Results up to the usual `result_limit` are, for most of them
/// are only scanned, in less time than another thread takes to begin.
const MAX_INLINE_RESULT_LEN: usize = 256 * 1024;

async fn strip_hidden_text(answer: ToolResult) -> Result<ToolResult> {
    if answer.raw.get().len() <= MAX_INLINE_RESULT_LEN {
        return Ok(answer.without_hidden_characters());
    }
    let cleaning = tokio::task::spawn_blocking(move || answer.without_hidden_characters());
    cleaning.await.context(Code::Internal, "a result could not be cleaned")
}

/// A result that is an error, without the secrets of its source.
async fn redact_result(answer: ToolResult, redactor: Arc<Redactor>) -> Result<ToolResult> {
    if answer.raw.get().len() <= MAX_INLINE_RESULT_LEN {
        return Ok(answer.redact(&redactor));
    }
    let redacting = tokio::task::spawn_blocking(move || answer.redact(&redactor));
    redacting.await.context(Code::Internal, "a result could not be redacted")
}

/// Adds a note to a result, on a blocking thread: the whole of it is written anew.
async fn add_note(answer: ToolResult, note: String) -> Result<ToolResult> {
    let noted = tokio::task::spawn_blocking(move || answer.with_note(&note));
    noted.await.context(Code::Internal, "a note could not be added to the result")
}

/// The beginning of the first text block, for counters.
fn first_text_block(content: &str) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(content).ok()?;
    let text = blocks.iter().find_map(|block| block.get("text")?.as_str())?;
    Some(sanitize_truncated(text, 200))
}
