//! Exact counts of what this process has done since its start, for monitoring. They are not stored: the monitoring
//! system that scrapes them keeps them. Everything is bounded, because sources come and go. The format that monitoring
//! reads is written by the server; `stats` shows the counts of all processes, from the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use toolcrib_core::principal::{Principal, PrincipalIdentity};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, SourceId};

/// Maximum number of sources that are counted by name; calls to further ones are counted without a source. Each label
/// is a time series in the monitoring system.
const MAX_SOURCE_LABELS: usize = 1000;

/// Maximum number of callers that are counted by name; further ones are counted as [`OTHER_CALLERS`].
const MAX_CALLER_LABELS: usize = 100;
/// Maximum number of callers without credentials among them. They name themselves, and must leave room for the others.
const MAX_LOCAL_LABELS: usize = 50;
/// Name under which callers beyond the limit are counted.
pub const OTHER_CALLERS: &str = "other";

/// Upper bounds of the histogram buckets in seconds; longer durations are only in `count` and `sum`.
pub const DURATION_BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Copy of all counts at one time.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// Finished calls by source; `None` for calls that found no tool.
    pub calls: BTreeMap<Option<SourceId>, CallMetrics>,
    /// Finished calls by caller, steps of workflows not included: `token:NAME` with the sessions of the console, `jwt:…`, or
    /// the name of a caller without credentials.
    pub callers: BTreeMap<String, CallerMetrics>,
    /// Calls to the sources that have limits.
    pub limited_sources: BTreeMap<SourceId, LimitedCalls>,
    /// Number of calls that have started and not ended.
    pub calls_in_flight: u64,
    /// Discoveries by kind of source and outcome (`success`, `unchanged`, `failed`).
    pub discoveries: BTreeMap<(&'static str, &'static str), DurationHistogram>,
    /// Requests for a source's tools: hits (fresh list) and misses.
    pub cache_lookups: BTreeMap<SourceId, (u64, u64)>,
    /// Number of spans that could not be exported; `None` without an exporter.
    pub dropped_spans: Option<u64>,
}

/// Calls of one source.
#[derive(Debug, Clone, Default)]
pub struct CallMetrics {
    /// Number of calls by result: `OK` or the error code.
    pub by_code: BTreeMap<&'static str, u64>,
    /// Number of calls whose tool answered with an error result; not counted in `by_code`.
    pub tool_errors: u64,
    /// Durations of all calls, failed ones included.
    pub durations: DurationHistogram,
}

/// Calls of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerMetrics {
    /// Calls with a result.
    pub succeeded: u64,
    /// Calls that failed, or whose tool reported an error.
    pub failed: u64,
    /// Calls that a limit refused: of the caller, of the source, or of the server behind it.
    pub rate_limited: u64,
}

/// Calls within a limit at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitedCalls {
    /// Calls that are in progress.
    pub in_flight: u64,
    /// Calls that wait for the end of others.
    pub waiting: u64,
}

/// Histogram over [`DURATION_BUCKETS`].
#[derive(Debug, Clone, Default)]
pub struct DurationHistogram {
    /// Count of each bucket alone, not cumulative.
    pub buckets: [u64; DURATION_BUCKETS.len()],
    /// Number of durations, with those above the last bucket.
    pub count: u64,
    /// Sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn observe(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if let Some(bucket) = DURATION_BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(elapsed);
    }
}

/// The counters of a registry.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// All counts except `calls_in_flight` and `limited_sources`.
    values: Mutex<MetricsSnapshot>,
    /// Apart from the lock, because every call changes it twice.
    in_flight: AtomicU64,
}

impl Metrics {
    /// Returns a copy of all counts.
    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let values = self.values.lock().clone();
        MetricsSnapshot { calls_in_flight: self.in_flight.load(Ordering::Relaxed), ..values }
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub(crate) fn start_call(&self) -> InFlightCall<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightCall(self)
    }

    /// Counts a finished call. `caller` is `None` for a step of a workflow, `code` if the tool answered with an error
    /// result.
    pub(crate) fn record_call(
        &self,
        source: Option<&SourceId>,
        caller: Option<&Principal>,
        code: Option<&'static str>,
        elapsed: Duration,
    ) {
        let mut values = self.values.lock();
        if let Some(caller) = caller {
            let metrics = values.caller_metrics(caller);
            match code {
                Some("OK") => metrics.succeeded += 1,
                Some(code) if code == Code::RateLimited.as_str() => metrics.rate_limited += 1,
                Some(_) | None => metrics.failed += 1,
            }
        }
        let is_full = values.calls.len() >= MAX_SOURCE_LABELS;
        let source = source.filter(|source| !is_full || values.calls.contains_key(&Some((*source).clone())));
        let calls = values.calls.entry(source.cloned()).or_default();
        match code {
            Some(code) => *calls.by_code.entry(code).or_default() += 1,
            None => calls.tool_errors += 1,
        }
        calls.durations.observe(elapsed);
    }

    /// Counts a finished discovery.
    pub(crate) fn record_discovery(&self, kind: &'static str, outcome: &'static str, elapsed: Duration) {
        self.values.lock().discoveries.entry((kind, outcome)).or_default().observe(elapsed);
    }

    /// Counts a request for a source's tools. Lookups of sources beyond the limit are not counted.
    pub(crate) fn record_lookup(&self, source: &SourceId, hit: bool) {
        let mut values = self.values.lock();
        if values.cache_lookups.len() >= MAX_SOURCE_LABELS && !values.cache_lookups.contains_key(source) {
            return;
        }
        let (hits, misses) = values.cache_lookups.entry(source.clone()).or_default();
        *hits += u64::from(hit);
        *misses += u64::from(!hit);
    }

    /// Returns the ratio of cache hits of a source, between 0 and 1. `None` before the first lookup.
    pub(crate) fn hit_ratio(&self, source: &SourceId) -> Option<f64> {
        let (hits, misses) = self.values.lock().cache_lookups.get(source).copied()?;
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }
}

impl MetricsSnapshot {
    /// Returns the counts of a caller, or those of all callers beyond the limit.
    fn caller_metrics(&mut self, caller: &Principal) -> &mut CallerMetrics {
        let is_local = *caller.identity() == PrincipalIdentity::Local;
        let max_labels = if is_local { MAX_LOCAL_LABELS } else { MAX_CALLER_LABELS };
        let label = if is_local {
            self.local_label(caller.name())
        } else if caller.identity().token_id().is_some() {
            // The same over every interface.
            format!("token:{}", caller.original_name())
        } else {
            caller.original_name().to_owned()
        };
        let has_room = self.callers.len() < max_labels || self.callers.contains_key(&label);
        self.callers.entry(if has_room { label } else { OTHER_CALLERS.to_owned() }).or_default()
    }

    /// Makes the name of a caller without credentials safe for a label.
    fn local_label(&self, name: &str) -> String {
        // Labels are safe already; making one takes longer than finding it.
        if self.callers.contains_key(name) { name.to_owned() } else { sanitize_truncated(name, 80) }
    }
}

/// RAII guard of a call in flight; also released when its caller disconnects.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a>(&'a Metrics);

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::access::Role;

    use super::*;

    #[test]
    fn the_number_of_sources_counted_by_name_is_bounded() {
        let metrics = Metrics::default();
        for number in 0..2 * MAX_SOURCE_LABELS {
            let source = SourceId::parse(&format!("s{number}")).unwrap();
            metrics.record_call(Some(&source), None, Some("OK"), Duration::from_millis(3));
            metrics.record_lookup(&source, true);
        }
        let snapshot = metrics.snapshot();
        assert_eq!((snapshot.calls.len(), snapshot.cache_lookups.len()), (MAX_SOURCE_LABELS + 1, MAX_SOURCE_LABELS));
        assert_eq!(snapshot.calls[&None].by_code["OK"], MAX_SOURCE_LABELS as u64);
        assert_eq!(snapshot.calls[&None].durations.buckets[3], MAX_SOURCE_LABELS as u64);
    }

    #[test]
    fn the_number_of_callers_counted_by_name_is_bounded_and_local_ones_leave_room() {
        let metrics = Metrics::default();
        let record = |caller: &Principal| {
            for code in [Some("OK"), Some("RATE_LIMITED"), Some("FORBIDDEN"), None] {
                metrics.record_call(None, Some(caller), code, Duration::ZERO);
            }
        };
        for number in 0..200 {
            record(&Principal::local(format!("agent\u{202e} {number}")));
        }
        let token = |number: u32| PrincipalIdentity::Token { id: number.to_string().into() };
        for number in 0..200 {
            record(&Principal::new(token(number), format!("ci-{number}"), Role::Agent).with_name("rest:x"));
        }
        let callers = metrics.snapshot().callers;
        assert_eq!(callers.len(), MAX_CALLER_LABELS);
        let each = CallerMetrics { succeeded: 1, failed: 2, rate_limited: 1 };
        assert_eq!((callers["agent 7"], callers["token:ci-7"]), (each, each));
        let calls = 400 - (MAX_CALLER_LABELS as u64 - 1);
        assert_eq!(callers[OTHER_CALLERS], CallerMetrics { succeeded: calls, failed: 2 * calls, rate_limited: calls });
    }
}
