//! The task that gathers finished work and sends it to a collector, batch by batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use toolcrib::spans::{Finished, Spans};

use super::client::Client;
use super::span::{data, scope};

/// How long a span may wait for others, and how many go together.
const GATHER: Duration = Duration::from_secs(1);
const BATCH: usize = 512;
/// Pauses before a batch that failed is tried again; then it is lost.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

#[derive(Debug)]
pub(super) struct Exporting {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
    spans: Spans,
}

impl Exporting {
    /// Reads endpoint and headers from the environment, or says what is wrong with them.
    pub(super) fn start(spans: Spans, told: mpsc::Receiver<Finished>) -> Result<Exporting, String> {
        let exporter = SpanExporter::builder().with_http().with_http_client(Client::new()?).build();
        let mut exporter = exporter.map_err(|error| error.to_string())?;
        exporter.set_resource(&resource());
        let (finish, finishing) = oneshot::channel();
        let export = Export { exporter, told, spans: spans.clone(), complained: AtomicBool::new(false) };
        let task = tokio::spawn(export.run(finishing));
        Ok(Exporting { finish, task, spans })
    }

    /// Exports what is left, unless that takes longer than this.
    pub(super) async fn finish(mut self, within: Duration) {
        let _it_listens = self.finish.send(());
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector does not answer; the last spans are lost");
        }
        if self.spans.lost() > 0 {
            tracing::warn!(spans = self.spans.lost(), "spans were lost on their way to the collector");
        }
    }
}

struct Export {
    exporter: SpanExporter,
    told: mpsc::Receiver<Finished>,
    spans: Spans,
    /// That the collector cannot be reached is told once, until it answers again.
    complained: AtomicBool,
}

impl Export {
    async fn run(mut self, mut finishing: oneshot::Receiver<()>) {
        let mut ticks = interval(GATHER);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut finishing => true,
            };
            // When it is over, nobody waits for another try.
            while let Some(batch) = self.gathered() {
                self.send(batch, !last).await;
            }
            if last {
                return;
            }
        }
    }

    /// The next batch of what is waiting.
    fn gathered(&mut self) -> Option<Vec<Finished>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && let Ok(finished) = self.told.try_recv()
        {
            batch.push(finished);
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn send(&self, batch: Vec<Finished>, again: bool) {
        let (count, scope) = (batch.len() as u64, scope());
        let mut pauses = AGAIN.iter().filter(|_| again);
        loop {
            let spans = batch.iter().map(|finished| data(finished, &scope)).collect();
            let Err(error) = self.exporter.export(spans).await else {
                self.complained.store(false, Ordering::Relaxed);
                return;
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => {
                    self.spans.lose(count);
                    if !self.complained.swap(true, Ordering::Relaxed) {
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
