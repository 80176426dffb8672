//! Export of finished spans over OTLP, as the standard `OTEL_*` variables ask for (feature `otel`). Export never delays
//! the work: a slow or unreachable collector only loses spans.
//!
//! The registry records finished spans in a bounded queue and knows nothing of OpenTelemetry. Here `settings` reads the
//! variables, `export` drains the queue in a task, `span` converts, and `client` sends.

mod client;
mod export;
mod settings;
mod span;

use crate::spans::SpanQueue;

pub use export::ExportTask;

/// Maximum number of finished spans waiting for export; further ones are dropped and counted. Eight batches of the
/// export task.
const MAX_QUEUED_SPANS: usize = 4096;

/// Starts the export if the environment asks for it; logs a warning if its settings are not supported. The queue is for
/// [`RegistryOptions::span_queue`](crate::RegistryOptions). Must be called within the async runtime.
pub fn start_export() -> Option<(SpanQueue, ExportTask)> {
    let start = || {
        let Some(sampler) = settings::read_trace_export(|name| std::env::var(name).ok())? else { return Ok(None) };
        let (spans, finished_spans) = SpanQueue::channel(MAX_QUEUED_SPANS, sampler);
        Ok(Some((spans.clone(), ExportTask::start(spans, finished_spans)?)))
    };
    start().unwrap_or_else(|reason: String| {
        tracing::warn!("traces are not exported: {reason}");
        None
    })
}
