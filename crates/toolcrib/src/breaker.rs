//! Circuit breaker of a source: when calls keep failing, further calls fail at once instead of waiting for another
//! failure, and one call at a time (the probe) tests whether the source has recovered.
//!
//! Five failures in a row open it, for 1 s at first and 30 s at most. [`Breaker::is_new_failure`] decides what counts;
//! an error response of the source does not.
//!
//! Decisions use monotonic time, so that setting the wall clock neither opens nor closes the breaker. Wall-clock times
//! are kept for display only.
//!
//! ```text
//!         5 failures in a row              open time over: next call is the probe
//! closed ─────────────────────▶ open ────────────────────────────────────▶ half-open
//!    ▲                            ▲   probe lost or timed out: twice as long   │
//!    │                            └────────────────────────────────────────────┤
//!    └─────────────────────────────────────────────────────────────────────────┘
//!           any result, an error response to the probe, a discovery
//! ```
//!
//! The breaker only decides and counts. Waiting for a probe and waking the calls that wait are left to `call::send`.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::Timestamp;

use crate::store::ErrorSummary;

/// Number of counted failures in a row that open the breaker. A single lost connection, however many calls it takes
/// with it, is one failure.
const FAILURE_THRESHOLD: u32 = 5;
/// Initial time for which the breaker stays open; doubled by each probe that fails.
const INITIAL_OPEN_DURATION: Duration = Duration::from_secs(1);
/// Upper bound of that duration. A source that recovers is noticed by the first call after at most this long.
const MAX_OPEN_DURATION: Duration = Duration::from_secs(30);

/// State of a source's circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Counted failures since the last success. A failed probe counts too, so the number in messages keeps growing.
    failures: u32,
    /// Time of the last failure counted while the breaker was closed. Calls that started before it were lost with the
    /// same connection and are not counted again.
    last_failure_at: Option<Instant>,
    /// Time of the last success. A call that started before it and timed out says nothing about the source.
    last_success_at: Option<Instant>,
    /// The failures in a row, for display.
    failure_streak: Option<FailureStreak>,
    /// Set while the breaker is open or half-open.
    open: Option<OpenState>,
    /// Incremented each time the breaker opens; tells the current probe from one of an earlier opening.
    generation: u64,
}

/// Failures in a row, for display.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailureStreak {
    /// Time of the first failure of the streak, by the wall clock.
    pub(crate) since: Timestamp,
    pub(crate) last_failure: FailedCall,
}

/// A call that got no response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FailedCall {
    /// The tool, by the source's own name for it; `None` if the request was about a prompt or resource.
    pub(crate) tool: Option<String>,
    pub(crate) error: ErrorSummary,
}

/// State of an open breaker.
#[derive(Debug)]
struct OpenState {
    /// Calls are rejected until then; afterwards one probe is allowed.
    until: Instant,
    open_duration: Duration,
    /// `until` by the wall clock, for display.
    retry_at: Timestamp,
    /// Whether a probe is running.
    is_probing: bool,
}

/// Decision of the breaker about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerDecision {
    /// Send the call, and report its outcome with the permit.
    Allow(BreakerPermit),
    /// A probe is running: wait for its end and ask again.
    WaitForProbe,
    /// The breaker is open for this long.
    Reject(Duration),
}

/// Permit for an admitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BreakerPermit {
    started_at: Instant,
    /// For a probe, the breaker's `generation` when it was admitted.
    probe_generation: Option<u64>,
}

/// Why a call got no response from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResponseReason {
    /// There was no connection, or it was lost.
    Disconnected,
    /// The source exceeded its own timeout.
    TimedOut,
}

/// State of a circuit breaker as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls are sent.
    Closed,
    /// Calls are refused after repeated failures.
    Open,
    /// The next call is a probe.
    HalfOpen,
}

/// A source's circuit breaker as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BreakerView {
    /// Decides whether calls are sent.
    pub state: BreakerState,
    /// Time of the next allowed call, while the breaker is open.
    pub retry_at: Option<Timestamp>,
}

impl Breaker {
    /// Decides whether a call may be sent. The caller must record the outcome of every admitted call: a probe whose
    /// outcome is never recorded would keep all other calls waiting.
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
        // One call at a time: if the source still fails, only this one has to wait for it.
        open.is_probing = true;
        BreakerDecision::Allow(BreakerPermit { started_at: now, probe_generation: Some(self.generation) })
    }

    /// Records a result: the source works now, whenever the call started. Returns whether that closed the breaker.
    pub(crate) fn record_success(&mut self, now: Instant) -> bool {
        self.last_success_at = Some(now);
        self.close()
    }

    /// Closes the breaker, because the source is known to respond. Returns whether it was open. Also called after a
    /// successful discovery. The next opening starts at the initial duration again.
    pub(crate) fn close(&mut self) -> bool {
        self.failures = 0;
        self.failure_streak = None;
        self.open.take().is_some()
    }

    /// Records an error response. It says nothing about the source's health, so it counts neither as success nor as
    /// failure; but a source that answers a probe is reachable.
    pub(crate) fn record_rejection(&mut self, permit: BreakerPermit) {
        if self.is_current_probe(permit) {
            self.close();
        }
    }

    /// Whether a call is the probe that others wait for; a probe of an earlier opening may still be running.
    fn is_current_probe(&self, permit: BreakerPermit) -> bool {
        self.open.is_some() && permit.probe_generation == Some(self.generation)
    }

    /// Records that the source did not respond. `at` is `now` by the wall clock.
    pub(crate) fn record_no_response(
        &mut self,
        permit: BreakerPermit,
        reason: NoResponseReason,
        failure: FailedCall,
        now: Instant,
        at: Timestamp,
    ) {
        let open_duration = match &self.open {
            // The probe failed: open again, for twice as long.
            Some(open) if permit.probe_generation == Some(self.generation) => {
                self.failures = self.failures.saturating_add(1);
                Some((open.open_duration * 2).min(MAX_OPEN_DURATION))
            }
            // Sent before the breaker opened: says nothing new.
            Some(_) => return,
            // Closed: count, and open at the threshold.
            None if self.is_new_failure(permit, reason) => {
                self.failures += 1;
                self.last_failure_at = Some(now);
                (self.failures >= FAILURE_THRESHOLD).then_some(INITIAL_OPEN_DURATION)
            }
            None => return,
        };
        let since = self.failure_streak.as_ref().map_or(at, |streak| streak.since);
        self.failure_streak = Some(FailureStreak { since, last_failure: failure });
        if let Some(open_duration) = open_duration {
            // A probe of the previous opening that is still running is no longer the current one.
            self.generation += 1;
            self.open = Some(OpenState {
                until: now + open_duration,
                open_duration,
                retry_at: at.plus(open_duration),
                is_probing: false,
            });
        }
    }

    /// Whether a failure is counted. Calls lost together because one connection broke are one failure, so a lost call
    /// counts only if it started after the last counted failure. A timeout counts only if the source answered no other
    /// call meanwhile.
    fn is_new_failure(&self, permit: BreakerPermit, reason: NoResponseReason) -> bool {
        match reason {
            NoResponseReason::Disconnected => {
                self.last_failure_at.is_none_or(|last_failure_at| permit.started_at >= last_failure_at)
            }
            NoResponseReason::TimedOut => {
                self.last_success_at.is_none_or(|last_success_at| last_success_at < permit.started_at)
            }
        }
    }

    /// Records a call that says nothing about the source: it was cancelled, or its caller waited for less time than the
    /// source may take. A probe that ends so lets the next call probe.
    pub(crate) fn record_inconclusive(&mut self, permit: BreakerPermit) {
        let is_probe = self.is_current_probe(permit);
        if let Some(open) = self.open.as_mut().filter(|_| is_probe) {
            open.is_probing = false;
        }
    }

    /// Returns how long calls are still rejected, if the breaker is open.
    pub(crate) fn remaining_open_time(&self, now: Instant) -> Option<Duration> {
        self.open
            .as_ref()
            .and_then(|open| open.until.checked_duration_since(now))
            .filter(|remaining| !remaining.is_zero())
    }

    /// Returns the state for display. A breaker whose open time is over is half-open, even before a call comes.
    pub(crate) fn view(&self, now: Instant) -> BreakerView {
        match &self.open {
            None => BreakerView { state: BreakerState::Closed, retry_at: None },
            Some(open) if now < open.until => BreakerView { state: BreakerState::Open, retry_at: Some(open.retry_at) },
            Some(_) => BreakerView { state: BreakerState::HalfOpen, retry_at: None },
        }
    }

    /// Returns the number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the failures in a row, if there are any.
    pub(crate) fn failure_streak(&self) -> Option<&FailureStreak> {
        self.failure_streak.as_ref()
    }
}

impl BreakerPermit {
    /// Whether the call is a probe, for which other calls may be waiting.
    pub(crate) fn is_probe(self) -> bool {
        self.probe_generation.is_some()
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Code;

    use super::*;

    /// A breaker with a clock that counts milliseconds from its creation.
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
                BreakerDecision::Allow(permit) => permit,
                other @ (BreakerDecision::WaitForProbe | BreakerDecision::Reject(_)) => panic!("{other:?} at {ms}"),
            }
        }

        fn fail(&mut self, permit: BreakerPermit, reason: NoResponseReason, ms: u64) {
            let failure = FailedCall {
                tool: None,
                error: ErrorSummary { code: Code::ToolUnavailable, message: format!("at {ms}"), retryable: true },
            };
            let at = Timestamp(i64::try_from(ms).unwrap());
            self.breaker.record_no_response(permit, reason, failure, self.instant_at(ms), at);
        }

        fn fail_disconnected(&mut self, ms: u64) {
            let permit = self.admit_call(ms);
            self.fail(permit, NoResponseReason::Disconnected, ms);
        }

        fn state(&self, ms: u64) -> BreakerState {
            self.breaker.view(self.instant_at(ms)).state
        }
    }

    #[test]
    fn five_failures_open_the_breaker_and_the_open_time_doubles() {
        let mut test = BreakerTest::new();
        (0..5).for_each(|ms| test.fail_disconnected(ms));
        assert_eq!(test.admit(504), BreakerDecision::Reject(Duration::from_millis(500)));
        let view = test.breaker.view(test.instant_at(504));
        assert_eq!((view.state, view.retry_at), (BreakerState::Open, Some(Timestamp(1004))));
        assert_eq!(test.breaker.failure_streak().unwrap().since, Timestamp(0));
        let mut at = 1004;
        for seconds in [2, 4, 8, 16, 30, 30] {
            assert_eq!(test.state(at), BreakerState::HalfOpen);
            test.fail_disconnected(at);
            assert_eq!(test.admit(at), BreakerDecision::Reject(Duration::from_secs(seconds)));
            at += seconds * 1000;
        }
        let probe = test.admit_call(at);
        assert_eq!(test.admit(at), BreakerDecision::WaitForProbe, "one probe at a time");
        test.breaker.record_inconclusive(probe);
        let probe = test.admit_call(at);
        assert!(probe.is_probe());
        test.breaker.record_success(test.instant_at(at));
        assert_eq!((test.state(at), test.breaker.failures()), (BreakerState::Closed, 0));
        (0..5).for_each(|_| test.fail_disconnected(at));
        assert_eq!(
            test.admit(at),
            BreakerDecision::Reject(Duration::from_secs(1)),
            "the open time starts again at 1 s"
        );
    }

    #[test]
    fn calls_that_are_lost_together_are_one_failure() {
        let mut test = BreakerTest::new();
        for round in 0..4 {
            let calls: Vec<BreakerPermit> = (0..50).map(|_| test.admit_call(round * 10)).collect();
            calls.into_iter().for_each(|call| test.fail(call, NoResponseReason::Disconnected, round * 10 + 5));
            assert_eq!(u64::from(test.breaker.failures()), round + 1);
        }
        test.fail_disconnected(100);
        assert_eq!(test.state(100), BreakerState::Open);
    }

    #[test]
    fn a_timeout_counts_only_if_no_other_call_was_answered_meanwhile() {
        let mut test = BreakerTest::new();
        for _ in 0..10 {
            let late = test.admit_call(0);
            test.breaker.record_success(test.instant_at(500));
            test.fail(late, NoResponseReason::TimedOut, 1000);
        }
        assert_eq!(test.breaker.failures(), 0);
        let late: Vec<BreakerPermit> = (0..5).map(|_| test.admit_call(1000)).collect();
        late.into_iter().for_each(|call| test.fail(call, NoResponseReason::TimedOut, 2000));
        assert_eq!(test.state(2000), BreakerState::Open);
    }

    #[test]
    fn a_rejection_counts_neither_way_but_ends_a_probe() {
        let mut test = BreakerTest::new();
        (0..4).for_each(|ms| test.fail_disconnected(ms));
        let rejected = test.admit_call(4);
        test.breaker.record_rejection(rejected);
        assert_eq!(test.breaker.failures(), 4);
        test.fail_disconnected(4);
        test.breaker.record_rejection(rejected);
        assert_eq!(test.state(5), BreakerState::Open);
        let probe = test.admit_call(1004);
        test.breaker.record_rejection(probe);
        assert_eq!(test.state(1004), BreakerState::Closed);
    }

    #[test]
    fn a_probe_of_an_earlier_opening_is_ignored() {
        let mut test = BreakerTest::new();
        (0..5).for_each(|ms| test.fail_disconnected(ms));
        let old = test.admit_call(1004);
        assert!(test.breaker.close());
        (0..5).for_each(|_| test.fail_disconnected(2000));
        let probe = test.admit_call(3000);
        test.breaker.record_inconclusive(old);
        assert_eq!(test.admit(3000), BreakerDecision::WaitForProbe);
        test.fail(old, NoResponseReason::TimedOut, 3001);
        test.breaker.record_rejection(old);
        assert_eq!(test.admit(3001), BreakerDecision::WaitForProbe);
        test.fail(probe, NoResponseReason::TimedOut, 3002);
        assert_eq!(test.admit(3002), BreakerDecision::Reject(Duration::from_secs(2)));
    }

    #[test]
    fn calls_sent_before_the_breaker_opened_do_not_prolong_the_open_time() {
        let mut test = BreakerTest::new();
        let old = test.admit_call(0);
        (0..5).for_each(|ms| test.fail_disconnected(ms));
        test.fail(old, NoResponseReason::TimedOut, 900);
        assert_eq!(test.admit(904), BreakerDecision::Reject(Duration::from_millis(100)));
        test.breaker.record_success(test.instant_at(905));
        assert_eq!(test.state(905), BreakerState::Closed, "a response closes the breaker whenever its call was sent");
    }
}
