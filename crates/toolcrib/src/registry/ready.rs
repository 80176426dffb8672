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
    trouble: Option<String>,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        Upkeep(Mutex::new(Seen { at: Instant::now(), trouble: None }))
    }
}

impl Upkeep {
    pub(super) fn saw(&self, store: Result<()>) {
        let trouble = store.err().map(|error| error.message);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Seen { at: Instant::now(), trouble };
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
        let unavailable = |message: String| Err(Error::new(Code::StoreUnavailable, message));
        if self.ended.is_cancelled() {
            return unavailable("the registry is closed".into());
        }
        let seen = self.upkeep.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &seen.trouble {
            Some(trouble) => unavailable(format!("the store does not answer: {trouble}")),
            None if seen.at.elapsed() > SILENT => unavailable("the store has not answered for a while".into()),
            None => Ok(()),
        }
    }
}
