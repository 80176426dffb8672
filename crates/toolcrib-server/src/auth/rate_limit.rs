//! How often somebody came with a wrong token lately. Guessing is hopeless anyway; this keeps it from being loud.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use toolcrib::core::Timestamp;
use toolcrib::{Code, Error, Result};

/// So many are heard in a minute.
const MAX_FAILED_TOKENS: u32 = 20;
const RATE_LIMIT_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct TokenRateLimit(Mutex<FailureWindow>);

#[derive(Debug, Default)]
struct FailureWindow {
    started_at: Timestamp,
    failures: u32,
}

impl TokenRateLimit {
    /// Counts a failure; an error when there were too many.
    pub(super) fn record_failure(&self, now: Timestamp) -> Result<()> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(window.started_at) >= RATE_LIMIT_WINDOW {
            *window = FailureWindow { started_at: now, failures: 0 };
        }
        window.failures = window.failures.saturating_add(1);
        match window.failures {
            1..=MAX_FAILED_TOKENS => Ok(()),
            _ => Err(Error::new(Code::RateLimited, "too many wrong tokens; try again in a minute")),
        }
    }
}
