//! The export task: collects finished spans and sends them to an OTLP collector in batches.
//!
//! One task per process. It wakes once per second, sends everything that is queued in batches, and retries a failed
//! batch. While it retries, the queue fills up and drops spans, so a collector that is down costs memory for at most
//! one queue and one batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::client::CollectorClient;
use super::span::{instrumentation_scope, to_span_data};
use crate::spans::{FinishedSpan, SpanQueue};

/// Time between exports, and so the longest time that a span waits for its batch.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of spans in one request, the default of OpenTelemetry's batch processor.
const MAX_BATCH_SPANS: usize = 512;
/// Delays before the retries of a failed batch; after the last one the batch is dropped.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Handle of the running export task.
#[derive(Debug)]
pub struct ExportTask {
    /// Asks the task to send the rest and end.
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// The queue that the task drains; counts dropped spans.
    spans: SpanQueue,
}

impl ExportTask {
    /// Starts the task. Reads endpoint and headers from the environment, and returns what is wrong with them.
    pub(super) fn start(spans: SpanQueue, finished_spans: mpsc::Receiver<FinishedSpan>) -> Result<ExportTask, String> {
        let exporter = SpanExporter::builder().with_http().with_http_client(CollectorClient::new()?).build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        exporter.set_resource(&resource());
        let (finish, finish_requested) = oneshot::channel();
        let batch_exporter =
            BatchExporter { exporter, finished_spans, spans: spans.clone(), failure_logged: AtomicBool::new(false) };
        let task = tokio::spawn(batch_exporter.run(finish_requested));
        Ok(ExportTask { finish, task, spans })
    }

    /// Exports the remaining spans within the timeout, and logs a warning if spans were lost.
    pub async fn finish(mut self, timeout: Duration) {
        // Fails only if the task has already ended.
        let _ = self.finish.send(());
        if tokio::time::timeout(timeout, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector does not respond; the last spans are lost");
        }
        if self.spans.dropped() > 0 {
            tracing::warn!(spans = self.spans.dropped(), "spans were lost on their way to the collector");
        }
    }
}

/// The state of the export task.
struct BatchExporter {
    exporter: SpanExporter,
    finished_spans: mpsc::Receiver<FinishedSpan>,
    spans: SpanQueue,
    /// An export failure is logged once, until an export succeeds again.
    failure_logged: AtomicBool,
}

impl BatchExporter {
    /// Exports batches at each interval, and the rest when asked to finish.
    async fn run(mut self, mut finish_requested: oneshot::Receiver<()>) {
        let mut ticks = interval(EXPORT_INTERVAL);
        // After a slow export the next one follows after a whole interval, not in a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut finish_requested => true,
            };
            // The last batches are not retried: the command is waiting to exit.
            while let Some(batch) = self.next_batch() {
                self.send(batch, !is_last).await;
            }
            if is_last {
                return;
            }
        }
    }

    /// Takes up to [`MAX_BATCH_SPANS`] spans from the queue.
    fn next_batch(&mut self) -> Option<Vec<FinishedSpan>> {
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH_SPANS
            && let Ok(span) = self.finished_spans.try_recv()
        {
            batch.push(span);
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Sends a batch, with retries if `may_retry`, and counts it as dropped when all attempts fail.
    async fn send(&self, batch: Vec<FinishedSpan>, may_retry: bool) {
        let count = batch.len() as u64;
        let scope = instrumentation_scope();
        let mut delays = RETRY_DELAYS.iter().filter(|_| may_retry);
        loop {
            // Converted again for each attempt, because the exporter consumes the spans.
            let spans = batch.iter().map(|span| to_span_data(span, &scope)).collect();
            let Err(error) = self.exporter.export(spans).await else {
                self.failure_logged.store(false, Ordering::Relaxed);
                return;
            };
            match delays.next() {
                Some(delay) => tokio::time::sleep(*delay).await,
                None => {
                    self.spans.add_dropped(count);
                    if !self.failure_logged.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "spans cannot be exported; they are lost until the collector responds");
                    }
                    return;
                }
            }
        }
    }
}

/// Returns the OpenTelemetry resource: the service name from the environment, else `toolcrib`, and the version.
fn resource() -> Resource {
    // The SDK reads both variables itself; the default must not override them.
    let has_service_name = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| attributes.contains("service.name="));
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    if has_service_name { builder.build() } else { builder.with_service_name("toolcrib").build() }
}
