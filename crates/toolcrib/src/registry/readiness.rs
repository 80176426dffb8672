//! Readiness of the registry and health of its store, as maintenance last found them. Reads no store.
//!
//! Ready means that calls can be expected to work. A store that is down (locked, full disk) does not change that, since
//! lists are in memory; a damaged or removed store and a record of a newer version do.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result, Timestamp};

use super::{Registry, RegistryInner};
use crate::store::StoreState;

/// Maintenance runs twice a second; if it has not finished for this long, the store hangs.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Result of the last maintenance run.
#[derive(Debug)]
pub(crate) struct MaintenanceState(Mutex<LastMaintenance>);

#[derive(Debug)]
struct LastMaintenance {
    /// End of the last maintenance run, by the monotonic clock.
    ran_at: Instant,
    /// State of the store. The reason is only logged: `/readyz` needs no credentials.
    store: StoreState,
    /// Time at which the store last worked.
    ok_at: Timestamp,
}

/// Health of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    pub state: StoreState,
    /// Time at which the store last worked, if it does not work now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl MaintenanceState {
    /// Starts with a working store.
    pub(super) fn new(now: Timestamp) -> MaintenanceState {
        MaintenanceState(Mutex::new(LastMaintenance { ran_at: Instant::now(), store: StoreState::Ok, ok_at: now }))
    }

    /// Records the result of a maintenance run. Called at the end of every maintenance run, failed ones included.
    pub(super) fn record(&self, store: &Result<()>, now: Timestamp) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.ran_at = Instant::now();
        match store {
            Ok(()) => {
                last.store = StoreState::Ok;
                last.ok_at = now;
            }
            Err(error) => last.store = StoreState::from_error(error),
        }
    }

    /// Returns the health; a store whose maintenance hangs counts as down.
    fn health(&self) -> StoreHealth {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = last.ran_at.elapsed() > MAINTENANCE_TIMEOUT;
        let state = if last.store == StoreState::Ok && is_silent { StoreState::Down } else { last.store };
        StoreHealth { state, since: (state != StoreState::Ok).then_some(last.ok_at) }
    }
}

impl Registry {
    /// Fails if calls cannot be expected to work. A store that is down prevents changes, but not calls. The error names
    /// no path: `/readyz` is answered without credentials.
    pub fn check_ready(&self) -> Result<()> {
        self.inner.check_ready()
    }

    /// Returns the health of the store, without accessing it.
    pub fn store_health(&self) -> StoreHealth {
        self.inner.store_health()
    }
}

impl RegistryInner {
    /// See [`Registry::check_ready`].
    fn check_ready(&self) -> Result<()> {
        if self.shutdown.is_cancelled() {
            return Err(Error::new(Code::StoreUnavailable, "the registry is closed"));
        }
        let snapshot = self.snapshot.load();
        if let Some(damage) = &snapshot.damage {
            return Err(damage.to_public_error());
        }
        snapshot.ensure_usable()?;
        match self.store_health().state {
            StoreState::Ok | StoreState::Down => Ok(()),
            state @ (StoreState::Damaged | StoreState::Missing) => {
                let message = match state {
                    StoreState::Missing => "the file of the store was removed or replaced",
                    StoreState::Ok | StoreState::Down | StoreState::Damaged => "the store is damaged",
                };
                let message = format!(
                    "{message}; tool lists are served from memory, and nothing is written; run `toolcrib verify`"
                );
                Err(state.annotate(Error::new(Code::StoreUnavailable, message)))
            }
        }
    }

    /// See [`Registry::store_health`].
    fn store_health(&self) -> StoreHealth {
        match &self.snapshot.load().damage {
            Some(damage) => StoreHealth { state: damage.state(), since: None },
            None => self.maintenance.health(),
        }
    }
}
