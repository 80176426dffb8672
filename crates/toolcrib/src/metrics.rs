//! What this process has done since it began, counted exactly, for monitoring. It is written nowhere: whoever scrapes it
//! keeps it. Everything here is bounded, for sources come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolcrib_core::SourceId;

/// Calls to sources beyond so many are counted as those to none that is known.
const MAX_SOURCE_LABELS: usize = 1000;

/// In seconds; what takes longer is in none of them.
pub const DURATION_BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// A copy of all that was counted, as it stands at one moment.
#[derive(Debug, Clone, Default)]
pub struct MetricsSnapshot {
    /// Calls that ended; without a source those that came to no tool.
    pub calls: BTreeMap<Option<SourceId>, CallMetrics>,
    pub calls_in_flight: u64,
    /// By the kind of the source and what came of it: `success`, `unchanged`, `failed`.
    pub discoveries: BTreeMap<(&'static str, &'static str), DurationHistogram>,
    /// Needs met from the cache, and those that were not.
    pub cache_lookups: BTreeMap<SourceId, (u64, u64)>,
    /// Where spans are exported: those that could not be.
    pub dropped_spans: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct CallMetrics {
    /// `OK`, or the code of what went wrong.
    pub by_code: BTreeMap<&'static str, u64>,
    /// Those whose tool did its work and answered that something was wrong; they are in no code.
    pub tool_errors: u64,
    pub durations: DurationHistogram,
}

/// How long things took, sorted into [`BUCKETS`].
#[derive(Debug, Clone, Default)]
pub struct DurationHistogram {
    /// Each counts what is in it alone.
    pub buckets: [u64; DURATION_BUCKETS.len()],
    pub count: u64,
    pub sum: Duration,
}

impl DurationHistogram {
    pub fn observe(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if let Some(bucket) = DURATION_BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(elapsed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    values: Mutex<MetricsSnapshot>,
    in_flight: AtomicU64,
}

impl Metrics {
    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let measures = self.lock_values().clone();
        MetricsSnapshot { calls_in_flight: self.in_flight.load(Ordering::Relaxed), ..measures }
    }

    /// A call begins; it is in flight until what is returned is dropped.
    pub(crate) fn start_call(&self) -> InFlightCall<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightCall(self)
    }

    /// `code` is none where the tool itself answered with an error.
    pub(crate) fn record_call(&self, source: Option<&SourceId>, code: Option<&'static str>, elapsed: Duration) {
        let mut measures = self.lock_values();
        let full = measures.calls.len() >= MAX_SOURCE_LABELS;
        let source = source.filter(|source| !full || measures.calls.contains_key(&Some((*source).clone())));
        let calls = measures.calls.entry(source.cloned()).or_default();
        match code {
            Some(code) => *calls.by_code.entry(code).or_default() += 1,
            None => calls.tool_errors += 1,
        }
        calls.durations.observe(elapsed);
    }

    pub(crate) fn record_discovery(&self, kind: &'static str, outcome: &'static str, elapsed: Duration) {
        self.lock_values().discoveries.entry((kind, outcome)).or_default().observe(elapsed);
    }

    pub(crate) fn record_lookup(&self, source: &SourceId, hit: bool) {
        let mut measures = self.lock_values();
        if measures.cache_lookups.len() >= MAX_SOURCE_LABELS && !measures.cache_lookups.contains_key(source) {
            return;
        }
        let (hits, misses) = measures.cache_lookups.entry(source.clone()).or_default();
        *hits += u64::from(hit);
        *misses += u64::from(!hit);
    }

    /// How often a source's needs were met from the cache, between 0 and 1.
    pub(crate) fn hit_ratio(&self, source: &SourceId) -> Option<f64> {
        let (hits, misses) = self.lock_values().cache_lookups.get(source).copied()?;
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }

    fn lock_values(&self) -> MutexGuard<'_, MetricsSnapshot> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. Its caller may leave at any point.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a>(&'a Metrics);

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_without_number_do_not_grow_what_is_counted() {
        let meters = Metrics::default();
        for number in 0..2 * MAX_SOURCE_LABELS {
            let source = SourceId::parse(&format!("s{number}")).unwrap();
            meters.record_call(Some(&source), Some("OK"), Duration::from_millis(3));
            meters.record_lookup(&source, true);
        }
        let measures = meters.snapshot();
        assert_eq!((measures.calls.len(), measures.cache_lookups.len()), (MAX_SOURCE_LABELS + 1, MAX_SOURCE_LABELS));
        assert_eq!(measures.calls[&None].by_code["OK"], MAX_SOURCE_LABELS as u64);
        assert_eq!(measures.calls[&None].durations.buckets[3], MAX_SOURCE_LABELS as u64);
    }
}
