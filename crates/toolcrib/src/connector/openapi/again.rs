//! Whether a request is made once more, and when: what may happen twice or was never sent, a few times, as late as the
//! server asks for and never beyond the time there is.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use toolcrib_core::Timestamp;

use crate::connector::http_refusal::retry_after;

const MOST_ANSWERS: u32 = 2;
const FIRST_WAIT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Tries {
    repeatable: bool,
    lost: u32,
    answered: u32,
}

impl Tries {
    pub(super) fn new(repeatable: bool) -> Tries {
        Tries { repeatable, lost: 0, answered: 0 }
    }

    /// No connection came about: that harms nobody, so once more.
    pub(super) fn after_unreached(&mut self, remaining: Duration) -> Option<Duration> {
        self.lost += 1;
        Some(backoff(0)).filter(|wait| self.lost == 1 && wait < &remaining)
    }

    /// It was sent and no answer came.
    pub(super) fn after_broken(&mut self, remaining: Duration) -> Option<Duration> {
        self.after_unreached(remaining).filter(|_| self.repeatable)
    }

    /// An answer came that may be another one later. `asked` is how long the server wants to be left alone.
    pub(super) fn after(
        &mut self,
        status: StatusCode,
        asked: Option<Duration>,
        remaining: Duration,
    ) -> Option<Duration> {
        let passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        if !passing || !self.repeatable || self.answered == MOST_ANSWERS {
            return None;
        }
        let wait = asked.unwrap_or_else(|| backoff(self.answered));
        self.answered += 1;
        Some(wait).filter(|wait| *wait < remaining)
    }
}

/// Twice as long each time, and never the same for two callers.
fn backoff(times: u32) -> Duration {
    (FIRST_WAIT * 2u32.saturating_pow(times)).mul_f64(0.5 + rand::random::<f64>())
}

/// How long a server wants to be left alone.
pub(super) fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn only_what_may_happen_twice_is_asked_again_and_only_a_few_times() {
        let mut tries = Tries::new(true);
        assert!(tries.after(StatusCode::SERVICE_UNAVAILABLE, None, LONG).is_some());
        assert!(tries.after(StatusCode::TOO_MANY_REQUESTS, None, LONG).is_some());
        assert_eq!(tries.after(StatusCode::TOO_MANY_REQUESTS, None, LONG), None);
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::OK] {
            assert_eq!(Tries::new(true).after(status, None, LONG), None);
        }
        assert_eq!(Tries::new(false).after(StatusCode::SERVICE_UNAVAILABLE, None, LONG), None);

        let mut tries = Tries::new(false);
        assert!(tries.after_unreached(LONG).is_some());
        assert_eq!(tries.after_unreached(LONG), None);
        assert_eq!(Tries::new(false).after_broken(LONG), None);
        assert!(Tries::new(true).after_broken(LONG).is_some());
    }

    #[test]
    fn nobody_waits_beyond_the_time_there_is() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(Tries::new(true).after(StatusCode::TOO_MANY_REQUESTS, asked(30), LONG), asked(30));
        assert_eq!(Tries::new(true).after(StatusCode::TOO_MANY_REQUESTS, asked(61), LONG), None);
        assert_eq!(Tries::new(true).after_unreached(Duration::ZERO), None);
    }
}
