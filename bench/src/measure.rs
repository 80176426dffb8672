//! Time measurement that is robust on a machine with other load.
//!
//! Two statistics are used. The median is for operations that involve other processes or the network, whose times vary
//! by themselves. The fastest run is for computations, which only other load can slow down.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Measures one call and returns its result, so that the result is dropped outside the measured time.
pub(crate) fn measure_time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// Upper median; zero for no times.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the fastest of several runs: disturbances only ever make a computation slower.
pub(crate) fn best_time<T>(mut work: impl FnMut() -> T) -> Duration {
    // Two runs at least, since the first fills the caches; at most half a second, unless two runs take longer.
    const MIN_RUNS: usize = 2;
    const MAX_RUNS: usize = 1_000;
    const TIME_BUDGET: Duration = Duration::from_millis(500);
    let began = Instant::now();
    let mut best = Duration::MAX;
    for round in 0..MAX_RUNS {
        if round >= MIN_RUNS && began.elapsed() > TIME_BUDGET {
            break;
        }
        // The result is dropped outside the measured time.
        let (time, result) = measure_time(|| black_box(work()));
        best = best.min(time);
        drop(result);
    }
    best
}

/// Exponent of a power law through two measurements: 1 is linear, 0 is constant. Each is a size with the time of the
/// whole operation.
pub(crate) fn growth_exponent((small, fast): (usize, Duration), (large, slow): (usize, Duration)) -> f64 {
    (slow.as_secs_f64() / fast.as_secs_f64()).ln() / (large as f64 / small as f64).ln()
}

/// Ratio of a measurement to its baseline; below 1 it is faster.
pub(crate) fn ratio(measured: Duration, baseline: Duration) -> f64 {
    measured.as_secs_f64() / baseline.as_secs_f64()
}

/// Returns the time that this part of all times do not exceed; zero for no times.
pub(crate) fn percentile(times: &[Duration], part: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let index = (times.len() as f64 * part).ceil() as usize;
    times.get(index.saturating_sub(1)).copied().unwrap_or_default()
}
