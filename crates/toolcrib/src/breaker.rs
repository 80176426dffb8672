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

impl Breaker {
    /// Whether a call may go; if not, when to ask again.
    pub(crate) fn admit(&mut self, now: Timestamp) -> Result<(), Duration> {
        let Some(opened_at) = self.opened_at else { return Ok(()) };
        let rested = now.since(opened_at);
        if rested < REST {
            return Err(REST - rested);
        }
        if self.trying {
            return Err(Duration::from_secs(1));
        }
        self.trying = true;
        Ok(())
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Breaker::default();
    }

    pub(crate) fn failed(&mut self, now: Timestamp) {
        self.failures += 1;
        self.trying = false;
        if self.failures >= FAILURES {
            self.opened_at = Some(now);
        }
    }

    /// The call said nothing about the source: it was cancelled, say.
    pub(crate) fn undecided(&mut self) {
        self.trying = false;
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
            breaker.failed(Timestamp(0));
        }
        assert_eq!(breaker.admit(Timestamp(10_000)), Err(Duration::from_secs(20)));
        assert!(breaker.is_open(Timestamp(10_000)));
        assert!(breaker.admit(Timestamp(30_000)).is_ok());
        assert!(breaker.admit(Timestamp(30_000)).is_err(), "only one tries");
        breaker.failed(Timestamp(30_000));
        assert!(breaker.admit(Timestamp(31_000)).is_err());
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
        breaker.succeeded();
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
        assert!(breaker.admit(Timestamp(60_000)).is_ok());
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for round in 0..20 {
            breaker.failed(Timestamp(0));
            if round % 4 == 3 {
                breaker.succeeded();
            }
        }
        assert!(breaker.admit(Timestamp(0)).is_ok());
    }
}
