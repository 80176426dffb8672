//! What this process has done since it began, counted exactly, for monitoring. It is written nowhere: whoever scrapes it
//! keeps it. Everything here is bounded, for sources come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolcrib_core::SourceId;

/// Calls to sources beyond so many are counted as those to none that is known.
const MOST_SOURCES: usize = 1000;

/// In seconds; what takes longer is in none of them.
pub const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// A copy of all that was counted, as it stands at one moment.
#[derive(Debug, Clone, Default)]
pub struct Measures {
    /// Calls that ended; without a source those that came to no tool.
    pub calls: BTreeMap<Option<SourceId>, Calls>,
    pub calls_in_flight: u64,
    /// By the kind of the source and what came of it: `success`, `unchanged`, `failed`.
    pub discoveries: BTreeMap<(&'static str, &'static str), Durations>,
    /// Needs met from the cache, and those that were not.
    pub needs: BTreeMap<SourceId, (u64, u64)>,
    /// Where spans are exported: those that could not be.
    pub spans_lost: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// `OK`, or the code of what went wrong.
    pub by_code: BTreeMap<&'static str, u64>,
    /// Those whose tool did its work and answered that something was wrong; they are in no code.
    pub tool_errors: u64,
    pub durations: Durations,
}

/// How long things took, sorted into [`BUCKETS`].
#[derive(Debug, Clone, Default)]
pub struct Durations {
    /// Each counts what is in it alone.
    pub buckets: [u64; BUCKETS.len()],
    pub count: u64,
    pub sum: Duration,
}

impl Durations {
    pub fn add(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(elapsed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Meters {
    measures: Mutex<Measures>,
    in_flight: AtomicU64,
}

impl Meters {
    pub(crate) fn read(&self) -> Measures {
        let measures = self.measures().clone();
        Measures { calls_in_flight: self.in_flight.load(Ordering::Relaxed), ..measures }
    }

    /// A call begins; it is in flight until what is returned is dropped.
    pub(crate) fn call_begins(&self) -> Calling<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Calling(self)
    }

    /// `code` is none where the tool itself answered with an error.
    pub(crate) fn called(&self, source: Option<&SourceId>, code: Option<&'static str>, elapsed: Duration) {
        let mut measures = self.measures();
        let full = measures.calls.len() >= MOST_SOURCES;
        let source = source.filter(|source| !full || measures.calls.contains_key(&Some((*source).clone())));
        let calls = measures.calls.entry(source.cloned()).or_default();
        match code {
            Some(code) => *calls.by_code.entry(code).or_default() += 1,
            None => calls.tool_errors += 1,
        }
        calls.durations.add(elapsed);
    }

    pub(crate) fn discovered(&self, kind: &'static str, outcome: &'static str, elapsed: Duration) {
        self.measures().discoveries.entry((kind, outcome)).or_default().add(elapsed);
    }

    pub(crate) fn needed(&self, source: &SourceId, hit: bool) {
        let mut measures = self.measures();
        if measures.needs.len() >= MOST_SOURCES && !measures.needs.contains_key(source) {
            return;
        }
        let (hits, misses) = measures.needs.entry(source.clone()).or_default();
        *hits += u64::from(hit);
        *misses += u64::from(!hit);
    }

    /// How often a source's needs were met from the cache, between 0 and 1.
    pub(crate) fn hit_ratio(&self, source: &SourceId) -> Option<f64> {
        let (hits, misses) = self.measures().needs.get(source).copied()?;
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }

    fn measures(&self) -> MutexGuard<'_, Measures> {
        self.measures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. Its caller may leave at any point.
#[derive(Debug)]
pub(crate) struct Calling<'a>(&'a Meters);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_without_number_do_not_grow_what_is_counted() {
        let meters = Meters::default();
        for number in 0..2 * MOST_SOURCES {
            let source = SourceId::parse(&format!("s{number}")).unwrap();
            meters.called(Some(&source), Some("OK"), Duration::from_millis(3));
            meters.needed(&source, true);
        }
        let measures = meters.read();
        assert_eq!((measures.calls.len(), measures.needs.len()), (MOST_SOURCES + 1, MOST_SOURCES));
        assert_eq!(measures.calls[&None].by_code["OK"], MOST_SOURCES as u64);
        assert_eq!(measures.calls[&None].durations.buckets[3], MOST_SOURCES as u64);
    }
}
