//! Whether the registry can do its work, as its own upkeep last saw it. Asking touches no store.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result};

use super::{Registry, Shared};

/// The upkeep runs twice a second; when it has not for so long, it hangs.
const SILENT: Duration = Duration::from_secs(15);

/// What the upkeep last saw of the store.
#[derive(Debug)]
pub(crate) struct Upkeep(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Why is in the log alone: whoever asks whether we are ready may be anybody.
    in_trouble: bool,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        Upkeep(Mutex::new(Seen { at: Instant::now(), in_trouble: false }))
    }
}

impl Upkeep {
    pub(super) fn saw(&self, store: &Result<()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Seen { at: Instant::now(), in_trouble: store.is_err() };
    }
}

impl Registry {
    /// Whether calls and changes can be expected to work, or why not.
    pub fn ready(&self) -> Result<()> {
        self.shared.ready()
    }
}

impl Shared {
    fn ready(&self) -> Result<()> {
        let unavailable = |message: &str| Err(Error::new(Code::StoreUnavailable, message));
        if self.ended.is_cancelled() {
            return unavailable("the registry is closed");
        }
        self.ensure_up_to_date()?;
        let seen = self.upkeep.0.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.in_trouble {
            true => unavailable("the store does not answer; the log says why"),
            false if seen.at.elapsed() > SILENT => unavailable("the store has not answered for a while"),
            false => Ok(()),
        }
    }
}
