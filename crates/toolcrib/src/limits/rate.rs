//! Token bucket of `calls_per_minute`: holds one minute's calls, starts full, and refills evenly.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which an empty bucket refills.
const REFILL_TIME: Duration = Duration::from_secs(60);

/// A token bucket, as the time at which it will be full again. The number of calls that it holds is passed in, so that a
/// changed limit applies at once: a bucket that is half full stays half full.
#[derive(Debug, Default)]
pub(super) struct RateBucket {
    /// `None` for a bucket that no call was taken from.
    full_at: Option<Instant>,
}

impl RateBucket {
    /// Takes a call. Fails with the time until the next one, without taking it, if the bucket is empty.
    pub(super) fn take(&mut self, calls_per_minute: u32, now: Instant) -> Result<(), Duration> {
        // Rounded down, so that never less than the limit is accepted.
        let interval = REFILL_TIME / calls_per_minute.max(1);
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + interval;
        let missing = full_at.duration_since(now);
        let capacity = interval * calls_per_minute.max(1);
        if missing > capacity {
            return Err(missing - capacity);
        }
        self.full_at = Some(full_at);
        Ok(())
    }

    /// Whether no call is missing.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_a_minutes_calls_and_refills_evenly() {
        let start = Instant::now();
        for limit in [1, 7, 600, 1_000_000] {
            let mut bucket = RateBucket::default();
            assert!((0..limit).all(|_| bucket.take(limit, start).is_ok()));
            let wait = bucket.take(limit, start).unwrap_err();
            assert_eq!(wait, REFILL_TIME / limit, "{limit}");
            assert!(bucket.take(limit, start + wait - Duration::from_nanos(1)).is_err());
            assert!(bucket.take(limit, start + wait).is_ok());
            assert_eq!(bucket.take(limit, start + wait), Err(wait), "a refused call takes nothing");
            let later = start + wait + REFILL_TIME;
            assert!(!bucket.is_full(start + wait) && bucket.is_full(later));
            assert!((0..limit).all(|_| bucket.take(limit, later).is_ok()));
            assert!(bucket.take(limit, later).is_err(), "a full bucket does not grow");
        }
    }

    #[test]
    fn a_changed_limit_keeps_the_part_that_is_used() {
        let start = Instant::now();
        let mut bucket = RateBucket::default();
        assert!((0..30).all(|_| bucket.take(60, start).is_ok()), "half of it");
        assert!((0..5).all(|_| bucket.take(10, start).is_ok()));
        assert_eq!(bucket.take(10, start), Err(Duration::from_secs(6)));
    }
}
