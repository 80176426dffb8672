//! Points in time as users specify them: a duration ago, a day, or a time to the second. Used by options such as
//! `--since`.
//!
//! ```text
//! 2h, 7d, 2w              that long before now
//! 2026-11-15              the beginning of that day, in UTC
//! 2026-11-15T20:00:00Z    that time
//! ```

use std::str::FromStr;
use std::time::Duration;

use super::{Timestamp, parse_duration};
use crate::error::{Code, Error};
use crate::text::sanitize_truncated;

/// An absolute time, or a duration before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSpec {
    /// A point in time, independent of the current time.
    Absolute(Timestamp),
    /// Relative, because the current time is known only when the request is handled.
    Ago(Duration),
}

impl TimeSpec {
    /// Converts to a timestamp, given the current time.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            TimeSpec::Absolute(timestamp) => timestamp,
            TimeSpec::Ago(ago) => Timestamp(now.0.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))),
        }
    }
}

/// Fails with `BAD_REQUEST` and examples.
impl FromStr for TimeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<TimeSpec, Error> {
        let text = text.trim();
        if let Some(duration) = parse_long_duration(text) {
            return Ok(TimeSpec::Ago(duration));
        }
        // A day without a time is its beginning in UTC.
        let timestamp = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
        timestamp.map(TimeSpec::Absolute).map_err(|_| {
            let message = format!(
                "`{}` is not a time; write `2h`, `7d`, `2026-11-15` or `2026-11-15T20:00:00Z`",
                sanitize_truncated(text, 60)
            );
            Error::new(Code::BadRequest, message)
        })
    }
}

/// Like [`parse_duration`], with whole days and weeks too: `30d`, `2w`.
pub fn parse_long_duration(text: &str) -> Option<Duration> {
    parse_days(text.trim()).or_else(|| parse_duration(text))
}

/// Parses days and weeks. Not part of [`parse_duration`]: timeouts and intervals in the configuration are shorter.
fn parse_days(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let days = match unit {
        "d" => 1,
        "w" => 7,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(days * 86_400)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_spec_is_a_duration_ago_a_day_or_a_time() {
        let now = Timestamp(1_794_700_800_000);
        for (text, expected) in [
            ("2h", now.0 - 7_200_000),
            ("7d", now.0 - 604_800_000),
            ("2w", now.0 - 1_209_600_000),
            ("2026-11-15", now.0),
            ("2026-11-15T01:00:00+01:00", now.0),
        ] {
            assert_eq!(text.parse::<TimeSpec>().unwrap().resolve(now), Timestamp(expected), "{text}");
        }
        for text in ["", "d", "yesterday", "7", "99999999999999999999d", "2026-13-01", "日"] {
            assert_eq!(text.parse::<TimeSpec>().unwrap_err().code, Code::BadRequest, "{text}");
        }
    }
}
