//! Finished work, told as plain data to whoever exports it. Telling waits for nobody: what there is no room for is lost,
//! and counted. Nothing here holds an argument or a result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use toolcrib_core::SourceId;

use crate::trace::Trace;

/// Names of tools told with a discovery, and their bytes together.
const MAX_SPAN_TOOL_NAMES: usize = 50;
const MAX_SPAN_NAME_BYTES: usize = 4096;

/// Where finished work is told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SpanQueue {
    sender: mpsc::Sender<FinishedSpan>,
    dropped: Arc<AtomicU64>,
    sampler: Sampler,
}

/// Which traces are exported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Of those that nobody decided about: between 0 and 1.
    pub ratio: f64,
    /// Whether what we are part of decides.
    pub parent_based: bool,
}

/// One piece of work that ended.
#[derive(Debug, Clone)]
pub struct FinishedSpan {
    pub trace: Trace,
    /// The span it is part of.
    pub parent: Option<u64>,
    /// By the world's clock: others' spans go by that too.
    pub ended_at: SystemTime,
    pub elapsed: Duration,
    pub details: SpanDetails,
    pub error: Option<SpanError>,
}

/// What went wrong: a code, and what may be told of it.
#[derive(Debug, Clone)]
pub struct SpanError {
    pub code: &'static str,
    pub message: Option<String>,
}

#[derive(Debug, Clone)]
pub enum SpanDetails {
    Command {
        name: &'static str,
    },
    Discovery {
        source: SourceId,
        kind: &'static str,
        tool_count: usize,
        /// As agents see them; the first few.
        tools: Vec<String>,
        /// The list was recent enough, and nobody was contacted.
        cache_hit: bool,
        /// Of the source's needs in this process.
        hit_ratio: Option<f64>,
    },
    Call {
        /// As agents see it; of a tool that is not known, as it was asked for.
        tool: String,
        /// Of a tool that is known.
        source: Option<SpanSource>,
        caller: String,
    },
}

#[derive(Debug, Clone)]
pub struct SpanSource {
    pub id: SourceId,
    pub kind: &'static str,
    pub transport: &'static str,
    /// The version of MCP that it speaks.
    pub protocol: Option<String>,
}

impl SpanQueue {
    /// Room for so many that wait to be exported.
    pub fn channel(room: usize, sampler: Sampler) -> (SpanQueue, mpsc::Receiver<FinishedSpan>) {
        let (sender, receiver) = mpsc::channel(room);
        (SpanQueue { sender, dropped: Arc::default(), sampler }, receiver)
    }

    pub fn record(&self, finished: FinishedSpan) {
        if finished.trace.is_sampled() && self.sender.try_send(finished).is_err() {
            self.add_dropped(1);
        }
    }

    /// So many were told and could not be exported.
    pub fn add_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The trace of work that begins now, as part of another's if that is given.
    pub fn start_trace(&self, parent: Option<&Trace>) -> Trace {
        match parent {
            Some(parent) if self.sampler.parent_based => parent.child(),
            Some(parent) => parent.child().with_sampled(self.sampler.is_sampled(parent)),
            None => {
                let trace = Trace::start(true);
                let sampled = self.sampler.is_sampled(&trace);
                trace.with_sampled(sampled)
            }
        }
    }
}

impl Sampler {
    /// The same decision for every part of a trace: it goes by the trace's id, of which the last 56 bits are random.
    fn is_sampled(self, trace: &Trace) -> bool {
        const RANDOM_BITS: u128 = (1 << 56) - 1;
        let place = (trace.id().0 & RANDOM_BITS) as f64 / (RANDOM_BITS as f64 + 1.0);
        place < self.ratio
    }
}

/// As many names as are told of a list.
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
    fn a_sampler_takes_its_share_and_heeds_who_decided_before() {
        let spans = |ratio, by_parent| SpanQueue::channel(1, Sampler { ratio, parent_based: by_parent }).0;
        let unsampled = Trace::start(false);
        for (ratio, by_parent, parent, expected) in [
            (1.0, true, None, true),
            (0.0, true, None, false),
            (1.0, true, Some(&unsampled), false),
            (1.0, false, Some(&unsampled), true),
            (0.0, false, Some(&Trace::start(true)), false),
        ] {
            assert_eq!(spans(ratio, by_parent).start_trace(parent).is_sampled(), expected, "{ratio} {by_parent}");
        }
        let half = spans(0.5, true);
        let taken = (0..1000).filter(|_| half.start_trace(None).is_sampled()).count();
        assert!((300..700).contains(&taken), "{taken}");
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let (spans, mut told) = SpanQueue::channel(1, Sampler { ratio: 1.0, parent_based: true });
        let finished = || FinishedSpan {
            trace: Trace::start(true),
            parent: None,
            ended_at: SystemTime::UNIX_EPOCH,
            elapsed: Duration::ZERO,
            details: SpanDetails::Command { name: "call" },
            error: None,
        };
        (0..3).for_each(|_| spans.record(finished()));
        assert_eq!(spans.dropped(), 2);
        assert!(told.try_recv().is_ok() && told.try_recv().is_err());
    }

    #[test]
    fn names_are_told_up_to_a_bound() {
        let names: Vec<String> = (0..200).map(|number| format!("s__tool_{number}")).collect();
        assert_eq!(limit_names(names.iter().map(String::as_str)).len(), MAX_SPAN_TOOL_NAMES);
        let long = "x".repeat(3000);
        assert_eq!(limit_names([long.as_str(), &long].into_iter()).len(), 1);
    }
}
