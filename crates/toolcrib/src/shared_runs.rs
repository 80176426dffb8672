//! [`SharedRuns`]: an operation that runs once for all callers that wait for it, such as a read of the store that many
//! requests need at the same time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Runs an operation for its callers, one run at a time and not more often than an interval allows. A run serves every
/// caller that was waiting when it began. The caller sets the deadline.
#[derive(Debug)]
pub(crate) struct SharedRuns {
    /// Minimum time between the starts of two runs.
    min_interval: Duration,
    last_run: Mutex<Option<Run>>,
}

/// One run of the operation.
#[derive(Debug, Clone, Copy)]
struct Run {
    started_at: Instant,
    /// Whether it succeeded; `None` if the caller that ran it went away before it ended.
    outcome: Option<bool>,
}

impl SharedRuns {
    pub(crate) fn new(min_interval: Duration) -> SharedRuns {
        SharedRuns { min_interval, last_run: Mutex::default() }
    }

    /// Waits for a run that begins after this call, and starts it if no other caller does. Returns whether it succeeded.
    pub(crate) async fn join(&self, operation: impl AsyncFnOnce() -> bool) -> bool {
        let requested_at = Instant::now();
        let mut last_run = self.last_run.lock().await;
        if let Some(run) = *last_run {
            if let Some(outcome) = run.outcome.filter(|_| run.started_at > requested_at) {
                return outcome;
            }
            sleep_until(run.started_at + self.min_interval).await;
        }
        let run = Run { started_at: Instant::now(), outcome: None };
        // Also before the run, because the next caller must keep the interval if this one goes away.
        *last_run = Some(run);
        let outcome = operation().await;
        *last_run = Some(Run { outcome: Some(outcome), ..run });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_run_serves_all_callers_that_wait_when_it_begins() {
        let (shared, runs) = (SharedRuns::new(INTERVAL), AtomicUsize::new(0));
        let join = || {
            shared.join(async || {
                tokio::time::sleep(Duration::from_millis(10)).await;
                runs.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
            })
        };
        let started_at = Instant::now();
        // The first caller starts a run at once; all others came after its start and share the second.
        let outcomes = futures_util::future::join_all((0..50).map(|_| join())).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(outcomes.iter().filter(|outcome| **outcome).count(), 1, "both outcomes are shared");
        assert_eq!(started_at.elapsed(), Duration::from_millis(110), "the interval lies between them");
        join().await;
        assert_eq!(runs.load(Ordering::SeqCst), 3, "an earlier run serves no later caller");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_goes_away_leaves_the_run_to_the_next() {
        let shared = SharedRuns::new(INTERVAL);
        let hanging = shared.join(async || std::future::pending().await);
        assert!(tokio::time::timeout(INTERVAL, hanging).await.is_err());
        assert!(shared.join(async || true).await);
    }
}
