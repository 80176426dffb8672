//! What a command's work is part of, and its export as OpenTelemetry spans where the environment asks for that.
//! Exporting never holds up the work: a collector that is slow or gone costs its spans alone.

mod client;
mod export;
mod settings;
mod span;

use std::time::{Duration, Instant, SystemTime};

use toolcrib::spans::{FinishedSpan, SpanDetails, SpanError, SpanQueue};
use toolcrib::{Result, Trace};

use crate::exit::CommandOutcome;
use export::ExportTask;
use settings::TraceExport;

/// Spans that wait to be exported.
const MAX_QUEUED_SPANS: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(crate) struct Telemetry {
    /// The command itself; none for what serves others, whose work is part of what they do.
    pub(crate) trace: Option<Trace>,
    pub(crate) spans: Option<SpanQueue>,
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct CommandSpan {
    name: &'static str,
    started_at: Instant,
    parent: Option<Trace>,
    telemetry: Telemetry,
    export_task: Option<ExportTask>,
}

impl Telemetry {
    /// For what goes on, or for a command that is done in a moment. Must be called where tasks can be spawned.
    pub(crate) fn start(name: &'static str, stays: bool) -> (Telemetry, CommandSpan) {
        let (spans, exporting) = start_export().unzip();
        let parent = parent_trace_from_env().filter(|_| !stays);
        let own = || match &spans {
            Some(spans) => SpanQueue::start_trace(spans, parent.as_ref()),
            None => parent.as_ref().map_or_else(Trace::log_only, Trace::child),
        };
        let telemetry = Telemetry { trace: (!stays).then(own), spans };
        let underway = CommandSpan {
            name,
            started_at: Instant::now(),
            parent,
            telemetry: telemetry.clone(),
            export_task: exporting,
        };
        (telemetry, underway)
    }
}

impl CommandSpan {
    /// The command has ended so; what is left to export is exported, for a moment.
    pub(crate) async fn finish(self, result: &Result<CommandOutcome>) {
        let Some(exporting) = self.export_task else { return };
        if let (Some(trace), Some(spans)) = (self.telemetry.trace, &self.telemetry.spans) {
            let failure = match result {
                Ok(CommandOutcome::Success) => None,
                Ok(CommandOutcome::Failure) => Some("FAILED"),
                Err(error) => Some(error.code.as_str()),
            };
            spans.record(FinishedSpan {
                trace,
                parent: self.parent.as_ref().map(Trace::span_id),
                ended_at: SystemTime::now(),
                elapsed: self.started_at.elapsed(),
                details: SpanDetails::Command { name: self.name },
                error: failure.map(|code| SpanError { code, message: None }),
            });
        }
        exporting.finish(Duration::from_secs(2)).await;
    }
}

fn start_export() -> Option<(SpanQueue, ExportTask)> {
    let sampler = match settings::read_trace_export(|name| std::env::var(name).ok()) {
        TraceExport::Disabled => return None,
        TraceExport::Unsupported(why) => {
            tracing::warn!("traces are not exported: {why}");
            return None;
        }
        TraceExport::Enabled(sampler) => sampler,
    };
    let (spans, told) = SpanQueue::channel(MAX_QUEUED_SPANS, sampler);
    match ExportTask::start(spans.clone(), told) {
        Ok(exporting) => Some((spans, exporting)),
        Err(why) => {
            tracing::warn!("traces are not exported: {why}");
            None
        }
    }
}

/// What whoever started us is at, as shells and build tools tell it.
fn parent_trace_from_env() -> Option<Trace> {
    let parent = std::env::var("TRACEPARENT").ok()?;
    Trace::parse(parent.trim(), std::env::var("TRACESTATE").ok().as_deref())
}
