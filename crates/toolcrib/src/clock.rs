//! The only place that knows what time it is; everything else is handed `now`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toolcrib_core::Timestamp;
use toolcrib_core::time::format_duration;

#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    pub fn system() -> Clock {
        Clock(Arc::new(SystemTime::now))
    }

    /// A clock that stands still until its hand is moved, for tests of ages and deadlines.
    pub fn manual(start: Timestamp) -> (Clock, ManualClock) {
        let hand = ManualClock(Arc::new(AtomicI64::new(start.0)));
        let time = hand.clone();
        let moment = move || {
            let since = u64::try_from(time.0.load(Ordering::SeqCst)).unwrap_or_default();
            UNIX_EPOCH.checked_add(Duration::from_millis(since)).unwrap_or(UNIX_EPOCH)
        };
        (Clock(Arc::new(moment)), hand)
    }

    pub fn now(&self) -> Timestamp {
        let since = self.system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Now, as exactly as it is known: for spans, which are shorter than a millisecond at times.
    pub fn system_time(&self) -> SystemTime {
        (self.0)()
    }
}

/// A moment from now, however far: what is too far for a clock is as good as never.
pub(crate) fn deadline_after(duration: Duration) -> tokio::time::Instant {
    const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    tokio::time::Instant::now() + duration.min(MAX_WAIT)
}

/// A limit as it is shown: what is left of `5s` after a few milliseconds is `5s`.
pub(crate) fn format_limit(limit: Duration) -> String {
    const ROUNDING_STEP_MS: u128 = 100;
    let millis = limit.as_millis();
    // Short ones are set in tests and for services that are close by, and shown as they are.
    let rounded = if millis < 1000 { millis } else { millis.div_ceil(ROUNDING_STEP_MS) * ROUNDING_STEP_MS };
    format_duration(Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// The hand of a manual clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
