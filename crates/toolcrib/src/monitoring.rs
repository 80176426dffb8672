//! Counters and traces of a registry: counts for monitoring, counts that the store keeps, and traces of its own work.
//! Shared by refreshes and calls.

use crate::metrics::{Metrics, MetricsSnapshot};
use crate::options::RegistryOptions;
use crate::spans::SpanQueue;
use crate::token_uses::TokenUses;
use crate::trace::Trace;
use crate::usage::UsageCounters;

/// Counters and traces of one registry.
#[derive(Debug)]
pub(crate) struct Monitoring {
    /// Counts since the start of this process, for monitoring.
    pub(crate) metrics: Metrics,
    /// Call and cache counts, written to the store in batches.
    pub(crate) usage: UsageCounters,
    /// Last uses of access tokens, written to the store every few seconds.
    pub(crate) token_uses: TokenUses,
    /// Queue of finished spans; `None` if none are exported.
    pub(crate) span_queue: Option<SpanQueue>,
    /// Parent of work that has no trace of its own.
    default_parent: Option<Trace>,
}

impl Monitoring {
    pub(crate) fn new(options: &RegistryOptions) -> Monitoring {
        Monitoring {
            metrics: Metrics::default(),
            usage: UsageCounters::default(),
            token_uses: TokenUses::default(),
            span_queue: options.span_queue.clone(),
            default_parent: options.trace.clone(),
        }
    }

    /// Returns the trace that new work belongs to: the given one, or that of the registry's options.
    pub(crate) fn parent_trace<'a>(&'a self, parent: Option<&'a Trace>) -> Option<&'a Trace> {
        parent.or(self.default_parent.as_ref())
    }

    /// Returns the id of the parent span; `None` if the given trace, or else that of the options, is none or of the log
    /// only.
    pub(crate) fn parent_span(&self, parent: Option<&Trace>) -> Option<u64> {
        self.parent_trace(parent).filter(|parent| !parent.is_log_only()).map(Trace::span_id)
    }

    /// Starts the trace of a call or discovery. Without a span queue, an orphan trace only correlates log lines.
    pub(crate) fn start_trace(&self, parent: Option<&Trace>) -> Trace {
        let parent = self.parent_trace(parent);
        match &self.span_queue {
            Some(queue) => queue.start_trace(parent),
            None => parent.map_or_else(Trace::log_only, Trace::child),
        }
    }

    /// Returns what this process has counted so far.
    pub(crate) fn metrics_snapshot(&self) -> MetricsSnapshot {
        let dropped_spans = self.span_queue.as_ref().map(SpanQueue::dropped);
        MetricsSnapshot { dropped_spans, ..self.metrics.snapshot() }
    }
}
