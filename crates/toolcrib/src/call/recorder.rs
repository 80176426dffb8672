//! That a call ended, however it did: counted, logged, told to those who watch and to whoever exports spans. A caller may
//! leave at any point, and that is an end too.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, SourceId, ToolId};

use super::CallFinished;
use crate::metrics::InFlightCall;
use crate::registry::{RegistryInner, RegistryNotice};
use crate::spans::{FinishedSpan, SpanDetails, SpanError, SpanSource};
use crate::store::ErrorSummary;
use crate::trace::Trace;

/// A call under way.
pub(super) struct CallRecorder<'a> {
    shared: &'a RegistryInner,
    /// As it was asked for.
    name: &'a str,
    caller: &'a str,
    parent: Option<Trace>,
    pub(super) trace: Trace,
    started_at: Instant,
    pub(super) progress: CallProgress,
    in_flight: Option<InFlightCall<'a>>,
}

/// How far a call has come.
#[derive(Default)]
pub(super) struct CallProgress {
    /// A tool that was found, whether it may be called or not: its source, and its name in the one spelling that lists have.
    pub(super) found_tool: Option<(SourceId, String)>,
    /// The tool, once its source is about to be asked.
    pub(super) called_tool: Option<ToolId>,
}

/// What went wrong, and whose word that is.
pub(super) struct CallError {
    pub(super) failure: ErrorSummary,
    pub(super) reported_by_tool: bool,
}

impl<'a> CallRecorder<'a> {
    pub(super) fn start(
        shared: &'a RegistryInner,
        name: &'a str,
        caller: &'a str,
        parent: Option<Trace>,
    ) -> CallRecorder<'a> {
        let trace = shared.start_trace(parent.as_ref());
        let in_flight = Some(shared.metrics.start_call());
        CallRecorder {
            shared,
            name,
            caller,
            parent,
            trace,
            started_at: Instant::now(),
            progress: CallProgress::default(),
            in_flight,
        }
    }

    /// Tells it, and how long it took in milliseconds.
    pub(super) fn finish(mut self, wrong: Option<CallError>) -> u64 {
        self.record(wrong)
    }

    fn record(&mut self, wrong: Option<CallError>) -> u64 {
        self.in_flight = None;
        let (shared, elapsed) = (self.shared, self.started_at.elapsed());
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let code = wrong.as_ref().map_or("OK", |wrong| wrong.failure.code.as_str());
        let (source, tool) = match self.progress.found_tool.take() {
            Some((source, name)) => (Some(source), name),
            None => (None, sanitize_truncated(self.name, 200)),
        };
        tracing::info!(
            trace_id = %self.trace.id(),
            tool,
            caller = self.caller,
            code,
            duration_ms = elapsed_ms,
            "tools.call.finished"
        );
        self.export_span(&tool, wrong.as_ref(), elapsed);
        let counted = wrong.as_ref().is_none_or(|wrong| !wrong.reported_by_tool).then_some(code);
        shared.metrics.record_call(source.as_ref(), counted, elapsed);
        let at = shared.options.clock.now();
        let finished = CallFinished { tool, source, caller: self.caller.to_owned(), code, at, elapsed_ms };
        let _nobody_listens = shared.notices.send(RegistryNotice::CallFinished(Arc::new(finished)));
        if let Some(id) = &self.progress.called_tool {
            shared.usage.count_call(id, at, wrong.map(|wrong| wrong.failure));
        }
        elapsed_ms
    }

    fn export_span(&self, tool: &str, wrong: Option<&CallError>, elapsed: Duration) {
        let Some(spans) = self.shared.options.span_queue.as_ref().filter(|_| self.trace.is_sampled()) else {
            return;
        };
        let now = self.shared.snapshot.load();
        let source = self.progress.called_tool.as_ref().map(|id| {
            let source = now.effective_sources.get(&id.source);
            SpanSource {
                id: id.source.clone(),
                // A tool of the embedding host is behind no connection.
                kind: source.map_or("builtin", |source| source.kind.name()),
                transport: source.map_or("builtin", |source| source.kind.transport()),
                protocol: now.statuses.get(&id.source).and_then(|standing| standing.era.clone()),
            }
        });
        // What a source says of its failure may repeat what it was given.
        let failure = wrong.map(|wrong| {
            let code = if wrong.reported_by_tool { "tool_error" } else { wrong.failure.code.as_str() };
            SpanError { code, message: None }
        });
        spans.record(FinishedSpan {
            trace: self.trace.clone(),
            parent: self.shared.parent_trace(self.parent.as_ref()).map(Trace::span_id),
            ended_at: self.shared.options.clock.system_time(),
            elapsed,
            details: SpanDetails::Call { tool: tool.to_owned(), source, caller: self.caller.to_owned() },
            error: failure,
        });
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            let failure = ErrorSummary::new(Code::ToolExecutionFailed, "its caller left");
            self.record(Some(CallError { failure, reported_by_tool: false }));
        }
    }
}
