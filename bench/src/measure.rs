//! Taking times on a machine that others use too.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long one call takes, and what it gave.
pub(crate) fn measure_time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The best of several runs: whatever disturbs a computation makes it slower, never faster.
pub(crate) fn best_time<T>(mut work: impl FnMut() -> T) -> Duration {
    const MIN_RUNS: usize = 2;
    const MAX_RUNS: usize = 1_000;
    const TIME_BUDGET: Duration = Duration::from_millis(500);
    let began = Instant::now();
    let mut best = Duration::MAX;
    for round in 0..MAX_RUNS {
        if round >= MIN_RUNS && began.elapsed() > TIME_BUDGET {
            break;
        }
        // What comes out is dropped after the clock was read.
        let (time, result) = measure_time(|| black_box(work()));
        best = best.min(time);
        drop(result);
    }
    best
}

/// The exponent of a power law through two sizes: 1 is linear, 0 does not grow.
pub(crate) fn growth_exponent((small, fast): (usize, Duration), (large, slow): (usize, Duration)) -> f64 {
    (slow.as_secs_f64() / fast.as_secs_f64()).ln() / (large as f64 / small as f64).ln()
}

pub(crate) fn ratio(measured: Duration, against: Duration) -> f64 {
    measured.as_secs_f64() / against.as_secs_f64()
}
