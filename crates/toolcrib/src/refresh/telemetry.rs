//! A discovery, as it is told to whoever exports spans.

use std::time::Duration;

use toolcrib_core::Source;

use super::RefreshOutcome;
use crate::registry::RegistryInner;
use crate::spans::{FinishedSpan, SpanDetails, SpanError, limit_names};
use crate::trace::Trace;

impl RegistryInner {
    /// A list that was recent enough is told as one that met its need from the cache.
    pub(super) fn record_fresh_span(&self, source: &Source, outcome: &RefreshOutcome, parent: Option<&Trace>) {
        if self.options.span_queue.is_some() {
            let trace = self.start_trace(parent);
            self.record_discovery_span(source, outcome, Duration::ZERO, &trace, parent);
        }
    }

    pub(super) fn record_discovery_span(
        &self,
        source: &Source,
        outcome: &RefreshOutcome,
        elapsed: Duration,
        trace: &Trace,
        parent: Option<&Trace>,
    ) {
        // To read what is at hand is no discovery.
        let discovered = trace.is_sampled() && !source.kind.is_builtin();
        let Some(spans) = self.options.span_queue.as_ref().filter(|_| discovered) else { return };
        let now = self.snapshot.load();
        let entries = now.catalog.source(&source.id).map(|part| part.segment.entries()).unwrap_or_default();
        spans.record(FinishedSpan {
            trace: trace.clone(),
            parent: self.parent_trace(parent).map(Trace::span_id),
            ended_at: self.options.clock.system_time(),
            elapsed,
            details: SpanDetails::Discovery {
                source: source.id.clone(),
                kind: source.kind.name(),
                tool_count: now.catalog.tool_count(&source.id),
                tools: limit_names(entries.iter().map(|entry| entry.name.as_str())),
                cache_hit: outcome.status == super::RefreshStatus::Fresh,
                hit_ratio: self.metrics.hit_ratio(&source.id),
            },
            error: outcome
                .error
                .as_ref()
                .map(|failure| SpanError { code: failure.code.as_str(), message: Some(failure.message.clone()) }),
        });
    }
}
