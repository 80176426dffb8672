//! Finished spans (commands, discoveries, calls) as plain data, queued for an exporter. Recording never waits: a span
//! that does not fit into the queue is dropped and counted. Spans hold neither arguments nor results.
//!
//! The library does not know OpenTelemetry: the exporter, in the command, receives from the queue and translates. A
//! span is recorded when it has ended, with its duration by the monotonic clock and its end by the wall clock; the
//! start follows from both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use toolcrib_core::SourceId;

use crate::trace::{Sampling, Trace};

/// Maximum number of tool names in a discovery span, and of their bytes in total. Backends limit the size of
/// attributes; a catalogue may have thousands of tools.
const MAX_SPAN_TOOL_NAMES: usize = 50;
const MAX_SPAN_NAME_BYTES: usize = 4096;

/// Queue of finished spans. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SpanQueue {
    sender: mpsc::Sender<FinishedSpan>,
    /// Number of spans that could not be exported.
    dropped: Arc<AtomicU64>,
    sampler: Sampler,
}

/// Decides which traces are exported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Ratio of traces that are sampled when the parent does not decide: between 0 and 1.
    pub ratio: f64,
    /// Whether the parent's sampling decision applies (`parentbased_…` of OpenTelemetry).
    pub parent_based: bool,
}

/// A span that ended.
#[derive(Debug, Clone)]
pub struct FinishedSpan {
    /// Ids of the trace and of the span.
    pub trace: Trace,
    /// Id of the parent span.
    pub parent: Option<u64>,
    /// Wall-clock time, so that it can be compared with spans of other processes.
    pub ended_at: SystemTime,
    /// Duration by the monotonic clock.
    pub elapsed: Duration,
    /// Subject of the span.
    pub details: SpanDetails,
    /// Set if the operation failed.
    pub error: Option<SpanError>,
}

/// Why a span failed: a code, and the message if it may leave the process.
#[derive(Debug, Clone)]
pub struct SpanError {
    /// Name of the error code.
    pub code: &'static str,
    /// Left out for calls, because a source may repeat arguments in it.
    pub message: Option<String>,
}

/// Subject of a span.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SpanDetails {
    /// A command of the CLI.
    Command {
        /// Name of the subcommand.
        name: &'static str,
    },
    /// A discovery of a source.
    Discovery {
        /// Discovered source.
        source: SourceId,
        /// Kind of the source.
        kind: &'static str,
        /// Number of tools in the list.
        tool_count: usize,
        /// Names as agents see them; the first few.
        tools: Vec<String>,
        /// Whether the list was fresh and the source was not contacted.
        cache_hit: bool,
        /// Ratio of cache hits of this source in this process.
        hit_ratio: Option<f64>,
    },
    /// A tool call.
    Call {
        /// Name as agents see it; for an unknown tool, as requested.
        tool: String,
        /// Source of the tool; `None` if it was not contacted.
        source: Option<SpanSource>,
        /// Name of the caller.
        caller: String,
    },
}

/// Source of a called tool.
#[derive(Debug, Clone)]
pub struct SpanSource {
    /// Name of the source.
    pub id: SourceId,
    /// Kind of the source.
    pub kind: &'static str,
    /// `stdio`, `http`, `sse` and so on.
    pub transport: &'static str,
    /// MCP protocol version.
    pub protocol: Option<String>,
}

impl SpanQueue {
    /// Creates a queue with a capacity; the exporter receives from the other end.
    pub fn channel(capacity: usize, sampler: Sampler) -> (SpanQueue, mpsc::Receiver<FinishedSpan>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (SpanQueue { sender, dropped: Arc::default(), sampler }, receiver)
    }

    /// Queues a span if its trace is sampled; drops it if the queue is full. Never waits and never fails.
    pub fn record(&self, span: FinishedSpan) {
        if span.trace.is_sampled() && self.sender.try_send(span).is_err() {
            self.add_dropped(1);
        }
    }

    /// Counts spans that could not be exported.
    pub fn add_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of spans that could not be exported.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Starts a span, as a child of `parent` or as the root of a new trace. A parent of the log only is no span, and gives
    /// the root its trace id. Without `parent_based`, the trace id alone
    /// decides, so all processes with the same ratio decide alike.
    pub fn start_trace(&self, parent: Option<&Trace>) -> Trace {
        let trace = match parent {
            Some(log) if log.is_log_only() => Trace::start_within(log),
            Some(parent) if self.sampler.parent_based => return parent.child(),
            Some(parent) => parent.child(),
            None => Trace::start(),
        };
        let sampling = self.sampler.decide(&trace);
        trace.with_sampling(sampling)
    }
}

impl Sampler {
    /// Decides by the trace id, of which the last 56 bits are random, so that all spans of a trace get the same
    /// decision.
    fn decide(self, trace: &Trace) -> Sampling {
        const RANDOM_BITS: u128 = (1 << 56) - 1;
        let position = (trace.id().0 & RANDOM_BITS) as f64 / (RANDOM_BITS as f64 + 1.0);
        if position < self.ratio { Sampling::Sampled } else { Sampling::NotSampled }
    }
}

/// Returns the first names, within the limits of a span.
pub(crate) fn limit_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut bytes = 0;
    let fits = |name: &&str| {
        bytes += name.len();
        bytes <= MAX_SPAN_NAME_BYTES
    };
    names.take(MAX_SPAN_TOOL_NAMES).take_while(fits).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_samples_its_ratio_and_follows_the_parent() {
        let spans = |ratio, parent_based| SpanQueue::channel(1, Sampler { ratio, parent_based }).0;
        let unsampled = Trace::start().with_sampling(Sampling::NotSampled);
        for (ratio, parent_based, parent, expected) in [
            (1.0, true, None, true),
            (0.0, true, None, false),
            (1.0, true, Some(&unsampled), false),
            (1.0, false, Some(&unsampled), true),
            (0.0, false, Some(&Trace::start()), false),
        ] {
            assert_eq!(spans(ratio, parent_based).start_trace(parent).is_sampled(), expected, "{ratio} {parent_based}");
        }
        let half = spans(0.5, true);
        let sampled = (0..1000).filter(|_| half.start_trace(None).is_sampled()).count();
        assert!((300..700).contains(&sampled), "{sampled}");
    }

    #[test]
    fn spans_that_do_not_fit_are_counted_as_dropped() {
        let (spans, mut receiver) = SpanQueue::channel(1, Sampler { ratio: 1.0, parent_based: true });
        let span = || FinishedSpan {
            trace: Trace::start(),
            parent: None,
            ended_at: SystemTime::UNIX_EPOCH,
            elapsed: Duration::ZERO,
            details: SpanDetails::Command { name: "call" },
            error: None,
        };
        (0..3).for_each(|_| spans.record(span()));
        assert_eq!(spans.dropped(), 2);
        assert!(receiver.try_recv().is_ok() && receiver.try_recv().is_err());
    }

    #[test]
    fn tool_names_are_limited_in_number_and_length() {
        let names: Vec<String> = (0..200).map(|number| format!("s__tool_{number}")).collect();
        assert_eq!(limit_names(names.iter().map(String::as_str)).len(), MAX_SPAN_TOOL_NAMES);
        let long = "x".repeat(3000);
        assert_eq!(limit_names([long.as_str(), &long].into_iter()).len(), 1);
    }
}
