//! Rejections by HTTP status that say nothing about the health of a source, mapped to errors for callers. Shared by the
//! MCP and the OpenAPI connector.
//!
//! The circuit breaker must not open for these: the source answered, and another caller, or the same one later, may
//! succeed.

use std::time::Duration;

use jiff::fmt::rfc2822;
use serde_json::{Value, json};
use toolcrib_core::{Code, Error, Timestamp};

/// Upper bound for `Retry-After`; larger values are treated as mistakes of the server.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A rejection that does not count against the source's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpRejection {
    /// Credentials are missing, or lack the required scope (401, or 403 with `insufficient_scope`).
    LoginRequired,
    /// The credentials are valid and not allowed to do this (403).
    Forbidden,
    /// The server answers, but serves no endpoint at the configured URL (404, 405, 410).
    NoEndpoint,
    /// Too many requests, with the wait that the server asks for.
    RateLimited(Option<Duration>),
}

impl HttpRejection {
    /// 429 always counts as rate limiting, 503 only with `Retry-After`: without it, 503 means that the server failed.
    pub fn from_rate_limit(status: u16, retry_after: Option<Duration>) -> Option<HttpRejection> {
        (status == 429 || (status == 503 && retry_after.is_some())).then_some(HttpRejection::RateLimited(retry_after))
    }

    /// Builds the error for the caller. `details` of the connector are kept and extended.
    pub fn to_error(self, status: u16, message: String, mut details: Value) -> Error {
        details["upstream_status"] = json!(status);
        let error = match self {
            HttpRejection::LoginRequired => Error::new(Code::AuthRequired, message),
            HttpRejection::Forbidden => Error::new(Code::ToolExecutionFailed, message).with_retryable(false),
            HttpRejection::NoEndpoint => Error::new(Code::ToolUnavailable, message).with_retryable(false),
            HttpRejection::RateLimited(retry_after) => {
                // The limit is the source's, not one of Toolcrib's own.
                details["by"] = json!("source");
                details["retry_after_ms"] = json!(retry_after.map(|wait| wait.as_millis() as u64));
                Error::new(Code::RateLimited, message)
            }
        };
        error.with_details(details)
    }
}

/// Parses the value of a `Retry-After` header: seconds or an HTTP date. A date in the past gives zero; `None` if the
/// text is neither.
pub fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp(at.as_millisecond()).since(now).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = Timestamp(784_111_777_000);
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("99999999999", Some(365 * 24 * 3600)),
            ("soon", None),
            ("-5", None),
        ] {
            assert_eq!(parse_retry_after(text, now), expected.map(Duration::from_secs), "{text}");
        }
    }
}
