//! Source of the wall-clock time; everything else receives `now` as an argument. Timers and the circuit breaker use
//! tokio's monotonic time instead.
//!
//! The wall clock can jump, forwards and backwards, so it is used only for what people and other processes read:
//! timestamps of records, ages of lists, ends of backoffs. Durations and deadlines come from `tokio::time`, which tests
//! pause.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toolcrib_core::Timestamp;
use toolcrib_core::time::format_duration;

/// A wall clock: that of the system, or one that a test sets. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Returns the clock of the system.
    pub fn system() -> Clock {
        Clock(Arc::new(SystemTime::now))
    }

    /// Returns a clock that stands still until the test advances it, and the handle to do so. Independent of tokio's
    /// paused time: a test moves both.
    pub fn manual(start: Timestamp) -> (Clock, ManualClock) {
        let manual = ManualClock(Arc::new(AtomicI64::new(start.0)));
        let time = manual.clone();
        let read = move || {
            let millis = u64::try_from(time.0.load(Ordering::SeqCst)).unwrap_or_default();
            UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
        };
        (Clock(Arc::new(read)), manual)
    }

    /// Returns the current time in milliseconds.
    pub fn now(&self) -> Timestamp {
        let since = self.system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the current time at full precision, for spans, which may be shorter than a millisecond.
    pub fn system_time(&self) -> SystemTime {
        (self.0)()
    }
}

/// Returns the instant after a duration. Capped at ten years, because a very long timeout would overflow the clock.
pub fn deadline_after(duration: Duration) -> tokio::time::Instant {
    const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    tokio::time::Instant::now() + duration.min(MAX_WAIT)
}

/// Formats a timeout for messages, rounded up to 100 ms: what remains of `5s` after a few milliseconds is shown as
/// `5s`.
pub fn format_limit(limit: Duration) -> String {
    const ROUNDING_STEP_MS: u128 = 100;
    let millis = limit.as_millis();
    // Timeouts below a second, as in tests, are shown exactly.
    let rounded = if millis < 1000 { millis } else { millis.div_ceil(ROUNDING_STEP_MS) * ROUNDING_STEP_MS };
    format_duration(Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// Handle that sets a manual clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Moves the clock back, as an administrator may do with a wall clock.
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
