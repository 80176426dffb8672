//! A circuit breaker: when calls to a source keep failing, callers are told so at once instead of waiting for the next
//! failure, and one call at a time (the probe) finds out whether the source is back.
//!
//! Five failures in a row open it, for 1 s at first and 30 s at most. What counts as a failure is decided by `counts`; a
//! refusal by the source does not.
//!
//! It decides by monotonic time, so that a wall clock that is set neither opens nor closes it. Wall-clock times are kept
//! for display only.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::Timestamp;

use crate::store::Failure;

/// Counted failures in a row that open the breaker.
const MAX_FAILURES: u32 = 5;
/// How long it stays open at first; doubled by each probe that fails.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// When the last failure was counted.
    counted_at: Option<Instant>,
    /// When a call last succeeded.
    succeeded_at: Option<Instant>,
    failing: Option<Failing>,
    open: Option<Open>,
    /// How often it has opened.
    openings: u64,
}

/// What is shown about failures in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failing {
    pub(crate) since: Timestamp,
    pub(crate) last_error: Failure,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    /// The end of the pause by the wall clock.
    retry_at: Timestamp,
    /// Whether a probe is on its way.
    probing: bool,
}

/// What becomes of a call that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted(Ticket),
    /// A probe is on its way: its end decides.
    AwaitProbe,
    /// Refused for so long.
    Refused(Duration),
}

/// A call that was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    began: Instant,
    /// Of a probe: of which opening.
    probe: Option<u64>,
}

/// How a call ended that the source did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// There was no connection, or it broke.
    Disconnected,
    /// The source took longer than its own deadline.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The breaker of a source as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BreakerView {
    pub state: BreakerState,
    /// When the next call is let through, while it is open.
    pub retry_at: Option<Timestamp>,
}

impl Breaker {
    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        let Some(open) = &mut self.open else { return Admission::Admitted(Ticket { began: now, probe: None }) };
        if now < open.until {
            return Admission::Refused(open.until - now);
        }
        if open.probing {
            return Admission::AwaitProbe;
        }
        open.probing = true;
        Admission::Admitted(Ticket { began: now, probe: Some(self.openings) })
    }

    /// The source answered with a result: it is well now, whenever the call began. Returns whether that closed the
    /// breaker.
    pub(crate) fn succeeded(&mut self, now: Instant) -> bool {
        self.succeeded_at = Some(now);
        self.close()
    }

    /// The source is known to be there. Returns whether the breaker was open.
    pub(crate) fn close(&mut self) -> bool {
        self.failures = 0;
        self.failing = None;
        self.open.take().is_some()
    }

    /// The source refused the call. That is no sign of ill health, so it counts neither way; but a source that refuses
    /// a probe is there.
    pub(crate) fn refused(&mut self, ticket: Ticket) {
        if self.is_current_probe(ticket) {
            self.close();
        }
    }

    /// Whether a call is the probe that callers wait for now; one of an earlier opening may still be on its way.
    fn is_current_probe(&self, ticket: Ticket) -> bool {
        self.open.is_some() && ticket.probe == Some(self.openings)
    }

    /// The source did not answer. `at` is `now` by the wall clock.
    pub(crate) fn failed(&mut self, ticket: Ticket, how: Unanswered, failure: Failure, now: Instant, at: Timestamp) {
        let pause = match &self.open {
            Some(open) if ticket.probe == Some(self.openings) => {
                self.failures = self.failures.saturating_add(1);
                Some((open.pause * 2).min(MAX_PAUSE))
            }
            // It was sent before the breaker opened, and says nothing new.
            Some(_) => return,
            None if self.counts(ticket, how) => {
                self.failures += 1;
                self.counted_at = Some(now);
                (self.failures >= MAX_FAILURES).then_some(FIRST_PAUSE)
            }
            None => return,
        };
        let since = self.failing.as_ref().map_or(at, |failing| failing.since);
        self.failing = Some(Failing { since, last_error: failure });
        if let Some(pause) = pause {
            self.openings += 1;
            self.open = Some(Open { until: now + pause, pause, retry_at: at.plus(pause), probing: false });
        }
    }

    /// Calls that are lost together, because one connection broke, are one failure: only a call that began after the
    /// last counted one says something new. A call that is late says nothing about a source that answered another one
    /// meanwhile.
    fn counts(&self, ticket: Ticket, how: Unanswered) -> bool {
        match how {
            Unanswered::Disconnected => self.counted_at.is_none_or(|counted_at| ticket.began >= counted_at),
            Unanswered::TimedOut => self.succeeded_at.is_none_or(|succeeded_at| succeeded_at < ticket.began),
        }
    }

    /// The call says nothing about the source: it was cancelled, or its caller waited for less time than the source may
    /// take.
    pub(crate) fn undecided(&mut self, ticket: Ticket) {
        let is_probe = self.is_current_probe(ticket);
        if let Some(open) = self.open.as_mut().filter(|_| is_probe) {
            open.probing = false;
        }
    }

    /// How long calls are refused, if they are.
    pub(crate) fn paused_for(&self, now: Instant) -> Option<Duration> {
        self.open.as_ref().and_then(|open| open.until.checked_duration_since(now)).filter(|pause| !pause.is_zero())
    }

    pub(crate) fn view(&self, now: Instant) -> BreakerView {
        match &self.open {
            None => BreakerView { state: BreakerState::Closed, retry_at: None },
            Some(open) if now < open.until => BreakerView { state: BreakerState::Open, retry_at: Some(open.retry_at) },
            Some(_) => BreakerView { state: BreakerState::HalfOpen, retry_at: None },
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn failing(&self) -> Option<&Failing> {
        self.failing.as_ref()
    }
}

impl Ticket {
    pub(crate) fn is_probe(self) -> bool {
        self.probe.is_some()
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Code;

    use super::*;

    /// A breaker and the time since it was made, in milliseconds.
    struct Bench {
        breaker: Breaker,
        start: Instant,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { breaker: Breaker::default(), start: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn admit(&mut self, ms: u64) -> Admission {
            self.breaker.admit(self.at(ms))
        }

        fn begin(&mut self, ms: u64) -> Ticket {
            match self.admit(ms) {
                Admission::Admitted(ticket) => ticket,
                other @ (Admission::AwaitProbe | Admission::Refused(_)) => panic!("{other:?} at {ms}"),
            }
        }

        fn fail(&mut self, ticket: Ticket, how: Unanswered, ms: u64) {
            let failure = Failure { code: Code::ToolUnavailable, message: format!("at {ms}"), retryable: true };
            let at = Timestamp(i64::try_from(ms).unwrap());
            self.breaker.failed(ticket, how, failure, self.at(ms), at);
        }

        fn lose(&mut self, ms: u64) {
            let ticket = self.begin(ms);
            self.fail(ticket, Unanswered::Disconnected, ms);
        }

        fn state(&self, ms: u64) -> BreakerState {
            self.breaker.view(self.at(ms)).state
        }
    }

    #[test]
    fn five_failures_open_it_and_the_pause_doubles() {
        let mut bench = Bench::new();
        (0..5).for_each(|ms| bench.lose(ms));
        assert_eq!(bench.admit(504), Admission::Refused(Duration::from_millis(500)));
        let view = bench.breaker.view(bench.at(504));
        assert_eq!((view.state, view.retry_at), (BreakerState::Open, Some(Timestamp(1004))));
        assert_eq!(bench.breaker.failing().unwrap().since, Timestamp(0));
        let mut at = 1004;
        for pause in [2, 4, 8, 16, 30, 30] {
            assert_eq!(bench.state(at), BreakerState::HalfOpen);
            bench.lose(at);
            assert_eq!(bench.admit(at), Admission::Refused(Duration::from_secs(pause)));
            at += pause * 1000;
        }
        let probe = bench.begin(at);
        assert_eq!(bench.admit(at), Admission::AwaitProbe, "one probe at a time");
        bench.breaker.undecided(probe);
        let probe = bench.begin(at);
        assert!(probe.is_probe());
        bench.breaker.succeeded(bench.at(at));
        assert_eq!((bench.state(at), bench.breaker.failures()), (BreakerState::Closed, 0));
        (0..5).for_each(|_| bench.lose(at));
        assert_eq!(bench.admit(at), Admission::Refused(Duration::from_secs(1)), "the pause begins anew");
    }

    #[test]
    fn calls_that_are_lost_together_are_one_failure() {
        let mut bench = Bench::new();
        for round in 0..4 {
            let calls: Vec<Ticket> = (0..50).map(|_| bench.begin(round * 10)).collect();
            calls.into_iter().for_each(|call| bench.fail(call, Unanswered::Disconnected, round * 10 + 5));
            assert_eq!(u64::from(bench.breaker.failures()), round + 1);
        }
        bench.lose(100);
        assert_eq!(bench.state(100), BreakerState::Open);
    }

    #[test]
    fn a_late_call_counts_only_if_no_other_was_answered_meanwhile() {
        let mut bench = Bench::new();
        for _ in 0..10 {
            let late = bench.begin(0);
            bench.breaker.succeeded(bench.at(500));
            bench.fail(late, Unanswered::TimedOut, 1000);
        }
        assert_eq!(bench.breaker.failures(), 0);
        let late: Vec<Ticket> = (0..5).map(|_| bench.begin(1000)).collect();
        late.into_iter().for_each(|call| bench.fail(call, Unanswered::TimedOut, 2000));
        assert_eq!(bench.state(2000), BreakerState::Open);
    }

    #[test]
    fn a_refusal_does_not_move_it_but_ends_a_probe() {
        let mut bench = Bench::new();
        (0..4).for_each(|ms| bench.lose(ms));
        let refused = bench.begin(4);
        bench.breaker.refused(refused);
        assert_eq!(bench.breaker.failures(), 4);
        bench.lose(4);
        bench.breaker.refused(refused);
        assert_eq!(bench.state(5), BreakerState::Open);
        let probe = bench.begin(1004);
        bench.breaker.refused(probe);
        assert_eq!(bench.state(1004), BreakerState::Closed);
    }

    #[test]
    fn a_probe_of_an_earlier_opening_decides_nothing() {
        let mut bench = Bench::new();
        (0..5).for_each(|ms| bench.lose(ms));
        let old = bench.begin(1004);
        assert!(bench.breaker.close());
        (0..5).for_each(|_| bench.lose(2000));
        let probe = bench.begin(3000);
        bench.breaker.undecided(old);
        assert_eq!(bench.admit(3000), Admission::AwaitProbe);
        bench.fail(old, Unanswered::TimedOut, 3001);
        bench.breaker.refused(old);
        assert_eq!(bench.admit(3001), Admission::AwaitProbe);
        bench.fail(probe, Unanswered::TimedOut, 3002);
        assert_eq!(bench.admit(3002), Admission::Refused(Duration::from_secs(2)));
    }

    #[test]
    fn calls_from_before_it_opened_do_not_prolong_the_pause() {
        let mut bench = Bench::new();
        let old = bench.begin(0);
        (0..5).for_each(|ms| bench.lose(ms));
        bench.fail(old, Unanswered::TimedOut, 900);
        assert_eq!(bench.admit(904), Admission::Refused(Duration::from_millis(100)));
        bench.breaker.succeeded(bench.at(905));
        assert_eq!(bench.state(905), BreakerState::Closed, "an answer is an answer");
    }
}
