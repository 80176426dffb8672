//! A call: one straight line from a name to an answer, and one code for each step that can fail.

mod arguments;
mod ask;
mod check;
mod options;
mod output;
mod send;
mod told;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use toolcrib_core::catalog::Caller;
use toolcrib_core::source::{ResultText, Settings};
use toolcrib_core::text::shown_short;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::{Asked, parse_name};
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp};

use crate::connector::{Answer, Call, CallFailure, Terms, Witness};
use crate::held::Shape;
use crate::redact::Redactor;
use crate::refresh::Need;
use crate::registry::{Registry, Shared};
use crate::store::Failure;
use crate::trace::Trace;
use arguments::{Deadline, Validated, invalid_arguments};
use check::{permit, usable};
use told::{Reached, Underway, Wrong};

pub(crate) use arguments::ValidationPermits;
pub use ask::Offering;
pub use options::{CallOptions, ClientId, Said};
pub use output::{Output, Page};

/// A call that ended: what is told of it to those who watch, and no more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Called {
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
const NO_WAIT: Duration = Duration::from_millis(100);

/// A call that somebody wishes for.
pub(crate) struct Wish<'a> {
    /// Any spelling of it.
    pub(crate) name: &'a str,
    pub(crate) input: Value,
    pub(crate) options: CallOptions,
    /// Is shown what an API answers.
    pub(crate) witness: Option<Witness>,
}

impl Registry {
    /// Calls a tool by any spelling of its name.
    pub async fn call(&self, caller: &Caller, name: &str, input: Value, options: CallOptions) -> Result<Output> {
        self.shared.call(caller, Wish { name, input, options, witness: None }).await
    }

    /// Why the tools of a source are not known, where they are not.
    pub fn source_failure(&self, id: &SourceId) -> Option<Error> {
        self.shared.explain_source(id)
    }

    /// A page of a large result. Nothing is called again.
    pub fn page(&self, client: Option<ClientId>, cursor: &str) -> Result<Output> {
        self.shared.held.page(client, cursor)
    }

    /// A client has left: its own connections and what was held for it end.
    pub fn client_gone(&self, client: ClientId) {
        self.shared.held.forget(client);
        for connector in self.shared.connections.all() {
            self.shared.tasks.spawn(async move { connector.client_gone(client).await });
        }
    }

    /// The source that a tool's name leads to: the one it names, or that of the tool where lists are known. Nothing
    /// where there is none, so that nothing has to be discovered to say so.
    pub fn source_of_name(&self, name: &str) -> Result<Option<SourceId>> {
        self.shared.source_of_name(name)
    }

    /// Discovers what a call that is about to be made needs to know: the source in the tool's name if it never was.
    /// Waits as long as the call may take.
    pub async fn discover_for_call(&self, name: &str, options: &CallOptions) -> Result<()> {
        self.shared.discover_for_call(name, options, options.trace.as_ref()).await
    }
}

impl Shared {
    /// The one way to a tool, for agents and for the steps of workflows.
    pub(crate) async fn call(self: &Arc<Self>, caller: &Caller, wish: Wish<'_>) -> Result<Output> {
        let mut underway = Underway::begin(self, wish.name, &caller.name, wish.options.trace.clone());
        let trace = underway.trace.clone();
        let result = self.call_inner(caller, wish, &trace, &mut underway.reached).await;
        let wrong = match &result {
            Ok(output) if output.is_error() => {
                let message = first_text(output.content()).unwrap_or_else(|| "the tool reported an error".into());
                Some(Wrong { failure: Failure::new(Code::ToolExecutionFailed, message), by_the_tool: true })
            }
            Ok(_) => None,
            Err(error) => Some(Wrong { failure: Failure::of(error), by_the_tool: false }),
        };
        let elapsed_ms = underway.end(wrong);
        result.map(|mut output| {
            output.elapsed_ms = elapsed_ms;
            output
        })
    }

    async fn call_inner(
        self: &Arc<Self>,
        caller: &Caller,
        wish: Wish<'_>,
        trace: &Trace,
        reached: &mut Reached,
    ) -> Result<Output> {
        let Wish { name, input, options, witness } = wish;
        let began = tokio::time::Instant::now();
        self.discover_for_call(name, &options, Some(trace)).await?;
        let discovered_in = began.elapsed();
        // One moment for all: what is found and what is called must not be of two worlds.
        let now = self.now.load_full();
        now.ensure_up_to_date()?;
        let tool = self.look_up(&now.catalog, name)?;
        reached.found = Some((tool.source().clone(), tool.name().to_string()));
        usable(&tool)?;
        permit(&tool, options.consent)?;
        let calling = tool.calling()?;
        let source = now.sources.get(tool.source());
        let defaults = self.defaults.load_full();
        let settings = source.map_or(&*defaults, |source| &source.settings);
        // Without a timeout of the caller the source's own counts, and what a discovery took is part of it.
        let own = options.timeout.is_none() && discovered_in < NO_WAIT;
        let timeout = options.timeout.unwrap_or(settings.call_timeout()).saturating_sub(discovered_in);
        let deadline = Deadline::after(timeout);
        let validated =
            self.validation_permits.validate(tool.source(), calling, input, deadline, &options.cancel).await?;
        let Validated { arguments: input, note } =
            validated.map_err(|faults| invalid_arguments(tool.name().as_str(), &faults))?;

        reached.called = Some(tool.id());
        let call = Call {
            tool: tool.original().to_owned(),
            arguments: to_raw_value(&input).context(Code::Internal, "write the arguments")?,
            input_schema: calling.input_schema.clone(),
            backing: calling.backing.clone(),
            meta: options.meta.clone(),
            repeatable: calling.hints.read_only_hint || calling.hints.idempotent_hint,
            terms: Terms {
                caller: caller.name.clone(),
                trace: Some(trace.clone()),
                witness,
                // A call with the source's own timeout tells something about the source if it is late, so that one stays.
                ..options.terms(if own { settings.call_timeout() } else { deadline.remaining() })
            },
        };
        let answer = match source {
            Some(source) => self.send(source, call).await?,
            // A tool of the embedding host is behind no connection.
            None => self.connections.builtins().call(call).await.map_err(CallFailure::into_error)?,
        };
        let answer = match settings.results() {
            ResultText::Clean => without_hidden(answer).await?,
            ResultText::Raw => answer,
        };
        let answer = match note {
            Some(note) => with_note(answer, note).await?,
            None => answer,
        };
        let (id, limit) = (tool.source().clone(), settings.result_limit());
        if options.whole || answer.raw.get().len() as u64 <= limit {
            return Ok(Output::new(id, answer, None));
        }
        let declared = options.fits_schema && tool.tool().is_ok_and(|tool| tool.output_schema.is_some());
        let shape = if declared { Shape::Declared } else { Shape::Free };
        // Splitting a very large result takes a while: not on a thread that others wait for.
        let (shared, keeper) = (self.clone(), options.keeper());
        let splitting = tokio::task::spawn_blocking(move || shared.held.hold(id, keeper, answer, limit, shape));
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
        let need = if options.cached { Need::Cached } else { Need::Known };
        let Some(id) = self.source_of_name(name)? else {
            if need != Need::Cached && self.options.revalidate {
                // The next call may find it.
                self.ensure_soon();
            }
            return Ok(());
        };
        let limit = options.timeout.unwrap_or_else(|| {
            let now = self.now.load();
            let settings = now.sources.get(&id).map(|source| &source.settings);
            settings.map_or_else(|| self.defaults.load().call_timeout(), Settings::call_timeout)
        });
        tokio::select! {
            biased;
            _discovered = self.ensure(need, Some(std::slice::from_ref(&id)), true, trace) => Ok(()),
            () = options.cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep(limit) => {
                let limit = format_duration(limit);
                let message = format!("`{name}` is not known yet: `{id}` was not discovered within {limit}; try again");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }

    fn source_of_name(&self, name: &str) -> Result<Option<SourceId>> {
        let now = self.now.load();
        Ok(match parse_name(name)? {
            Asked::Qualified { source, .. } => {
                SourceId::from_name(source).ok().filter(|id| now.inventory.source(id).is_some())
            }
            Asked::Bare(_) => now.catalog.find(name).ok().map(|tool| tool.source().clone()),
        })
    }
}

/// Longest result that is cleaned on the thread of its call. Results up to the usual `result_limit` are, for most of them
/// are only scanned, in less time than another thread takes to begin.
const MAX_INLINE_LEN: usize = 256 * 1024;

async fn without_hidden(answer: Answer) -> Result<Answer> {
    if answer.raw.get().len() <= MAX_INLINE_LEN {
        return Ok(answer.without_hidden());
    }
    let cleaning = tokio::task::spawn_blocking(move || answer.without_hidden());
    cleaning.await.context(Code::Internal, "a result could not be cleaned")
}

/// A result that is an error, without the secrets of its source.
async fn redacted(answer: Answer, redactor: Arc<Redactor>) -> Result<Answer> {
    if answer.raw.get().len() <= MAX_INLINE_LEN {
        return Ok(answer.redacted(&redactor));
    }
    let redacting = tokio::task::spawn_blocking(move || answer.redacted(&redactor));
    redacting.await.context(Code::Internal, "a result could not be redacted")
}

/// Adds a note to a result, on a blocking thread: the whole of it is written anew.
async fn with_note(answer: Answer, note: String) -> Result<Answer> {
    let noted = tokio::task::spawn_blocking(move || answer.with_note(&note));
    noted.await.context(Code::Internal, "a note could not be added to the result")
}

/// The beginning of the first text block, for counters.
fn first_text(content: &str) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(content).ok()?;
    let text = blocks.iter().find_map(|block| block.get("text")?.as_str())?;
    Some(shown_short(text, 200))
}
