//! Timestamps in milliseconds, and durations as people write them. Nothing here reads a clock.
//!
//! Timestamps are wall-clock time, for records and displays. Deadlines and timers use monotonic time and are not made
//! of these.
//!
//! ```text
//! Timestamp(1_763_200_000_000)    2025-11-15T09:46:40.000Z
//! parse_duration("1h30m")         5,400 s
//! format_duration(90 s)           90s
//! ```

mod time_spec;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use time_spec::{TimeSpec, parse_long_duration};

/// Milliseconds since the Unix epoch; formatted as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Adds a duration, saturating at the end of the range.
    /// Never fails, so that a stored time cannot make a process panic.
    pub fn plus(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time elapsed since `earlier`; zero if that is not earlier.
    /// A wall clock may be set back between two readings.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Timestamps beyond the calendar's range are formatted as its end, so that the result can always be parsed.
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(end))
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(|timestamp| Timestamp(timestamp.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Parses `250ms`, `5s`, `5m`, `1h30m`. Also accepts ISO 8601 such as `PT5M`. `None` for negative durations and for a
/// number without a unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let signed: jiff::SignedDuration = text.trim().parse().ok()?;
    Duration::try_from(signed).ok()
}

/// Formats a duration with the largest unit that divides it: `5m`, `90s`, `250ms`.
/// [`parse_duration`] reads the result back. Fractions of a millisecond are dropped.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".into(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_round_trips_as_rfc_3339_in_utc() {
        let timestamp = Timestamp(1_794_700_800_123);
        assert_eq!(timestamp.to_string(), "2026-11-15T00:00:00.123Z");
        assert_eq!("2026-11-15T01:00:00.123+01:00".parse::<Timestamp>().unwrap(), timestamp);
    }

    #[test]
    fn every_formatted_timestamp_can_be_parsed() {
        for millis in [i64::MIN, -62_135_596_800_000, -1, 0, 253_402_300_799_999, i64::MAX] {
            let written = serde_json::to_string(&Timestamp(millis)).unwrap();
            let read: Timestamp = serde_json::from_str(&written).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        for (text, millis) in [("5m", 300_000), ("30s", 30_000), ("250ms", 250), ("1h30m", 5_400_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "five", "-3s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_with_one_unit() {
        for text in ["5m", "90s", "2h", "250ms", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
