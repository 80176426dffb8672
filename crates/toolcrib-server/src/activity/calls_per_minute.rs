//! Calls by the minute, for the last hour.

use std::collections::VecDeque;

use toolcrib::core::Timestamp;

const MINUTE_MS: i64 = 60_000;
const MINUTES_PER_HOUR: usize = 60;

/// The minutes in which something was called, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct CallsPerMinute(VecDeque<(i64, MinuteCounts)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MinuteCounts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
}

impl CallsPerMinute {
    pub(super) fn record_call(&mut self, at: Timestamp, error: bool) {
        let number = at.0.div_euclid(MINUTE_MS);
        if self.0.back().is_none_or(|(last, _)| *last < number) {
            self.0.push_back((number, MinuteCounts::default()));
            if self.0.len() > MINUTES_PER_HOUR {
                self.0.pop_front();
            }
        }
        // A call that ended in another minute than it is told in counts for the last one.
        if let Some((_, minute)) = self.0.back_mut() {
            minute.calls += 1;
            minute.errors += u64::from(error);
        }
    }

    /// Sixty minutes that end with this one.
    pub(super) fn last_hour(&self, now: Timestamp) -> Vec<MinuteCounts> {
        let last = now.0.div_euclid(MINUTE_MS);
        let mut hour = vec![MinuteCounts::default(); MINUTES_PER_HOUR];
        for (number, minute) in &self.0 {
            let back = usize::try_from(last - number).ok().filter(|back| *back < MINUTES_PER_HOUR);
            if let Some(place) = back.and_then(|back| hour.get_mut(MINUTES_PER_HOUR - 1 - back)) {
                *place = *minute;
            }
        }
        hour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_sixty_minutes_and_forgets_the_ones_before() {
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
