//! Protocol versions and the two eras they belong to: legacy (handshake and session) and modern (stateless).
//!
//! A version is a date, such as `2025-06-18`, and is written and stored in that form. The era decides which handshake a
//! peer understands and how a question to the client is asked; the version within the legacy era decides details only,
//! such as batches and priming events.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Protocol era and version of a server, negotiated by [`McpClient::connect`](crate::McpClient::connect). Passing it to
/// the next connect saves a round trip. Serialized as the version, for example `"2025-11-25"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Era {
    /// `initialize` first, then a session. Covers all versions up to 2025-11-25.
    Legacy(LegacyVersion),
    /// 2026-07-28: stateless; every request carries its version and the client's capabilities.
    Modern,
}

/// A protocol version of the legacy era, oldest first, so that versions can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegacyVersion {
    /// HTTP+SSE is the only HTTP transport.
    V2024_11_05,
    /// Adds Streamable HTTP; the last version with batches.
    V2025_03_26,
    /// Clients send the header `MCP-Protocol-Version` with each request after the handshake.
    V2025_06_18,
    /// Adds priming events, with which a client can resume a stream before its first message.
    V2025_11_25,
}

/// The version of [`Era::Modern`].
pub(crate) const MODERN_VERSION: &str = "2026-07-28";

impl LegacyVersion {
    /// The version offered in `initialize`. A server that does not support it answers with one that it does support.
    pub const LATEST: LegacyVersion = LegacyVersion::V2025_11_25;
    /// All versions, oldest first.
    pub(crate) const ALL: [LegacyVersion; 4] = [
        LegacyVersion::V2024_11_05,
        LegacyVersion::V2025_03_26,
        LegacyVersion::V2025_06_18,
        LegacyVersion::V2025_11_25,
    ];

    /// Returns the version as the protocol writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            LegacyVersion::V2024_11_05 => "2024-11-05",
            LegacyVersion::V2025_03_26 => "2025-03-26",
            LegacyVersion::V2025_06_18 => "2025-06-18",
            LegacyVersion::V2025_11_25 => "2025-11-25",
        }
    }

    /// Maps the version a server answered with to a known one. An unknown version becomes the newest known one that is
    /// not newer: versions are dates, and a server with an odd date usually works.
    pub(crate) fn nearest(version: &str) -> LegacyVersion {
        // Dates in this form compare like strings. A version older than all known ones is treated as the oldest.
        let mut newest_first = LegacyVersion::ALL.into_iter().rev();
        newest_first.find(|known| known.as_str() <= version).unwrap_or(LegacyVersion::V2024_11_05)
    }
}

impl Era {
    /// Returns the protocol version of the era.
    pub fn as_str(self) -> &'static str {
        match self {
            Era::Legacy(version) => version.as_str(),
            Era::Modern => MODERN_VERSION,
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Era {
    type Err = String;

    fn from_str(text: &str) -> Result<Era, String> {
        // Exact, unlike `nearest`: a server answers a version that it does not know with one of its own, and a stored
        // era is one that was negotiated.
        if text == MODERN_VERSION {
            return Ok(Era::Modern);
        }
        let version = LegacyVersion::ALL.into_iter().find(|version| version.as_str() == text);
        version.map(Era::Legacy).ok_or_else(|| format!("unknown MCP version `{text}`"))
    }
}

impl From<Era> for String {
    fn from(era: Era) -> String {
        era.as_str().to_owned()
    }
}

impl TryFrom<String> for Era {
    type Error = String;

    fn try_from(text: String) -> Result<Era, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_parsed_from_its_own_text() {
        for text in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
            assert_eq!(text.parse::<Era>().unwrap().to_string(), text);
        }
        assert!("1999-01-01".parse::<Era>().is_err());
    }

    #[test]
    fn an_unknown_version_maps_to_the_nearest_older_one() {
        assert_eq!(LegacyVersion::nearest("2025-05-01"), LegacyVersion::V2025_03_26);
        assert_eq!(LegacyVersion::nearest("2024-10-07"), LegacyVersion::V2024_11_05);
        assert_eq!(LegacyVersion::nearest("2025-12-31"), LegacyVersion::V2025_11_25);
    }
}
