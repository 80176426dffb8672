//! Whether a request is made once more, and when: what may happen twice or was never sent, a few times, as late as the
//! server asks for and never beyond the time there is.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use toolcrib_core::Timestamp;

use crate::connector::http_rejection::parse_retry_after;

const MAX_RESPONSE_RETRIES: u32 = 2;
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct RetryState {
    is_idempotent: bool,
    lost_attempts: u32,
    answered_attempts: u32,
}

impl RetryState {
    pub(super) fn new(repeatable: bool) -> RetryState {
        RetryState { is_idempotent: repeatable, lost_attempts: 0, answered_attempts: 0 }
    }

    /// No connection came about: that harms nobody, so once more.
    pub(super) fn after_connect_failure(&mut self, remaining: Duration) -> Option<Duration> {
        self.lost_attempts += 1;
        Some(backoff(0)).filter(|wait| self.lost_attempts == 1 && wait < &remaining)
    }

    /// It was sent and no answer came.
    pub(super) fn after_interrupted_response(&mut self, remaining: Duration) -> Option<Duration> {
        self.after_connect_failure(remaining).filter(|_| self.is_idempotent)
    }

    /// An answer came that may be another one later. `asked` is how long the server wants to be left alone.
    pub(super) fn after_status(
        &mut self,
        status: StatusCode,
        asked: Option<Duration>,
        remaining: Duration,
    ) -> Option<Duration> {
        let passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        if !passing || !self.is_idempotent || self.answered_attempts == MAX_RESPONSE_RETRIES {
            return None;
        }
        let wait = asked.unwrap_or_else(|| backoff(self.answered_attempts));
        self.answered_attempts += 1;
        Some(wait).filter(|wait| *wait < remaining)
    }
}

/// Twice as long each time, and never the same for two callers.
fn backoff(times: u32) -> Duration {
    (INITIAL_RETRY_DELAY * 2u32.saturating_pow(times)).mul_f64(0.5 + rand::random::<f64>())
}

/// How long a server wants to be left alone.
pub(super) fn retry_after_header(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn only_what_may_happen_twice_is_asked_again_and_only_a_few_times() {
        let mut tries = RetryState::new(true);
        assert!(tries.after_status(StatusCode::SERVICE_UNAVAILABLE, None, AMPLE_TIME).is_some());
        assert!(tries.after_status(StatusCode::TOO_MANY_REQUESTS, None, AMPLE_TIME).is_some());
        assert_eq!(tries.after_status(StatusCode::TOO_MANY_REQUESTS, None, AMPLE_TIME), None);
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::OK] {
            assert_eq!(RetryState::new(true).after_status(status, None, AMPLE_TIME), None);
        }
        assert_eq!(RetryState::new(false).after_status(StatusCode::SERVICE_UNAVAILABLE, None, AMPLE_TIME), None);

        let mut tries = RetryState::new(false);
        assert!(tries.after_connect_failure(AMPLE_TIME).is_some());
        assert_eq!(tries.after_connect_failure(AMPLE_TIME), None);
        assert_eq!(RetryState::new(false).after_interrupted_response(AMPLE_TIME), None);
        assert!(RetryState::new(true).after_interrupted_response(AMPLE_TIME).is_some());
    }

    #[test]
    fn nobody_waits_beyond_the_time_there_is() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(RetryState::new(true).after_status(StatusCode::TOO_MANY_REQUESTS, asked(30), AMPLE_TIME), asked(30));
        assert_eq!(RetryState::new(true).after_status(StatusCode::TOO_MANY_REQUESTS, asked(61), AMPLE_TIME), None);
        assert_eq!(RetryState::new(true).after_connect_failure(Duration::ZERO), None);
    }
}
