//! Checks the registered claims of an access token (RFC 7519, RFC 9068). No I/O: the time is an argument.

use std::time::Duration;

use serde_json::{Map, Value};
use toolcrib::core::Timestamp;

use super::rejection::JwtRejection;

/// Values that the claims of a token are compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: &'a str,
    pub(super) leeway: Duration,
}

/// Returns the claim `iss`, by which the issuer is selected before anything is verified.
pub(super) fn read_issuer(claims: &Map<String, Value>) -> Result<&str, JwtRejection> {
    claims.get("iss").and_then(Value::as_str).ok_or(JwtRejection::MissingIssuer)
}

/// Checks the claims. Returns when the token stops being accepted, leeway included.
pub(super) fn check_claims(
    claims: &Map<String, Value>,
    expected: ExpectedClaims<'_>,
    now: Timestamp,
) -> Result<Timestamp, JwtRejection> {
    if read_issuer(claims)? != expected.issuer {
        return Err(JwtRejection::UnknownIssuer);
    }
    if is_other_kind(claims) {
        return Err(JwtRejection::NotAnAccessToken);
    }
    if !has_audience(claims, expected.audience) {
        return Err(JwtRejection::WrongAudience);
    }
    let expires_at = read_time(claims, "exp")?.ok_or(JwtRejection::MissingExpiry)?.plus(expected.leeway);
    if expires_at <= now {
        return Err(JwtRejection::Expired);
    }
    let latest = now.plus(expected.leeway);
    if read_time(claims, "nbf")?.is_some_and(|not_before| not_before > latest) {
        return Err(JwtRejection::NotYetValid);
    }
    if read_time(claims, "iat")?.is_some_and(|issued_at| issued_at > latest) {
        return Err(JwtRejection::IssuedInFuture);
    }
    match claims.get("sub").and_then(Value::as_str) {
        Some(subject) if !subject.is_empty() => Ok(expires_at),
        Some(_) | None => Err(JwtRejection::MissingSubject),
    }
}

/// Whether the provider itself says that this is no access token: `token_use` of Amazon Cognito, and `typ` of Keycloak.
/// ID tokens of other providers are for the audience of their client, and fail by that.
fn is_other_kind(claims: &Map<String, Value>) -> bool {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    text("token_use") == Some("id") || matches!(text("typ"), Some("ID" | "Refresh" | "Offline" | "Logout"))
}

/// Whether `aud` is the audience, or a list that contains it.
fn has_audience(claims: &Map<String, Value>, audience: &str) -> bool {
    match claims.get("aud") {
        Some(Value::String(text)) => text == audience,
        Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(audience)),
        Some(_) | None => false,
    }
}

/// Reads a time in seconds, which may have a fraction.
fn read_time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, JwtRejection> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite()).ok_or(JwtRejection::MalformedTime)?;
    // The cast saturates.
    #[expect(clippy::cast_possible_truncation, reason = "a time beyond the range becomes the last one in it")]
    Ok(Some(Timestamp((seconds * 1000.0) as i64)))
}
