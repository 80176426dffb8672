//! The limiters of all callers. Those of callers whose calls have no effect any more are dropped, and their number is
//! bounded without ever refusing a caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;
use toolcrib_core::limits::CallLimits;
use toolcrib_core::principal::Principal;

use super::CallLimiter;

/// Number of callers above which those without calls in progress are forgotten, even if their minute's calls are used
/// up. Callers with calls in progress are always kept; they are bounded by the connections of the server.
const MAX_CALLERS: usize = 10_000;
/// Number of callers below which none is looked at for removal.
const MIN_SWEEP_SIZE: usize = 64;

/// Limits of each caller (`limits` at top level of the configuration).
#[derive(Debug)]
pub(crate) struct CallerLimits {
    /// Whether there are limits at all; apart from the lock, because without limits a call reads only this.
    is_limited: AtomicBool,
    callers: Mutex<CallerTable>,
}

#[derive(Debug)]
struct CallerTable {
    limits: CallLimits,
    callers: HashMap<Arc<str>, TrackedCaller>,
    /// Number of lookups so far.
    lookups: u64,
    /// Number of callers at which the next sweep is made. At least doubled by each, so that a sweep costs little per
    /// new caller.
    sweep_size: usize,
}

#[derive(Debug)]
struct TrackedCaller {
    limiter: Arc<CallLimiter>,
    /// Number of its last lookup.
    last_lookup: u64,
}

/// A caller with limits. It is not forgotten while this exists.
#[derive(Debug)]
pub(crate) struct LimitedCaller {
    pub(crate) key: Arc<str>,
    pub(crate) limiter: Arc<CallLimiter>,
}

impl CallerLimits {
    pub(crate) fn new(limits: CallLimits) -> CallerLimits {
        let callers = HashMap::new();
        CallerLimits {
            is_limited: AtomicBool::new(!limits.is_empty()),
            callers: Mutex::new(CallerTable { limits, callers, lookups: 0, sweep_size: MIN_SWEEP_SIZE }),
        }
    }

    /// Replaces the limits of all callers. Waiting calls that are within the new ones are admitted.
    pub(crate) fn set_limits(&self, limits: CallLimits) {
        let mut table = self.callers.lock();
        table.limits = limits;
        for caller in table.callers.values() {
            caller.limiter.set_limits(limits);
        }
        self.is_limited.store(!limits.is_empty(), Ordering::Relaxed);
    }

    /// Returns the limiter of a caller; `None` without limits.
    pub(crate) fn find(&self, caller: &Principal) -> Option<LimitedCaller> {
        if !self.is_limited.load(Ordering::Relaxed) {
            return None;
        }
        // A token and the console sessions that were opened with it are one caller.
        let key = caller.identity().owner_key();
        let mut table = self.callers.lock();
        table.lookups += 1;
        let last_lookup = table.lookups;
        if let Some(tracked) = table.callers.get_mut(&key) {
            tracked.last_lookup = last_lookup;
            return Some(LimitedCaller { key, limiter: tracked.limiter.clone() });
        }
        if table.callers.len() >= table.sweep_size {
            table.sweep();
        }
        let limiter = Arc::new(CallLimiter::new(table.limits));
        table.callers.insert(key.clone(), TrackedCaller { limiter: limiter.clone(), last_lookup });
        Some(LimitedCaller { key, limiter })
    }
}

impl CallerTable {
    /// Forgets the callers that have no effect any more and, at [`MAX_CALLERS`], a quarter more: those without calls in
    /// progress that have not called for longest.
    fn sweep(&mut self) {
        let now = Instant::now();
        // Calls in progress have a reference to their limiter, and get it under the lock of this table.
        let is_idle = |caller: &TrackedCaller| Arc::strong_count(&caller.limiter) == 1;
        self.callers.retain(|_, caller| !(is_idle(caller) && caller.limiter.is_refilled(now)));
        if self.callers.len() >= MAX_CALLERS {
            let mut idle: Vec<u64> =
                self.callers.values().filter(|caller| is_idle(caller)).map(|caller| caller.last_lookup).collect();
            let removed = idle.len().min(MAX_CALLERS / 4);
            if let Some(last) = removed.checked_sub(1) {
                let (_, newest_removed, _) = idle.select_nth_unstable(last);
                let newest_removed = *newest_removed;
                self.callers.retain(|_, caller| !is_idle(caller) || caller.last_lookup > newest_removed);
            }
        }
        let len = self.callers.len();
        let grown = if len < MAX_CALLERS / 2 { len * 2 } else { MAX_CALLERS.max(len + MAX_CALLERS / 4) };
        self.sweep_size = grown.max(MIN_SWEEP_SIZE);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::{Admission, LimitScope};

    fn limits() -> CallLimits {
        CallLimits { calls_per_minute: Some(2), concurrent_calls: Some(1) }
    }

    fn caller(number: usize) -> Principal {
        use toolcrib_core::access::Role;
        use toolcrib_core::principal::PrincipalIdentity;
        Principal::new(PrincipalIdentity::Token { id: number.to_string().into() }, "ada", Role::Agent)
    }

    fn tracked(callers: &CallerLimits) -> usize {
        callers.callers.lock().callers.len()
    }

    /// Makes one call of each caller.
    fn call(callers: &CallerLimits, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let found = callers.find(&caller(number)).unwrap();
            assert!(found.limiter.count_call(LimitScope::Caller, Instant::now()).is_ok(), "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_callers_is_bounded_and_those_with_calls_in_progress_stay() {
        let callers = CallerLimits::new(limits());
        let busy = callers.find(&caller(0)).unwrap();
        let Admission::Admitted(permit) = busy.limiter.start_call(&busy.key) else { panic!("the first call") };
        drop(busy);
        call(&callers, 1..3 * MAX_CALLERS);
        assert!(tracked(&callers) <= MAX_CALLERS, "{}", tracked(&callers));
        let busy = callers.find(&caller(0)).unwrap();
        assert!(matches!(busy.limiter.start_call(&busy.key), Admission::Waiting(..)), "its call is not forgotten");
        let recent = callers.find(&caller(3 * MAX_CALLERS - 1)).unwrap().limiter;
        assert!(!recent.is_refilled(Instant::now()), "the last caller is not forgotten");
        drop(permit);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_whose_minute_has_passed_are_forgotten() {
        let callers = CallerLimits::new(limits());
        call(&callers, 0..MIN_SWEEP_SIZE);
        tokio::time::advance(Duration::from_secs(60)).await;
        call(&callers, MIN_SWEEP_SIZE..MIN_SWEEP_SIZE + 1);
        assert_eq!(tracked(&callers), 1);
    }

    #[test]
    fn without_limits_no_caller_is_tracked() {
        let callers = CallerLimits::new(CallLimits::default());
        assert!(callers.find(&caller(0)).is_none());
        callers.set_limits(limits());
        assert!(callers.find(&caller(0)).is_some());
    }
}
