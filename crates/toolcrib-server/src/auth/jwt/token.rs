//! The parts of an access token, parsed and bounded but not verified. No I/O, no clock.
//!
//! ```text
//! base64url({"alg":"ES256","kid":"1"}) . base64url({"iss":"https://id.example", …}) . base64url(signature)
//! ```
//!
//! Parsing is strict where two readers might see different tokens: unpadded base64url in its one spelling, and objects
//! without duplicate keys.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use toolcrib::config::JwtAlgorithm;
use toolcrib::core::json::nesting_depth;

use super::rejection::JwtRejection;

/// Maximum length of a token. Common servers accept 8 to 16 KiB of headers.
const MAX_TOKEN_LEN: usize = 16 * 1024;
/// Maximum nesting of header and payload. Claims of real providers have three or four levels.
const MAX_JSON_DEPTH: usize = 32;
/// Values of `typ` for an access token, without the prefix `application/`.
const ACCESS_TOKEN_TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// A token whose signature was not verified.
#[derive(Debug)]
pub(super) struct UnverifiedJwt<'t> {
    pub(super) algorithm: JwtAlgorithm,
    /// Id of the key that signed it.
    pub(super) key_id: Option<String>,
    /// The payload.
    pub(super) claims: Map<String, Value>,
    /// Header and payload as they were signed.
    pub(super) signed_part: &'t str,
    /// The signature in base64url.
    pub(super) signature: &'t str,
}

/// Whether a token is a JWT: three parts in base64url, the first of which is a JSON object. Any other token is opaque.
pub(super) fn has_jwt_form(token: &str) -> bool {
    let Some([header, payload, signature]) = split_token(token) else { return false };
    let is_base64url = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !is_base64url(payload) || !is_base64url(signature) || header.len() > MAX_TOKEN_LEN {
        return false;
    }
    // The deserializer bounds the depth itself.
    let decoded = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    serde_json::from_slice::<Map<String, Value>>(&decoded).is_ok()
}

/// Splits a token into its three parts.
fn split_token(token: &str) -> Option<[&str; 3]> {
    let mut parts = token.split('.');
    let split = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(split)
}

impl<'t> UnverifiedJwt<'t> {
    /// Parses a token.
    pub(super) fn parse(token: &'t str) -> Result<UnverifiedJwt<'t>, JwtRejection> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(JwtRejection::TooLong);
        }
        let [header, payload, signature] = split_token(token).ok_or(JwtRejection::MalformedHeader)?;
        let (algorithm, key_id) = read_header(&parse_part(header).ok_or(JwtRejection::MalformedHeader)?)?;
        let claims = parse_part(payload).ok_or(JwtRejection::MalformedPayload)?;
        let signed_part = &token[..header.len() + 1 + payload.len()];
        Ok(UnverifiedJwt { algorithm, key_id, claims, signed_part, signature })
    }
}

/// Checks the header. Keys and addresses of keys in it (`jwk`, `jku`, `x5u`, `x5c`) are never used.
fn read_header(header: &Map<String, Value>) -> Result<(JwtAlgorithm, Option<String>), JwtRejection> {
    // None of the extensions that a token may require is implemented.
    if header.contains_key("crit") {
        return Err(JwtRejection::CriticalExtension);
    }
    if let Some(kind) = header.get("typ") {
        let kind = kind.as_str().ok_or(JwtRejection::MalformedHeader)?.to_ascii_lowercase();
        if !ACCESS_TOKEN_TYPES.contains(&kind.strip_prefix("application/").unwrap_or(&kind)) {
            return Err(JwtRejection::NotAnAccessToken);
        }
    }
    let algorithm = header.get("alg").and_then(Value::as_str).ok_or(JwtRejection::MalformedHeader)?;
    let algorithm = JwtAlgorithm::parse(algorithm).ok_or(JwtRejection::AlgorithmNotAccepted)?;
    let key_id = match header.get("kid") {
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err(JwtRejection::MalformedHeader),
        None => None,
    };
    Ok((algorithm, key_id))
}

/// Parses the header or the payload: a JSON object without duplicate keys, at any level.
fn parse_part(part: &str) -> Option<Map<String, Value>> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(part).ok()?).ok()?;
    if nesting_depth(&text) > MAX_JSON_DEPTH {
        return None;
    }
    // The error is dropped: its text may quote the token.
    match serde_json::from_str(&text).ok()? {
        UniqueKeys(Value::Object(object)) => Some(object),
        UniqueKeys(_) => None,
    }
}

/// A JSON value in which no object has the same key twice. serde_json keeps the last of two values, and the issuer or a
/// proxy may have looked at the first.
struct UniqueKeys(Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueKeys, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor).map(UniqueKeys)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without duplicate keys")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(UniqueKeys(item)) = sequence.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, UniqueKeys(value))) = entries.next_entry::<String, UniqueKeys>()? {
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(object.into())
    }
}
