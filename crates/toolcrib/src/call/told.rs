//! That a call ended, however it did: counted, logged, told to those who watch and to whoever exports spans. A caller may
//! leave at any point, and that is an end too.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, SourceId, ToolId};

use super::Called;
use crate::meters::Calling;
use crate::registry::{Notice, Shared};
use crate::spans::{CalledSource, Fault, Finished, Work};
use crate::store::Failure;
use crate::trace::Trace;

/// A call under way.
pub(super) struct Underway<'a> {
    shared: &'a Shared,
    /// As it was asked for.
    name: &'a str,
    caller: &'a str,
    parent: Option<Trace>,
    pub(super) trace: Trace,
    began: Instant,
    pub(super) reached: Reached,
    in_flight: Option<Calling<'a>>,
}

/// How far a call has come.
#[derive(Default)]
pub(super) struct Reached {
    /// A tool that was found, whether it may be called or not: its source, and its name in the one spelling that lists have.
    pub(super) found: Option<(SourceId, String)>,
    /// The tool, once its source is about to be asked.
    pub(super) called: Option<ToolId>,
}

/// What went wrong, and whose word that is.
pub(super) struct Wrong {
    pub(super) failure: Failure,
    pub(super) by_the_tool: bool,
}

impl<'a> Underway<'a> {
    pub(super) fn begin(shared: &'a Shared, name: &'a str, caller: &'a str, parent: Option<Trace>) -> Underway<'a> {
        let trace = shared.begin_trace(parent.as_ref());
        let in_flight = Some(shared.meters.call_begins());
        Underway { shared, name, caller, parent, trace, began: Instant::now(), reached: Reached::default(), in_flight }
    }

    /// Tells it, and how long it took in milliseconds.
    pub(super) fn end(mut self, wrong: Option<Wrong>) -> u64 {
        self.tell(wrong)
    }

    fn tell(&mut self, wrong: Option<Wrong>) -> u64 {
        self.in_flight = None;
        let (shared, elapsed) = (self.shared, self.began.elapsed());
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let code = wrong.as_ref().map_or("OK", |wrong| wrong.failure.code.as_str());
        let (source, tool) = match self.reached.found.take() {
            Some((source, name)) => (Some(source), name),
            None => (None, shown_short(self.name, 200)),
        };
        tracing::info!(
            trace_id = %self.trace.id(),
            tool,
            caller = self.caller,
            code,
            duration_ms = elapsed_ms,
            "tools.call.finished"
        );
        self.export(&tool, wrong.as_ref(), elapsed);
        let counted = wrong.as_ref().is_none_or(|wrong| !wrong.by_the_tool).then_some(code);
        shared.meters.called(source.as_ref(), counted, elapsed);
        let at = shared.options.clock.now();
        let finished = Called { tool, source, caller: self.caller.to_owned(), code, at, elapsed_ms };
        let _nobody_listens = shared.notices.send(Notice::Called(Arc::new(finished)));
        if let Some(id) = &self.reached.called {
            shared.counters.called(id, at, wrong.map(|wrong| wrong.failure));
        }
        elapsed_ms
    }

    fn export(&self, tool: &str, wrong: Option<&Wrong>, elapsed: Duration) {
        let Some(spans) = self.shared.options.spans.as_ref().filter(|_| self.trace.sampled()) else { return };
        let now = self.shared.now.load();
        let source = self.reached.called.as_ref().map(|id| {
            let source = now.sources.get(&id.source);
            CalledSource {
                id: id.source.clone(),
                // A tool of the embedding host is behind no connection.
                kind: source.map_or("builtin", |source| source.kind.name()),
                transport: source.map_or("builtin", |source| source.kind.transport()),
                protocol: now.standings.get(&id.source).and_then(|standing| standing.era.clone()),
            }
        });
        // What a source says of its failure may repeat what it was given.
        let failure = wrong.map(|wrong| {
            let code = if wrong.by_the_tool { "tool_error" } else { wrong.failure.code.as_str() };
            Fault { code, message: None }
        });
        spans.tell(Finished {
            trace: self.trace.clone(),
            parent: self.shared.parent(self.parent.as_ref()).map(Trace::span),
            ended: self.shared.options.clock.moment(),
            elapsed,
            work: Work::Call { tool: tool.to_owned(), source, caller: self.caller.to_owned() },
            failure,
        });
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            let failure = Failure::new(Code::ToolExecutionFailed, "its caller left");
            self.tell(Some(Wrong { failure, by_the_tool: false }));
        }
    }
}
