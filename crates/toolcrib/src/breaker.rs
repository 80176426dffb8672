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

use crate::store::ErrorSummary;

/// Counted failures in a row that open the breaker.
const FAILURE_THRESHOLD: u32 = 5;
/// How long it stays open at first; doubled by each probe that fails.
const INITIAL_OPEN_DURATION: Duration = Duration::from_secs(1);
const MAX_OPEN_DURATION: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// When the last failure was counted.
    last_failure_at: Option<Instant>,
    /// When a call last succeeded.
    last_success_at: Option<Instant>,
    failure_streak: Option<FailureStreak>,
    open: Option<OpenState>,
    /// How often it has opened.
    generation: u64,
}

/// What is shown about failures in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailureStreak {
    pub(crate) since: Timestamp,
    pub(crate) last_error: ErrorSummary,
}

#[derive(Debug)]
struct OpenState {
    until: Instant,
    open_duration: Duration,
    /// The end of the pause by the wall clock.
    retry_at: Timestamp,
    /// Whether a probe is on its way.
    is_probing: bool,
}

/// What becomes of a call that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerDecision {
    Allow(BreakerPermit),
    /// A probe is on its way: its end decides.
    WaitForProbe,
    /// Refused for so long.
    Reject(Duration),
}

/// A call that was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BreakerPermit {
    started_at: Instant,
    /// Of a probe: of which opening.
    probe_generation: Option<u64>,
}

/// How a call ended that the source did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResponseReason {
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
    pub(crate) fn admit(&mut self, now: Instant) -> BreakerDecision {
        let Some(open) = &mut self.open else {
            return BreakerDecision::Allow(BreakerPermit { started_at: now, probe_generation: None });
        };
        if now < open.until {
            return BreakerDecision::Reject(open.until - now);
        }
        if open.is_probing {
            return BreakerDecision::WaitForProbe;
        }
        open.is_probing = true;
        BreakerDecision::Allow(BreakerPermit { started_at: now, probe_generation: Some(self.generation) })
    }

    /// The source answered with a result: it is well now, whenever the call began. Returns whether that closed the
    /// breaker.
    pub(crate) fn record_success(&mut self, now: Instant) -> bool {
        self.last_success_at = Some(now);
        self.close()
    }

    /// The source is known to be there. Returns whether the breaker was open.
    pub(crate) fn close(&mut self) -> bool {
        self.failures = 0;
        self.failure_streak = None;
        self.open.take().is_some()
    }

    /// The source refused the call. That is no sign of ill health, so it counts neither way; but a source that refuses
    /// a probe is there.
    pub(crate) fn record_rejection(&mut self, ticket: BreakerPermit) {
        if self.is_current_probe(ticket) {
            self.close();
        }
    }

    /// Whether a call is the probe that callers wait for now; one of an earlier opening may still be on its way.
    fn is_current_probe(&self, ticket: BreakerPermit) -> bool {
        self.open.is_some() && ticket.probe_generation == Some(self.generation)
    }

    /// The source did not answer. `at` is `now` by the wall clock.
    pub(crate) fn record_failure(
        &mut self,
        ticket: BreakerPermit,
        how: NoResponseReason,
        failure: ErrorSummary,
        now: Instant,
        at: Timestamp,
    ) {
        let pause = match &self.open {
            Some(open) if ticket.probe_generation == Some(self.generation) => {
                self.failures = self.failures.saturating_add(1);
                Some((open.open_duration * 2).min(MAX_OPEN_DURATION))
            }
            // It was sent before the breaker opened, and says nothing new.
            Some(_) => return,
            None if self.is_new_failure(ticket, how) => {
                self.failures += 1;
                self.last_failure_at = Some(now);
                (self.failures >= FAILURE_THRESHOLD).then_some(INITIAL_OPEN_DURATION)
            }
            None => return,
        };
        let since = self.failure_streak.as_ref().map_or(at, |failing| failing.since);
        self.failure_streak = Some(FailureStreak { since, last_error: failure });
        if let Some(pause) = pause {
            self.generation += 1;
            self.open = Some(OpenState {
                until: now + pause,
                open_duration: pause,
                retry_at: at.plus(pause),
                is_probing: false,
            });
        }
    }

    /// Calls that are lost together, because one connection broke, are one failure: only a call that began after the
    /// last counted one says something new. A call that is late says nothing about a source that answered another one
    /// meanwhile.
    fn is_new_failure(&self, ticket: BreakerPermit, how: NoResponseReason) -> bool {
        match how {
            NoResponseReason::Disconnected => {
                self.last_failure_at.is_none_or(|counted_at| ticket.started_at >= counted_at)
            }
            NoResponseReason::TimedOut => {
                self.last_success_at.is_none_or(|succeeded_at| succeeded_at < ticket.started_at)
            }
        }
    }

    /// The call says nothing about the source: it was cancelled, or its caller waited for less time than the source may
    /// take.
    pub(crate) fn record_inconclusive(&mut self, ticket: BreakerPermit) {
        let is_probe = self.is_current_probe(ticket);
        if let Some(open) = self.open.as_mut().filter(|_| is_probe) {
            open.is_probing = false;
        }
    }

    /// How long calls are refused, if they are.
    pub(crate) fn remaining_open_time(&self, now: Instant) -> Option<Duration> {
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

    pub(crate) fn failure_streak(&self) -> Option<&FailureStreak> {
        self.failure_streak.as_ref()
    }
}

impl BreakerPermit {
    pub(crate) fn is_probe(self) -> bool {
        self.probe_generation.is_some()
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Code;

    use super::*;

    /// A breaker and the time since it was made, in milliseconds.
    struct BreakerTest {
        breaker: Breaker,
        start: Instant,
    }

    impl BreakerTest {
        fn new() -> BreakerTest {
            BreakerTest { breaker: Breaker::default(), start: Instant::now() }
        }

        fn instant_at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn admit(&mut self, ms: u64) -> BreakerDecision {
            self.breaker.admit(self.instant_at(ms))
        }

        fn admit_call(&mut self, ms: u64) -> BreakerPermit {
            match self.admit(ms) {
                BreakerDecision::Allow(ticket) => ticket,
                other @ (BreakerDecision::WaitForProbe | BreakerDecision::Reject(_)) => panic!("{other:?} at {ms}"),
            }
        }

        fn fail(&mut self, ticket: BreakerPermit, how: NoResponseReason, ms: u64) {
            let failure = ErrorSummary { code: Code::ToolUnavailable, message: format!("at {ms}"), retryable: true };
            let at = Timestamp(i64::try_from(ms).unwrap());
            self.breaker.record_failure(ticket, how, failure, self.instant_at(ms), at);
        }

        fn fail_disconnected(&mut self, ms: u64) {
            let ticket = self.admit_call(ms);
            self.fail(ticket, NoResponseReason::Disconnected, ms);
        }

        fn state(&self, ms: u64) -> BreakerState {
            self.breaker.view(self.instant_at(ms)).state
        }
    }

    #[test]
    fn five_failures_open_it_and_the_pause_doubles() {
        let mut bench = BreakerTest::new();
        (0..5).for_each(|ms| bench.fail_disconnected(ms));
        assert_eq!(bench.admit(504), BreakerDecision::Reject(Duration::from_millis(500)));
        let view = bench.breaker.view(bench.instant_at(504));
        assert_eq!((view.state, view.retry_at), (BreakerState::Open, Some(Timestamp(1004))));
        assert_eq!(bench.breaker.failure_streak().unwrap().since, Timestamp(0));
        let mut at = 1004;
        for pause in [2, 4, 8, 16, 30, 30] {
            assert_eq!(bench.state(at), BreakerState::HalfOpen);
            bench.fail_disconnected(at);
            assert_eq!(bench.admit(at), BreakerDecision::Reject(Duration::from_secs(pause)));
            at += pause * 1000;
        }
        let probe = bench.admit_call(at);
        assert_eq!(bench.admit(at), BreakerDecision::WaitForProbe, "one probe at a time");
        bench.breaker.record_inconclusive(probe);
        let probe = bench.admit_call(at);
        assert!(probe.is_probe());
        bench.breaker.record_success(bench.instant_at(at));
        assert_eq!((bench.state(at), bench.breaker.failures()), (BreakerState::Closed, 0));
        (0..5).for_each(|_| bench.fail_disconnected(at));
        assert_eq!(bench.admit(at), BreakerDecision::Reject(Duration::from_secs(1)), "the pause begins anew");
    }

    #[test]
    fn calls_that_are_lost_together_are_one_failure() {
        let mut bench = BreakerTest::new();
        for round in 0..4 {
            let calls: Vec<BreakerPermit> = (0..50).map(|_| bench.admit_call(round * 10)).collect();
            calls.into_iter().for_each(|call| bench.fail(call, NoResponseReason::Disconnected, round * 10 + 5));
            assert_eq!(u64::from(bench.breaker.failures()), round + 1);
        }
        bench.fail_disconnected(100);
        assert_eq!(bench.state(100), BreakerState::Open);
    }

    #[test]
    fn a_late_call_counts_only_if_no_other_was_answered_meanwhile() {
        let mut bench = BreakerTest::new();
        for _ in 0..10 {
            let late = bench.admit_call(0);
            bench.breaker.record_success(bench.instant_at(500));
            bench.fail(late, NoResponseReason::TimedOut, 1000);
        }
        assert_eq!(bench.breaker.failures(), 0);
        let late: Vec<BreakerPermit> = (0..5).map(|_| bench.admit_call(1000)).collect();
        late.into_iter().for_each(|call| bench.fail(call, NoResponseReason::TimedOut, 2000));
        assert_eq!(bench.state(2000), BreakerState::Open);
    }

    #[test]
    fn a_refusal_does_not_move_it_but_ends_a_probe() {
        let mut bench = BreakerTest::new();
        (0..4).for_each(|ms| bench.fail_disconnected(ms));
        let refused = bench.admit_call(4);
        bench.breaker.record_rejection(refused);
        assert_eq!(bench.breaker.failures(), 4);
        bench.fail_disconnected(4);
        bench.breaker.record_rejection(refused);
        assert_eq!(bench.state(5), BreakerState::Open);
        let probe = bench.admit_call(1004);
        bench.breaker.record_rejection(probe);
        assert_eq!(bench.state(1004), BreakerState::Closed);
    }

    #[test]
    fn a_probe_of_an_earlier_opening_decides_nothing() {
        let mut bench = BreakerTest::new();
        (0..5).for_each(|ms| bench.fail_disconnected(ms));
        let old = bench.admit_call(1004);
        assert!(bench.breaker.close());
        (0..5).for_each(|_| bench.fail_disconnected(2000));
        let probe = bench.admit_call(3000);
        bench.breaker.record_inconclusive(old);
        assert_eq!(bench.admit(3000), BreakerDecision::WaitForProbe);
        bench.fail(old, NoResponseReason::TimedOut, 3001);
        bench.breaker.record_rejection(old);
        assert_eq!(bench.admit(3001), BreakerDecision::WaitForProbe);
        bench.fail(probe, NoResponseReason::TimedOut, 3002);
        assert_eq!(bench.admit(3002), BreakerDecision::Reject(Duration::from_secs(2)));
    }

    #[test]
    fn calls_from_before_it_opened_do_not_prolong_the_pause() {
        let mut bench = BreakerTest::new();
        let old = bench.admit_call(0);
        (0..5).for_each(|ms| bench.fail_disconnected(ms));
        bench.fail(old, NoResponseReason::TimedOut, 900);
        assert_eq!(bench.admit(904), BreakerDecision::Reject(Duration::from_millis(100)));
        bench.breaker.record_success(bench.instant_at(905));
        assert_eq!(bench.state(905), BreakerState::Closed, "an answer is an answer");
    }
}
