//! Decides whether and when a request is repeated: only idempotent or unsent requests, a few times, no earlier than the
//! server asks for, and never beyond the deadline.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use toolcrib_connector::parse_retry_after;
use toolcrib_core::Timestamp;

/// Retries after responses with a transient status. They add little more than a second, unless the server asks for a
/// longer wait.
const MAX_RESPONSE_RETRIES: u32 = 2;
/// Delay before the first retry; doubled for each further one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(250);

/// Attempts made so far for one request.
#[derive(Debug)]
pub(super) struct RetryState {
    is_idempotent: bool,
    /// Attempts without a response.
    lost_attempts: u32,
    /// Attempts that ended in a response with a transient status.
    answered_attempts: u32,
}

impl RetryState {
    pub(super) fn new(is_idempotent: bool) -> RetryState {
        RetryState { is_idempotent, lost_attempts: 0, answered_attempts: 0 }
    }

    /// Delay before a retry after a failed connection: once, also for requests that are not idempotent, since nothing
    /// was sent.
    pub(super) fn after_connect_failure(&mut self, remaining: Duration) -> Option<Duration> {
        self.lost_attempts += 1;
        Some(backoff(0)).filter(|wait| self.lost_attempts == 1 && wait < &remaining)
    }

    /// Delay before a retry of a request that was sent without getting a complete response.
    pub(super) fn after_interrupted_response(&mut self, remaining: Duration) -> Option<Duration> {
        self.after_connect_failure(remaining).filter(|_| self.is_idempotent)
    }

    /// Delay before a retry after a response. `retry_after` is the wait that the server asks for.
    pub(super) fn after_status(
        &mut self,
        status: StatusCode,
        retry_after: Option<Duration>,
        remaining: Duration,
    ) -> Option<Duration> {
        let is_transient = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        if !is_transient || !self.is_idempotent || self.answered_attempts == MAX_RESPONSE_RETRIES {
            return None;
        }
        // `Retry-After` is not shortened: an earlier retry would be rejected again. If it ends after the deadline,
        // the response is final, and the caller learns the wait from it.
        let wait = retry_after.unwrap_or_else(|| backoff(self.answered_attempts));
        self.answered_attempts += 1;
        Some(wait).filter(|wait| *wait < remaining)
    }
}

/// Exponential backoff with random jitter, so that callers that failed together do not retry together.
fn backoff(times: u32) -> Duration {
    (INITIAL_RETRY_DELAY * 2u32.saturating_pow(times)).mul_f64(0.5 + rand::random::<f64>())
}

/// Wait that the server asks for in `Retry-After`.
pub(super) fn retry_after_header(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn only_idempotent_requests_are_retried_and_only_a_few_times() {
        let mut retries = RetryState::new(true);
        assert!(retries.after_status(StatusCode::SERVICE_UNAVAILABLE, None, AMPLE_TIME).is_some());
        assert!(retries.after_status(StatusCode::TOO_MANY_REQUESTS, None, AMPLE_TIME).is_some());
        assert_eq!(retries.after_status(StatusCode::TOO_MANY_REQUESTS, None, AMPLE_TIME), None);
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::OK] {
            assert_eq!(RetryState::new(true).after_status(status, None, AMPLE_TIME), None);
        }
        assert_eq!(RetryState::new(false).after_status(StatusCode::SERVICE_UNAVAILABLE, None, AMPLE_TIME), None);

        let mut retries = RetryState::new(false);
        assert!(retries.after_connect_failure(AMPLE_TIME).is_some());
        assert_eq!(retries.after_connect_failure(AMPLE_TIME), None);
        assert_eq!(RetryState::new(false).after_interrupted_response(AMPLE_TIME), None);
        assert!(RetryState::new(true).after_interrupted_response(AMPLE_TIME).is_some());
    }

    #[test]
    fn no_retry_waits_beyond_the_deadline() {
        let retry_after = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            RetryState::new(true).after_status(StatusCode::TOO_MANY_REQUESTS, retry_after(30), AMPLE_TIME),
            retry_after(30)
        );
        assert_eq!(
            RetryState::new(true).after_status(StatusCode::TOO_MANY_REQUESTS, retry_after(61), AMPLE_TIME),
            None
        );
        assert_eq!(RetryState::new(true).after_connect_failure(Duration::ZERO), None);
    }
}
