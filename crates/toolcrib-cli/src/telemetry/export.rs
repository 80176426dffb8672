//! The task that gathers finished work and sends it to a collector, batch by batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use toolcrib::spans::{FinishedSpan, SpanQueue};

use super::client::CollectorClient;
use super::span::{instrumentation_scope, to_span_data};

/// How long a span may wait for others, and how many go together.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
const MAX_BATCH_SPANS: usize = 512;
/// Pauses before a batch that failed is tried again; then it is lost.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

#[derive(Debug)]
pub(super) struct ExportTask {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
    spans: SpanQueue,
}

impl ExportTask {
    /// Reads endpoint and headers from the environment, or says what is wrong with them.
    pub(super) fn start(spans: SpanQueue, told: mpsc::Receiver<FinishedSpan>) -> Result<ExportTask, String> {
        let exporter = SpanExporter::builder().with_http().with_http_client(CollectorClient::new()?).build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        exporter.set_resource(&resource());
        let (finish, finishing) = oneshot::channel();
        let export = BatchExporter {
            exporter,
            finished_spans: told,
            spans: spans.clone(),
            failure_logged: AtomicBool::new(false),
        };
        let task = tokio::spawn(export.run(finishing));
        Ok(ExportTask { finish, task, spans })
    }

    /// Exports what is left, unless that takes longer than this.
    pub(super) async fn finish(mut self, within: Duration) {
        let _it_listens = self.finish.send(());
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector does not answer; the last spans are lost");
        }
        if self.spans.dropped() > 0 {
            tracing::warn!(spans = self.spans.dropped(), "spans were lost on their way to the collector");
        }
    }
}

struct BatchExporter {
    exporter: SpanExporter,
    finished_spans: mpsc::Receiver<FinishedSpan>,
    spans: SpanQueue,
    /// That the collector cannot be reached is told once, until it answers again.
    failure_logged: AtomicBool,
}

impl BatchExporter {
    async fn run(mut self, mut finishing: oneshot::Receiver<()>) {
        let mut ticks = interval(EXPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut finishing => true,
            };
            // When it is over, nobody waits for another try.
            while let Some(batch) = self.next_batch() {
                self.send(batch, !last).await;
            }
            if last {
                return;
            }
        }
    }

    /// The next batch of what is waiting.
    fn next_batch(&mut self) -> Option<Vec<FinishedSpan>> {
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH_SPANS
            && let Ok(finished) = self.finished_spans.try_recv()
        {
            batch.push(finished);
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn send(&self, batch: Vec<FinishedSpan>, again: bool) {
        let (count, scope) = (batch.len() as u64, instrumentation_scope());
        let mut pauses = RETRY_DELAYS.iter().filter(|_| again);
        loop {
            let spans = batch.iter().map(|finished| to_span_data(finished, &scope)).collect();
            let Err(error) = self.exporter.export(spans).await else {
                self.failure_logged.store(false, Ordering::Relaxed);
                return;
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => {
                    self.spans.add_dropped(count);
                    if !self.failure_logged.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "spans cannot be exported; they are lost until the collector answers");
                    }
                    return;
                }
            }
        }
    }
}

/// Who we are: what the environment says, else our name.
fn resource() -> Resource {
    let named = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| attributes.contains("service.name="));
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    match named {
        true => builder.build(),
        false => builder.with_service_name("toolcrib").build(),
    }
}
