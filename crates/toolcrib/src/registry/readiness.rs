//! Whether the registry can do its work, as its own upkeep last saw it. Asking touches no store.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result, Timestamp};

use super::{Registry, RegistryInner};
use crate::store::StoreState;

/// The upkeep runs twice a second; when it has not for so long, it hangs.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(15);

/// What the upkeep last saw of the store.
#[derive(Debug)]
pub(crate) struct MaintenanceState(Mutex<LastMaintenance>);

#[derive(Debug)]
struct LastMaintenance {
    ran_at: Instant,
    /// Why is in the log alone: `/readyz` needs no token.
    store: StoreState,
    /// When the store was last found in order.
    ok_at: Timestamp,
}

/// How the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    pub state: StoreState,
    /// Since when the store does not answer, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl MaintenanceState {
    pub(super) fn new(now: Timestamp) -> MaintenanceState {
        MaintenanceState(Mutex::new(LastMaintenance { ran_at: Instant::now(), store: StoreState::Ok, ok_at: now }))
    }

    pub(super) fn record(&self, store: &Result<()>, now: Timestamp) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.ran_at = Instant::now();
        match store {
            Ok(()) => {
                seen.store = StoreState::Ok;
                seen.ok_at = now;
            }
            Err(error) => seen.store = StoreState::from_error(error),
        }
    }

    fn health(&self) -> StoreHealth {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = seen.ran_at.elapsed() > MAINTENANCE_TIMEOUT;
        let state = if seen.store == StoreState::Ok && is_silent { StoreState::Down } else { seen.store };
        StoreHealth { state, since: (state != StoreState::Ok).then_some(seen.ok_at) }
    }
}

impl Registry {
    /// Whether calls can be expected to work, or why not. A store that is down takes changes away, and calls go on.
    pub fn check_ready(&self) -> Result<()> {
        self.shared.check_ready()
    }

    /// How the store is. Touches nothing.
    pub fn store_health(&self) -> StoreHealth {
        self.shared.store_health()
    }
}

impl RegistryInner {
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
                    StoreState::Missing => "the file of the store is gone, or another one lies in its place",
                    StoreState::Ok | StoreState::Down | StoreState::Damaged => "the store is damaged",
                };
                let message =
                    format!("{message}; lists are served from memory, and nothing is written; run `toolcrib verify`");
                Err(state.annotate(Error::new(Code::StoreUnavailable, message)))
            }
        }
    }

    fn store_health(&self) -> StoreHealth {
        match &self.snapshot.load().damage {
            Some(damage) => StoreHealth { state: damage.state(), since: None },
            None => self.maintenance.health(),
        }
    }
}
