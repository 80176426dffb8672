//! Records the end of every call: log line, span, metrics, counters and a notice for subscribers. A call whose future
//! is dropped, because its caller disconnected, is recorded too. Log lines and spans hold neither arguments nor
//! results.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_core::principal::Principal;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, SourceId, ToolId};

use super::{CallContext, CallFinished, CallOrigin, Dispatcher};
use crate::metrics::InFlightCall;
use crate::notice::RegistryNotice;
use crate::spans::{FinishedSpan, SpanDetails, SpanError, SpanSource};
use crate::store::ErrorSummary;
use crate::trace::Trace;

/// RAII recorder of a running call. If dropped before `finish`, the call is recorded as failed.
pub(super) struct CallRecorder<'a> {
    dispatcher: &'a Dispatcher,
    /// Name of the tool as requested.
    name: &'a str,
    caller: &'a Principal,
    origin: CallOrigin,
    /// Trace of the caller, if it sent one.
    parent: Option<&'a Trace>,
    /// Trace of this call.
    pub(super) trace: Trace,
    started_at: Instant,
    pub(super) progress: CallProgress,
    /// Counts the call as in flight; `None` once it is recorded.
    in_flight: Option<InFlightCall<'a>>,
}

/// Progress of a call.
#[derive(Default)]
pub(super) struct CallProgress {
    /// The tool that was found, whether or not it may be called: its source, and its name as lists show it.
    pub(super) found_tool: Option<(SourceId, String)>,
    /// Set right before the source is contacted; only such calls count in the tool's statistics.
    pub(super) called_tool: Option<ToolId>,
}

/// Why a call failed.
pub(super) struct CallError {
    pub(super) failure: ErrorSummary,
    /// The tool answered with an error result; `false` if the call itself failed.
    pub(super) reported_by_tool: bool,
}

impl<'a> CallRecorder<'a> {
    /// Starts the trace and the clock of a call.
    pub(super) fn start(
        dispatcher: &'a Dispatcher,
        name: &'a str,
        context: &'a CallContext,
        origin: CallOrigin,
    ) -> CallRecorder<'a> {
        let parent = context.trace.as_ref();
        let trace = dispatcher.monitoring.start_trace(parent);
        let in_flight = Some(dispatcher.monitoring.metrics.start_call());
        CallRecorder {
            dispatcher,
            name,
            caller: &context.caller,
            origin,
            parent,
            trace,
            started_at: Instant::now(),
            progress: CallProgress::default(),
            in_flight,
        }
    }

    /// Records the call; returns its duration in milliseconds.
    pub(super) fn finish(mut self, error: Option<CallError>) -> u64 {
        self.record(error)
    }

    /// Writes the log line, exports the span, and updates metrics, subscribers and counters. Runs in `drop` too, so it
    /// neither waits nor fails: the notice goes into a bounded channel, the counters are written to the store later.
    fn record(&mut self, error: Option<CallError>) -> u64 {
        // Marks the call as recorded, so that `drop` does not record it again.
        self.in_flight = None;
        let dispatcher = self.dispatcher;
        let elapsed = self.started_at.elapsed();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let code = error.as_ref().map_or("OK", |error| error.failure.code.as_str());
        // The name of an unknown tool is the caller's text: made safe for logs, and bounded.
        let (source, tool) = match self.progress.found_tool.take() {
            Some((source, name)) => (Some(source), name),
            None => (None, sanitize_truncated(self.name, 200)),
        };
        tracing::info!(
            trace_id = %self.trace.id(),
            tool,
            caller = self.caller.name(),
            code,
            duration_ms = elapsed_ms,
            "tools.call.finished"
        );
        self.export_span(&tool, error.as_ref(), elapsed);
        // Metrics count errors reported by tools apart from error codes.
        let metric_code = error.as_ref().is_none_or(|error| !error.reported_by_tool).then_some(code);
        // A workflow has counted for the caller of its steps.
        let caller = (self.origin == CallOrigin::Caller).then_some(self.caller);
        dispatcher.monitoring.metrics.record_call(source.as_ref(), caller, metric_code, elapsed);
        let at = dispatcher.state.now();
        let finished = CallFinished { tool, source, caller: self.caller.name().to_owned(), code, at, elapsed_ms };
        dispatcher.state.notify(RegistryNotice::CallFinished(Arc::new(finished)));
        if let Some(id) = &self.progress.called_tool {
            dispatcher.monitoring.usage.count_call(id, at, error.map(|error| error.failure));
        }
        elapsed_ms
    }

    /// Exports the call as a span, if its trace is sampled. The source is named only if the call got as far as
    /// contacting it.
    fn export_span(&self, tool: &str, error: Option<&CallError>, elapsed: Duration) {
        let Some(span_queue) = self.dispatcher.monitoring.span_queue.as_ref().filter(|_| self.trace.is_sampled())
        else {
            return;
        };
        let snapshot = self.dispatcher.state.snapshot();
        let source = self.progress.called_tool.as_ref().map(|id| {
            let source = snapshot.effective_sources.get(&id.source);
            SpanSource {
                id: id.source.clone(),
                // A tool that the host program registered has no connection.
                kind: source.map_or("builtin", |source| source.kind.name()),
                transport: source.map_or("builtin", |source| source.kind.transport()),
                protocol: snapshot.statuses.get(&id.source).and_then(|status| status.era.clone()),
            }
        });
        // Without the message: a source may repeat arguments in it.
        let error = error.map(|error| {
            let code = if error.reported_by_tool { "tool_error" } else { error.failure.code.as_str() };
            SpanError { code, message: None }
        });
        span_queue.record(FinishedSpan {
            trace: self.trace.clone(),
            parent: self.dispatcher.monitoring.parent_span(self.parent),
            ended_at: self.dispatcher.options.clock.system_time(),
            elapsed,
            details: SpanDetails::Call { tool: tool.to_owned(), source, caller: self.caller.name().to_owned() },
            error,
        });
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        // The future of the call was dropped before it ended.
        if self.in_flight.is_some() {
            let failure = ErrorSummary::new(Code::ToolExecutionFailed, "the caller disconnected");
            self.record(Some(CallError { failure, reported_by_tool: false }));
        }
    }
}
