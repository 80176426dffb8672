//! How often somebody came with a wrong token lately. Guessing is hopeless anyway; this keeps it from being loud.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use toolcrib::core::Timestamp;
use toolcrib::{Code, Error, Result};

/// So many are heard in a minute.
const MOST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Timestamp,
    failed: u32,
}

impl Attempts {
    /// Counts a failure; an error when there were too many.
    pub(super) fn failed(&self, now: Timestamp) -> Result<()> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(window.began) >= WINDOW {
            *window = Window { began: now, failed: 0 };
        }
        window.failed = window.failed.saturating_add(1);
        match window.failed {
            1..=MOST => Ok(()),
            _ => Err(Error::new(Code::RateLimited, "too many wrong tokens; try again in a minute")),
        }
    }
}
