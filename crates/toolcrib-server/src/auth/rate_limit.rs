//! Limits failed token attempts over all clients. Tokens have too much entropy to be guessed; the limit keeps guessing
//! from flooding the server and its log.

use std::time::Duration;

use parking_lot::Mutex;
use toolcrib::core::Timestamp;
use toolcrib::{Code, Error, Result};

/// Failed attempts per window that get `UNAUTHORIZED`; further ones get `RATE_LIMITED`.
const MAX_FAILED_TOKENS: u32 = 20;
/// Length of a window. `Retry-After` of a refused attempt is the same time.
const RATE_LIMIT_WINDOW: Duration = Duration::from_secs(60);

/// Fixed-window counter of failed token attempts.
#[derive(Debug, Default)]
pub(super) struct TokenRateLimit(Mutex<FailureWindow>);

/// The current window: its start, and the failures since then.
#[derive(Debug, Default)]
struct FailureWindow {
    started_at: Timestamp,
    failures: u32,
}

impl TokenRateLimit {
    /// Counts a failed attempt. Returns `RATE_LIMITED` when the window already had [`MAX_FAILED_TOKENS`].
    pub(super) fn record_failure(&self, now: Timestamp) -> Result<()> {
        let mut window = self.0.lock();
        // A fixed window lets through up to twice the limit around its end, which does not matter for this purpose.
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
