//! Whether what we know of a source is recent enough. A pure function; who acts on it decides elsewhere.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    Fresh,
    Stale,
    Missing,
}

impl Freshness {
    /// `checked_at` is the last time the source itself answered, if ever.
    pub fn evaluate(checked_at: Option<Timestamp>, ttl: Duration, now: Timestamp) -> Freshness {
        match checked_at {
            None => Freshness::Missing,
            // A check from the future (a clock set back) says nothing about age.
            Some(at) if at > now || now.since(at) >= ttl => Freshness::Stale,
            Some(_) => Freshness::Fresh,
        }
    }
}

/// The longest pause after failures.
pub const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// How long to leave a source alone after `failures` in a row: doubling from one second to five minutes.
/// `jitter` is between 0 and 1 and takes up to half of it away, so that many sources do not return at once.
pub fn backoff(failures: u32, jitter: f64) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let full = Duration::from_secs(1) * 2u32.saturating_pow(failures.min(16) - 1);
    full.min(MAX_BACKOFF).mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_ends_with_its_ttl() {
        let ttl = Duration::from_secs(300);
        let check = |checked: Option<i64>, now: i64| Freshness::evaluate(checked.map(Timestamp), ttl, Timestamp(now));
        assert_eq!(check(None, 0), Freshness::Missing);
        assert_eq!(check(Some(0), 299_999), Freshness::Fresh);
        assert_eq!(check(Some(0), 300_000), Freshness::Stale);
        assert_eq!(check(Some(10), 5), Freshness::Stale);
    }

    #[test]
    fn backoff_doubles_and_stops_growing() {
        let seconds: Vec<u64> = (0..=10).map(|failures| backoff(failures, 0.0).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(backoff(2, 1.0), Duration::from_secs(1));
        assert_eq!(backoff(u32::MAX, 0.5).as_secs(), 225);
    }
}
