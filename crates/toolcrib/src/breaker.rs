//! A circuit breaker: after failures in a row a source is left alone for a while, then tried with one call.

use std::time::Duration;

use toolcrib_core::Timestamp;

const FAILURES: u32 = 5;
const REST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    opened_at: Option<Timestamp>,
    /// Whether the one call that may try again is under way.
    trying: bool,
}

/// How a call was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Normal,
    /// The one call that finds out whether the source is back.
    Trial,
}

impl Breaker {
    /// Whether a call may go; if not, when to ask again.
    pub(crate) fn admit(&mut self, now: Timestamp) -> Result<Admission, Duration> {
        let Some(opened_at) = self.opened_at else { return Ok(Admission::Normal) };
        let rested = now.since(opened_at);
        if rested < REST {
            return Err(REST - rested);
        }
        if self.trying {
            return Err(Duration::from_secs(1));
        }
        self.trying = true;
        Ok(Admission::Trial)
    }

    /// A call from before the source rested says nothing about how it is now.
    fn speaks(&self, admission: Admission) -> bool {
        admission == Admission::Trial || self.opened_at.is_none()
    }

    pub(crate) fn succeeded(&mut self, admission: Admission) {
        if self.speaks(admission) {
            *self = Breaker::default();
        }
    }

    pub(crate) fn failed(&mut self, admission: Admission, now: Timestamp) {
        if !self.speaks(admission) {
            return;
        }
        self.failures += 1;
        self.trying = false;
        if self.failures >= FAILURES {
            self.opened_at = Some(now);
        }
    }

    /// The call said nothing about the source: it was cancelled, say.
    pub(crate) fn undecided(&mut self, admission: Admission) {
        if admission == Admission::Trial {
            self.trying = false;
        }
    }

    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.opened_at.is_some_and(|opened_at| now.since(opened_at) < REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_open_it_and_one_call_tries_again() {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            assert!(breaker.admit(Timestamp(0)).is_ok());
            breaker.failed(Admission::Normal, Timestamp(0));
        }
        assert_eq!(breaker.admit(Timestamp(10_000)), Err(Duration::from_secs(20)));
        assert!(breaker.is_open(Timestamp(10_000)));
        assert_eq!(breaker.admit(Timestamp(30_000)), Ok(Admission::Trial));
        assert!(breaker.admit(Timestamp(30_000)).is_err(), "only one tries");
        breaker.undecided(Admission::Normal);
        breaker.succeeded(Admission::Normal);
        assert!(breaker.admit(Timestamp(30_000)).is_err(), "calls from before do not count");
        breaker.failed(Admission::Trial, Timestamp(30_000));
        assert!(breaker.admit(Timestamp(31_000)).is_err());
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
        breaker.succeeded(Admission::Trial);
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for round in 0..20 {
            breaker.failed(Admission::Normal, Timestamp(0));
            if round % 4 == 3 {
                breaker.succeeded(Admission::Trial);
            }
        }
        assert!(breaker.admit(Timestamp(0)).is_ok());
    }
}
