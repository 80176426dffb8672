//! Whether the cached tool list of a source is recent enough, and how long to back off after failures. Pure functions;
//! the refresh code of the library acts on them.
//!
//! Freshness is about the last successful check, not about the last change: a list that was fetched a minute ago and is
//! the same as last year is fresh. A failed check does not make a list older; the old list is served with the error
//! beside it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// State of a source's cached tool list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// Checked within the TTL.
    Fresh,
    /// The last check is older than the TTL.
    Stale,
    /// Never checked.
    Missing,
}

impl Freshness {
    /// Evaluates freshness; `checked_at` is the time of the last successful check, if any.
    /// An age of exactly `ttl` is stale, so a `ttl` of zero always is.
    pub fn evaluate(checked_at: Option<Timestamp>, ttl: Duration, now: Timestamp) -> Freshness {
        match checked_at {
            None => Freshness::Missing,
            // A check further in the future means that the clock was set back; its age is unknown then.
            Some(at) if at > now.plus(MAX_CLOCK_DIFFERENCE) || now.since(at) >= ttl => Freshness::Stale,
            Some(_) => Freshness::Fresh,
        }
    }
}

/// Difference between the clocks of machines that share a store. A check that is ahead by less has just been made, by a
/// machine whose clock is ahead.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(10);

/// Maximum pause after failures: five minutes, as long as the default `ttl`. A stored pause that ends later is ignored,
/// because then the wall clock was set back.
pub const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Pause after a number of consecutive failures: doubles from 1 second to [`MAX_BACKOFF`]. `jitter` from 0 to 1
/// shortens it by up to half, so that many sources are not retried at once.
pub fn backoff(failures: u32, jitter: f64) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    // The exponent is bounded; 2^15 seconds are far above the maximum.
    let full = Duration::from_secs(1) * 2u32.saturating_pow(failures.min(16) - 1);
    full.min(MAX_BACKOFF).mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_stale_after_its_ttl() {
        let ttl = Duration::from_secs(300);
        let check = |checked: Option<i64>, now: i64| Freshness::evaluate(checked.map(Timestamp), ttl, Timestamp(now));
        assert_eq!(check(None, 0), Freshness::Missing);
        assert_eq!(check(Some(0), 299_999), Freshness::Fresh);
        assert_eq!(check(Some(0), 300_000), Freshness::Stale);
        let ahead = i64::try_from(MAX_CLOCK_DIFFERENCE.as_millis()).unwrap();
        assert_eq!(check(Some(ahead), 0), Freshness::Fresh);
        assert_eq!(check(Some(ahead + 1), 0), Freshness::Stale);
        assert_eq!(Freshness::evaluate(Some(Timestamp(5)), Duration::ZERO, Timestamp(0)), Freshness::Stale);
    }

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let seconds: Vec<u64> = (0..=10).map(|failures| backoff(failures, 0.0).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(backoff(2, 1.0), Duration::from_secs(1));
        assert_eq!(backoff(u32::MAX, 0.5).as_secs(), 225);
    }
}
