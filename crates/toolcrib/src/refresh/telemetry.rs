//! Exports discoveries as spans. Spans are plain data in a bounded queue; without an exporter nothing is built. Unlike
//! those of calls they contain the error message, in which no arguments of a call can be repeated.

use std::time::Duration;

use toolcrib_core::Source;

use super::RefreshOutcome;
use super::discovery::Discoverer;
use crate::spans::{FinishedSpan, SpanDetails, SpanError, limit_names};
use crate::trace::Trace;

impl Discoverer {
    /// Records a span for a list that was fresh, as a cache hit. A trace then shows that the list was served from the
    /// cache, and not that a discovery is missing.
    pub(super) fn record_fresh_span(&self, source: &Source, outcome: &RefreshOutcome, parent: Option<&Trace>) {
        if self.monitoring.span_queue.is_some() {
            let trace = self.monitoring.start_trace(parent);
            self.record_discovery_span(source, outcome, Duration::ZERO, &trace, parent);
        }
    }

    /// Records a span for a discovery, if its trace is sampled. `trace` is the span of the discovery itself, `parent`
    /// the request that caused it.
    pub(super) fn record_discovery_span(
        &self,
        source: &Source,
        outcome: &RefreshOutcome,
        elapsed: Duration,
        trace: &Trace,
        parent: Option<&Trace>,
    ) {
        // Reading built-in tools is no discovery.
        let is_exported = trace.is_sampled() && !source.kind.is_builtin();
        let Some(span_queue) = self.monitoring.span_queue.as_ref().filter(|_| is_exported) else { return };
        let snapshot = self.state.snapshot();
        let entries = snapshot.catalog.source(&source.id).map(|source| source.segment.entries()).unwrap_or_default();
        span_queue.record(FinishedSpan {
            trace: trace.clone(),
            parent: self.monitoring.parent_span(parent),
            ended_at: self.options.clock.system_time(),
            elapsed,
            details: SpanDetails::Discovery {
                source: source.id.clone(),
                kind: source.kind.name(),
                tool_count: snapshot.catalog.tool_count(&source.id),
                // Names as in the catalogue, limited: attributes of spans must stay small.
                tools: limit_names(entries.iter().map(|entry| entry.name.as_str())),
                cache_hit: outcome.status == super::RefreshStatus::Fresh,
                // For this process; the stored counts of other processes are not part of it.
                hit_ratio: self.monitoring.metrics.hit_ratio(&source.id),
            },
            error: outcome
                .error
                .as_ref()
                .map(|error| SpanError { code: error.code.as_str(), message: Some(error.message.clone()) }),
        });
    }
}
