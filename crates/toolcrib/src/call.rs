//! A call: one straight line from a name to an answer, and one code for each step that can fail.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_core::catalog::{Caller, Catalog, State, ToolRef};
use toolcrib_core::freshness::Freshness;
use toolcrib_core::policy::Verdict;
use toolcrib_core::tool::{Asked, parse_name};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId, Timestamp, ToolId};

use crate::breaker::Admission;
use crate::connections::Slot;
use crate::connector::{Answer, Call, CallFailure};
use crate::refresh::{Need, Outcome};
use crate::registry::{Registry, Shared};
use crate::secret::hide;
use crate::store::Failure;

#[derive(Debug, Default)]
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
}

/// What a tool answered, as it answered.
#[derive(Debug, Clone, Serialize)]
pub struct Output {
    pub content: Box<RawValue>,
    pub structured: Option<Box<RawValue>>,
    /// The tool's own word that it failed.
    pub is_error: bool,
    pub elapsed_ms: u64,
    pub source: SourceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// A tool that was found and may be called, taken out of its catalogue.
struct Found {
    id: ToolId,
    name: String,
    verdict: Verdict,
    input_schema: Box<RawValue>,
    repeatable: bool,
}

impl Registry {
    /// Calls a tool by any spelling of its name.
    pub async fn call(&self, caller: &Caller, name: &str, input: Value, options: CallOptions) -> Result<Output> {
        let began = tokio::time::Instant::now();
        let mut called = None;
        let result = self.call_inner(name, input, options, &mut called).await;
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let failure = match &result {
            Ok(output) if output.is_error => {
                let message = first_text(&output.content).unwrap_or_else(|| "the tool reported an error".into());
                let message = self.shared.hidden(&output.source, &message);
                Some(Failure { code: Code::ToolExecutionFailed, message })
            }
            Ok(_) => None,
            Err(error) => Some(Failure::of(error)),
        };
        let code = failure.as_ref().map_or("OK", |failure| failure.code.as_str());
        tracing::info!(tool = name, caller = caller.name, code, duration_ms = elapsed_ms, "tools.call.finished");
        if let Some(id) = called {
            self.shared.counters.called(&id, self.shared.options.clock.now(), failure);
        }
        result.map(|output| Output { elapsed_ms, ..output })
    }

    async fn call_inner(
        &self,
        name: &str,
        input: Value,
        options: CallOptions,
        called: &mut Option<ToolId>,
    ) -> Result<Output> {
        let began = tokio::time::Instant::now();
        self.discover_in_time(name, &options).await?;
        let timeout = options.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        // One moment for all: what is found and what is called must not be of two worlds.
        let now = self.shared.now.load_full();
        let found = self.shared.usable_tool(&now.catalog, name)?;
        permit(&found, options.consent)?;
        check_arguments(now.catalog.find(&found.name)?, &input)?;

        *called = Some(found.id.clone());
        let source = now.sources.get(&found.id.source).cloned();
        let defaults = self.shared.defaults.load_full();
        let settings = source.as_ref().map_or(&*defaults, |source| &source.settings);
        let call = Call {
            tool: found.id.name.clone(),
            arguments: to_raw_value(&input).context(Code::Internal, "write the arguments")?,
            input_schema: found.input_schema.clone(),
            timeout: timeout.unwrap_or(settings.call_timeout()),
            progress: options.progress,
            cancel: options.cancel.clone(),
            repeatable: found.repeatable,
        };
        let answer = match &source {
            Some(source) => self.shared.send(source, call).await?,
            // A tool of the embedding host is behind no connection.
            None => self.shared.connections.builtins().call(call).await.map_err(CallFailure::into_error)?,
        };
        let answer = bounded(answer, &found, settings.result_limit())?;
        Ok(output(found.id.source, answer))
    }

    /// What has to be discovered first, within the time of the call and for as long as its caller is there.
    async fn discover_in_time(&self, name: &str, options: &CallOptions) -> Result<()> {
        let need = if options.cached { Need::Cached } else { Need::Known };
        let late = async {
            match options.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            known = self.discover_for(name, need, true) => known.map(drop),
            () = options.cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = late => {
                let message = format!("`{name}` is not known yet: its source is still being discovered");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }

    /// Discovers what must be known before a tool can be looked up: its own source when the name tells, else all.
    /// Returns what was done about it.
    pub async fn discover_for(&self, name: &str, need: Need, keep: bool) -> Result<Vec<Outcome>> {
        let catalog = self.catalog();
        let source = match parse_name(name)? {
            Asked::Qualified { source, .. } => SourceId::from_name(source).ok(),
            // Another source may have a tool of this name too, unless it is a built-in's.
            Asked::Bare(_) => {
                catalog.find(name).ok().filter(|tool| tool.part.manner.builtin).map(|tool| tool.source().clone())
            }
        };
        let now = self.shared.now.load_full();
        let known = source.filter(|id| now.inventory.source(id).is_some());
        let among = known.as_ref().map(std::slice::from_ref);
        Ok(self.ensure(need, among, keep).await)
    }
}

impl Shared {
    /// The tool, or why there is none: unknown, hidden, or its source is disabled or has never answered.
    pub(crate) fn look_up<'a>(&self, catalog: &'a Catalog, name: &str) -> Result<ToolRef<'a>> {
        match catalog.find(name) {
            Ok(tool) if tool.verdict() == Verdict::Hide => Err(catalog.unknown(name)),
            Err(error) if error.code == Code::ToolNotImplemented => Err(self.explain(name).unwrap_or(error)),
            found => found,
        }
    }

    /// The tool, or why it cannot be called.
    fn usable_tool(&self, catalog: &Catalog, name: &str) -> Result<Found> {
        let tool = self.look_up(catalog, name)?;
        if tool.state() == State::Disabled {
            let message = format!("`{}` is disabled; `toolcrib enable {}` turns it on", tool.name(), tool.name());
            return Err(Error::new(Code::ToolNotImplemented, message));
        }
        let content = tool.tool()?;
        let hints = content.hints();
        Ok(Found {
            id: tool.id(),
            name: tool.name().to_string(),
            verdict: tool.verdict(),
            input_schema: content.face.input_schema,
            repeatable: hints.read_only_hint || hints.idempotent_hint,
        })
    }

    /// A better reason than "unknown" when the name's source is known.
    fn explain(&self, name: &str) -> Option<Error> {
        let Ok(Asked::Qualified { source, .. }) = parse_name(name) else { return None };
        let id = SourceId::from_name(source).ok()?;
        let now = self.now.load();
        let state = now.inventory.source(&id)?;
        if let Err(forbidden) = self.permitted(&id) {
            return Some(forbidden);
        }
        if !self.enabled_here(&id, state.enabled) {
            let message = format!("the source `{id}` is disabled; `toolcrib enable {id}` turns it on");
            return Some(Error::new(Code::ToolNotImplemented, message));
        }
        if self.freshness(&now, &id) != Freshness::Missing {
            return None;
        }
        let reason = now.standings.get(&id).and_then(|standing| standing.last_error.clone());
        let reason = reason.map_or_else(|| "it was never discovered".to_owned(), |failure| failure.message);
        let message = format!("the tools of `{id}` are not known: {reason}; `toolcrib refresh {id}` tries again");
        Some(Error::new(Code::ToolUnavailable, message))
    }

    /// Sends a call to its source, unless that rests.
    async fn send(&self, source: &Source, call: Call) -> Result<Answer> {
        self.permitted(&source.id)?;
        let slot = self.connections.slot(source);
        let admitted = self.admit(&slot, &source.id)?;
        let answer = slot.connector.call(call).await;
        admitted.judge(&answer, self.options.clock.now());
        answer.map_err(|failure| {
            let mut error = failure.into_error();
            error.message = hide(&error.message, &source.kind);
            error
        })
    }

    /// Text of a source, without what was given to it in confidence.
    fn hidden(&self, id: &SourceId, text: &str) -> String {
        let source = self.now.load().sources.get(id).cloned();
        source.map_or_else(|| text.to_owned(), |source| hide(text, &source.kind))
    }

    fn admit<'a>(&self, slot: &'a Slot, id: &SourceId) -> Result<Admitted<'a>> {
        let admission = slot.breaker().admit(self.options.clock.now()).map_err(|wait| {
            let message = format!("`{id}` failed too often and rests; try again in {} s", wait.as_secs().max(1));
            Error::new(Code::ToolUnavailable, message)
                .with_details(json!({ "retry_after_ms": wait.as_millis() as u64 }))
        })?;
        Ok(Admitted { slot, admission, judged: false })
    }
}

/// A call on its way. Its caller may leave at any point, so that it says nothing must be told by dropping it.
struct Admitted<'a> {
    slot: &'a Slot,
    admission: Admission,
    judged: bool,
}

impl Admitted<'_> {
    /// Only what speaks of the source's own health moves its breaker.
    fn judge(mut self, answer: &Result<Answer, CallFailure>, now: Timestamp) {
        self.judged = true;
        let mut breaker = self.slot.breaker();
        match answer {
            Ok(_) | Err(CallFailure::Refused(_)) => breaker.succeeded(self.admission),
            Err(CallFailure::Lost(_)) => breaker.failed(self.admission, now),
            Err(CallFailure::Undecided(_)) => breaker.undecided(self.admission),
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.judged {
            self.slot.breaker().undecided(self.admission);
        }
    }
}

fn permit(found: &Found, consent: bool) -> Result<()> {
    match found.verdict {
        Verdict::Allow => Ok(()),
        Verdict::Ask if consent => Ok(()),
        Verdict::Ask => {
            let message =
                format!("`{}` needs consent before each call; on the command line, `--yes` gives it", found.name);
            Err(Error::new(Code::Forbidden, message))
        }
        Verdict::Deny => Err(Error::new(Code::Forbidden, format!("a rule of its source denies `{}`", found.name))),
        Verdict::Hide => Err(Error::new(Code::ToolNotImplemented, format!("no tool named `{}`", found.name))),
    }
}

fn check_arguments(tool: ToolRef<'_>, input: &Value) -> Result<()> {
    let faults = tool.validator()?.faults(input);
    if faults.is_empty() {
        return Ok(());
    }
    let listed: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect();
    let message = format!("wrong arguments for `{}`: {}", tool.name(), listed.join("; "));
    Err(Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": faults })))
}

fn bounded(answer: Answer, found: &Found, limit: u64) -> Result<Answer> {
    let length = |part: &Option<Box<RawValue>>| part.as_ref().map_or(0, |part| part.get().len());
    let size = answer.content.get().len() + length(&answer.structured) + length(&answer.meta);
    if size as u64 <= limit {
        return Ok(answer);
    }
    let message = format!(
        "the result of `{}` has {size} bytes, more than the {limit} allowed; ask for less, or raise `result_limit` on `{}`",
        found.name, found.id.source
    );
    Err(Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "bytes": size, "limit": limit })))
}

fn output(source: SourceId, answer: Answer) -> Output {
    let Answer { content, structured, meta, is_error } = answer;
    Output { content, structured, is_error, elapsed_ms: 0, source, meta }
}

/// The beginning of the first text block, for counters.
fn first_text(content: &RawValue) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(content.get()).ok()?;
    let text = blocks.iter().find_map(|block| block.get("text")?.as_str())?;
    Some(toolcrib_core::text::shown_short(text, 200))
}
