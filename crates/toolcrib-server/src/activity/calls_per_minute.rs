//! Number of calls per minute, for the last hour.
//!
//! Only minutes with calls are stored; the gaps are filled in when the hour is read.

use std::collections::VecDeque;

use toolcrib::core::Timestamp;

/// Milliseconds per minute, the unit of [`Timestamp`] being a millisecond.
const MINUTE_MS: i64 = 60_000;
/// Maximum number of minutes that are stored.
const MINUTES_PER_HOUR: usize = 60;

/// Counts of the minutes with at least one call, oldest first, by the number of the minute since 1970.
#[derive(Debug, Default)]
pub(crate) struct CallsPerMinute(VecDeque<(i64, MinuteCounts)>);

/// Calls of one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MinuteCounts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
}

impl CallsPerMinute {
    /// Counts a call that ended at `at`.
    pub(super) fn record_call(&mut self, at: Timestamp, failed: bool) {
        let minute_number = at.0.div_euclid(MINUTE_MS);
        if self.0.back().is_none_or(|(last, _)| *last < minute_number) {
            self.0.push_back((minute_number, MinuteCounts::default()));
            if self.0.len() > MINUTES_PER_HOUR {
                self.0.pop_front();
            }
        }
        // Notices of concurrent calls may arrive out of order; a late one counts for the newest minute.
        if let Some((_, minute)) = self.0.back_mut() {
            minute.calls += 1;
            minute.errors += u64::from(failed);
        }
    }

    /// Returns the counts of sixty minutes, the last of which contains `now`. Minutes without a call have zero counts.
    /// After the clock was set back, counts of the future are left out.
    pub(super) fn last_hour(&self, now: Timestamp) -> Vec<MinuteCounts> {
        let current = now.0.div_euclid(MINUTE_MS);
        let mut hour = vec![MinuteCounts::default(); MINUTES_PER_HOUR];
        for (minute_number, counts) in &self.0 {
            let age = usize::try_from(current - minute_number).ok().filter(|age| *age < MINUTES_PER_HOUR);
            if let Some(slot) = age.and_then(|age| hour.get_mut(MINUTES_PER_HOUR - 1 - age)) {
                *slot = *counts;
            }
        }
        hour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hour_has_sixty_minutes_and_drops_older_ones() {
        let mut minutes = CallsPerMinute::default();
        let at = |minute: i64| Timestamp(minute * MINUTE_MS + 5);
        for minute in 0..100 {
            minutes.record_call(at(minute), minute % 2 == 0);
        }
        minutes.record_call(at(99), false);
        let hour = minutes.last_hour(at(101));
        assert_eq!(hour.len(), MINUTES_PER_HOUR);
        assert_eq!(hour[MINUTES_PER_HOUR - 3], MinuteCounts { calls: 2, errors: 0 });
        assert_eq!(hour[MINUTES_PER_HOUR - 1], MinuteCounts::default());
        assert_eq!(hour.iter().map(|minute| minute.calls).sum::<u64>(), 59);
    }
}
