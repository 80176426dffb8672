//! Health of the store, as this process last found it. Every reader gets it without an access to the store.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result, Timestamp};

use crate::store::StoreState;

/// If maintenance has not finished for this long, the store hangs.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Health of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    /// Result of the last access to the store.
    pub state: StoreState,
    /// Time at which the store last worked, if it does not work now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Remembers the results of accesses to the store.
#[derive(Debug)]
pub(crate) struct StoreMonitor {
    last: Mutex<LastAccess>,
}

/// Result of the last access.
#[derive(Debug)]
struct LastAccess {
    /// End of the last maintenance run, by the monotonic clock.
    maintained_at: Instant,
    /// State of the store. The reason is only logged: `/readyz` needs no credentials.
    state: StoreState,
    /// Time at which the store last worked.
    ok_at: Timestamp,
}

impl StoreMonitor {
    /// Starts with a store that works.
    pub(crate) fn new(now: Timestamp) -> StoreMonitor {
        let last = LastAccess { maintained_at: Instant::now(), state: StoreState::Ok, ok_at: now };
        StoreMonitor { last: Mutex::new(last) }
    }

    /// Records the result of a maintenance run.
    pub(crate) fn record_maintenance(&self, result: &Result<()>, now: Timestamp) {
        let mut last = self.last.lock();
        last.maintained_at = Instant::now();
        match result {
            Ok(()) => {
                last.state = StoreState::Ok;
                last.ok_at = now;
            }
            Err(error) if is_outage(error) => last.state = StoreState::from_error(error),
            // A conflict with another process, or a busy pool, says nothing about the store.
            Err(_) => {}
        }
    }

    /// Records a maintenance run that did not access the store.
    pub(crate) fn record_idle_maintenance(&self) {
        self.last.lock().maintained_at = Instant::now();
    }

    /// Records a failed access between the runs, so that the response to it is marked as stale already. The next run
    /// finds out whether the store works again.
    pub(crate) fn record_failure(&self, error: &Error) {
        if is_outage(error) {
            self.last.lock().state = StoreState::from_error(error);
        }
    }

    /// Whether the store works, as the last access to it showed.
    pub(crate) fn is_ok(&self) -> bool {
        self.last.lock().state == StoreState::Ok
    }

    /// Returns the health. A store whose maintenance hangs counts as down.
    pub(crate) fn health(&self) -> StoreHealth {
        let last = self.last.lock();
        let is_silent = last.maintained_at.elapsed() > MAINTENANCE_TIMEOUT;
        let state = if last.state == StoreState::Ok && is_silent { StoreState::Down } else { last.state };
        StoreHealth { state, since: (state != StoreState::Ok).then_some(last.ok_at) }
    }
}

/// Whether an error shows that the store does not work. An error that carries no state of the store and is not
/// `STORE_UNAVAILABLE` is one of the request.
fn is_outage(error: &Error) -> bool {
    let has_state = error.details.as_ref().is_some_and(|details| details.get("store").is_some());
    has_state && StoreState::from_error(error) != StoreState::Ok || (!has_state && error.code == Code::StoreUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outage_makes_a_store_count_as_down() {
        let check = |error: Error, expected| {
            let (between, periodic) = (StoreMonitor::new(Timestamp(1)), StoreMonitor::new(Timestamp(1)));
            between.record_failure(&error);
            periodic.record_maintenance(&Err(error), Timestamp(2));
            assert_eq!([between.health().state, periodic.health().state], [expected; 2]);
        };
        check(Error::new(Code::StoreUnavailable, "it cannot be reached"), StoreState::Down);
        check(StoreState::Damaged.annotate(Error::new(Code::StoreUnavailable, "x")), StoreState::Damaged);
        check(
            StoreState::Ok.annotate(Error::new(Code::StoreUnavailable, "all connections are in use")),
            StoreState::Ok,
        );
        check(Error::new(Code::Conflict, "other processes keep writing"), StoreState::Ok);
    }
}
