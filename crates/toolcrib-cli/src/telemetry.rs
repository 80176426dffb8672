//! Tracing of commands: the trace a command belongs to, and the export of its spans over OTLP when the standard
//! `OTEL_*` variables ask for it (`toolcrib::otel`).

use std::time::{Duration, Instant, SystemTime};

use toolcrib::otel::{ExportTask, start_export};
use toolcrib::spans::{FinishedSpan, SpanDetails, SpanError, SpanQueue};
use toolcrib::{Result, Trace};

use crate::exit::CommandOutcome;

/// Time at the end of a command to export the remaining spans. A collector that does not respond delays a command by
/// no more than this.
const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Trace and span queue, passed to the registry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telemetry {
    /// Trace of the command itself. `None` for a long-running command, whose requests belong to their clients' traces.
    pub(crate) trace: Option<Trace>,
    /// Queue of finished spans; `None` without export.
    pub(crate) spans: Option<SpanQueue>,
}

/// The span of the running command, recorded by [`CommandSpan::finish`].
#[derive(Debug)]
pub(crate) struct CommandSpan {
    started_at: Instant,
    /// Trace of the environment (`TRACEPARENT`), if the command belongs to one.
    parent: Option<Trace>,
    telemetry: Telemetry,
    /// `None` without export; then finishing the span does nothing.
    export_task: Option<ExportTask>,
}

impl Telemetry {
    /// Starts the trace of a command and, if configured, the export task. Must be called within the async runtime.
    pub(crate) fn start(is_long_running: bool) -> (Telemetry, CommandSpan) {
        let (spans, export_task) = start_export().unzip();
        // A parent trace of the environment applies to this command only, not to requests that a server handles.
        let parent = parent_trace_from_env().filter(|_| !is_long_running);
        let command_trace = || match &spans {
            Some(spans) => SpanQueue::start_trace(spans, parent.as_ref()),
            // Not exported, but its id ties the log events of the command together.
            None => parent.as_ref().map_or_else(Trace::log_only, Trace::child),
        };
        let telemetry = Telemetry { trace: (!is_long_running).then(command_trace), spans };
        let command_span =
            CommandSpan { started_at: Instant::now(), parent, telemetry: telemetry.clone(), export_task };
        (telemetry, command_span)
    }
}

impl CommandSpan {
    /// Records the span with name and result of the command and exports the remaining spans, for at most
    /// [`FINAL_EXPORT_TIMEOUT`].
    pub(crate) async fn finish(self, name: &'static str, result: &Result<CommandOutcome>) {
        let Some(export_task) = self.export_task else { return };
        if let (Some(trace), Some(spans)) = (self.telemetry.trace, &self.telemetry.spans) {
            // The code only: the message of a command may name local paths.
            let error_code = match result {
                Ok(CommandOutcome::Success) => None,
                // The command has printed its error itself and has no code to report.
                Ok(CommandOutcome::Failure) => Some("FAILED"),
                Err(error) => Some(error.code.as_str()),
            };
            spans.record(FinishedSpan {
                trace,
                parent: self.parent.as_ref().map(Trace::span_id),
                ended_at: SystemTime::now(),
                elapsed: self.started_at.elapsed(),
                details: SpanDetails::Command { name },
                error: error_code.map(|code| SpanError { code, message: None }),
            });
        }
        export_task.finish(FINAL_EXPORT_TIMEOUT).await;
    }
}

/// Reads the parent trace from `TRACEPARENT` and `TRACESTATE`, which shells and build tools set for their children.
fn parent_trace_from_env() -> Option<Trace> {
    let parent = std::env::var("TRACEPARENT").ok()?;
    Trace::parse(parent.trim(), std::env::var("TRACESTATE").ok().as_deref())
}
