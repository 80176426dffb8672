//! SHA-256 digests that identify content: manifests, tools and definitions by their canonical JSON.
//!
//! Fingerprints are compared with stored ones for years, so the text that is hashed must never change its form;
//! `json::push_canonical` and `manifest` define it. They identify content and protect no secret: definitions, which may
//! contain secrets, are hashed with a key by the library.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// SHA-256 digest; formatted and serialised as 64 hexadecimal digits.
/// Ordered by its bytes, which is also the order of its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Computes the digest of some bytes.
    pub fn digest(bytes: impl AsRef<[u8]>) -> Fingerprint {
        Fingerprint(Sha256::digest(bytes).into())
    }

    /// Wraps a digest that was computed elsewhere. For keyed hashes, whose key this crate does not have, and for
    /// digests of several parts.
    pub fn from_bytes(bytes: [u8; 32]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Returns the first `digits` hexadecimal digits, for names and display.
    /// Callers choose the length by what a collision would cost: 8 in tool names, 12 in messages, 16 in lockfiles.
    pub fn short_hex(&self, digits: usize) -> String {
        let mut hex = self.to_string();
        hex.truncate(digits);
        hex
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0u8; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&hex).unwrap_or_default())
    }
}

/// Prints 12 digits, enough to tell values apart in a failed assertion.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.short_hex(12))
    }
}

/// Error for a text that is no fingerprint.
#[derive(Debug)]
pub struct ParseFingerprintError;

impl fmt::Display for ParseFingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fingerprint has 64 hexadecimal digits")
    }
}

impl std::error::Error for ParseFingerprintError {}

/// Accepts digits in both cases, and nothing shorter or longer.
impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(hex: &str) -> Result<Self, Self::Err> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or(ParseFingerprintError);
        if hex.len() != 64 {
            return Err(ParseFingerprintError);
        }
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_round_trips_as_hex() {
        let fingerprint = Fingerprint::digest("abc");
        assert!(fingerprint.to_string().starts_with("ba7816bf8f01cfea414140de5dae2223"));
        assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
        assert!("xyz".parse::<Fingerprint>().is_err());
    }
}
