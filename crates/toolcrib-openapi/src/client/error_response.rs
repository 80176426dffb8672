//! Errors for HTTP responses of 400 and above: the status, and the reason found in the body.
//!
//! The message is for people and models: `` `GET /pets/{id}` answered 404 Not Found: no such pet ``. The details are
//! for programs: status, safe headers, and the body up to a limit. The caller redacts both.

use std::time::Duration;

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use serde_json::{Value, json};
use toolcrib_connector::HttpRejection;
use toolcrib_core::json::{long_integer, to_exact_string};
use toolcrib_core::text::{sanitize, sanitize_truncated};
use toolcrib_core::{Code, Error};

use super::result::{BodyKind, classify_body, decode_body, media_type, parse_json, reported_headers};
use super::send::ReceivedResponse;

/// Bytes of a response body that the details of an error include; more is cut, and marked with an ellipsis.
const MAX_DETAIL_BODY_BYTES: usize = 16 * 1024;
/// Characters of the reason that the message of an error includes.
const MAX_REASON_CHARS: usize = 400;

/// Builds the error for a response. `retry_after` is the wait that the server asks for, `missing` the credentials that
/// the document requires and the source does not have.
pub(super) fn response_error(
    label: &str,
    received: &ReceivedResponse,
    retry_after: Option<Duration>,
    missing: Option<&str>,
) -> Error {
    let body = parse_body(received);
    // Status and reason form the message; the full body goes into the details.
    let mut message = format!("`{label}` answered {}", received.status);
    if let Some(reason) = body.as_ref().and_then(find_reason) {
        message = format!("{message}: {reason}");
    }
    // Only for 401 and 403: the requirement may be the reason.
    let is_unauthorized = matches!(received.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if let Some(missing) = missing.filter(|_| is_unauthorized) {
        message = format!("{message}; the document requires {missing}, to be configured in `auth` of the source");
    }
    let details = json!({
        "status": received.status.as_u16(),
        "headers": reported_headers(&received.headers),
        "body": body.map(truncate_body),
    });
    match classify_rejection(received, retry_after) {
        Some(rejection) => rejection.to_error(received.status.as_u16(), message, details),
        None => {
            let retryable = is_transient(received.status);
            Error::new(Code::ToolExecutionFailed, message).with_retryable(retryable).with_details(details)
        }
    }
}

/// Rejections that do not count against the source. Unlike for an MCP endpoint, 404 concerns one operation here and is
/// an ordinary error.
pub(super) fn classify_rejection(received: &ReceivedResponse, retry_after: Option<Duration>) -> Option<HttpRejection> {
    match received.status.as_u16() {
        401 => Some(HttpRejection::LoginRequired),
        403 => {
            // RFC 6750: `insufficient_scope` means that another token may succeed.
            let challenges = received.headers.get_all(WWW_AUTHENTICATE).iter();
            let mut challenges = challenges.filter_map(|challenge| challenge.to_str().ok());
            let login_helps = challenges.any(|challenge| challenge.contains("insufficient_scope"));
            Some(if login_helps { HttpRejection::LoginRequired } else { HttpRejection::Forbidden })
        }
        status => HttpRejection::from_rate_limit(status, retry_after),
    }
}

/// Whether a retry may succeed. Wider than what `retry` repeats by itself: 500 is left to the caller's judgement.
pub(super) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// Body for details and reason: parsed JSON, else the beginning of a text; `None` for binary content.
fn parse_body(received: &ReceivedResponse) -> Option<Value> {
    let kind = media_type(&received.headers);
    if received.body.is_empty() {
        return None;
    }
    // Only the beginning is decoded: no more is shown.
    let text = || {
        let prefix = &received.body[..received.body.len().min(MAX_DETAIL_BODY_BYTES)];
        Value::String(sanitize(&decode_body(&received.headers, prefix)))
    };
    match classify_body(&kind, &received.body) {
        BodyKind::Json => Some(parse_json(&received.body).unwrap_or_else(text)),
        BodyKind::Text => Some(text()),
        BodyKind::Image | BodyKind::Audio | BodyKind::Binary => None,
    }
}

/// Replaces a large body by the beginning of its JSON text.
pub(super) fn truncate_body(body: Value) -> Value {
    let text = to_exact_string(&body).unwrap_or_default();
    if text.len() <= MAX_DETAIL_BODY_BYTES {
        return body;
    }
    // A JSON text that is cut is no JSON any more, so it becomes a string.
    Value::String(format!("{}…", &text[..text.floor_char_boundary(MAX_DETAIL_BODY_BYTES)]))
}

/// Finds the message for people in an error body. The locations are those of common APIs and of RFC 9457 and RFC 6749;
/// the most specific come first.
pub(super) fn find_reason(body: &Value) -> Option<String> {
    const REASON_POINTERS: [&str; 13] = [
        "/error/message",
        "/message",
        "/error_description",
        "/error/description",
        "/error/error",
        "/error",
        "/detail",
        "/detail/0/msg",
        "/errors/0/message",
        "/errors/0/detail",
        "/errors/0",
        "/title",
        "/fault/faultstring",
    ];
    // The first pointer that leads to a text counts; numbers, such as error codes, are not reasons.
    let find_text = |pointer: &&str| {
        let value = body.pointer(pointer).filter(|value| long_integer(value).is_none())?;
        value.as_str().filter(|text| !text.trim().is_empty())
    };
    // The pointer to the body itself comes first, for a body that is a text.
    let text = [""].iter().chain(&REASON_POINTERS).find_map(find_text);
    text.map(|text| sanitize_truncated(text, MAX_REASON_CHARS)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn test_response(status: u16, kind: &'static str, body: &[u8]) -> ReceivedResponse {
        let headers = HeaderMap::from_iter([
            (http::header::CONTENT_TYPE, HeaderValue::from_static(kind)),
            (http::header::SET_COOKIE, HeaderValue::from_static("secret=1")),
        ]);
        let url = "http://h/p?key=1".parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        ReceivedResponse { status, headers, url, shown_url: String::new(), body: body.to_vec(), is_truncated: false }
    }

    #[test]
    fn an_error_contains_the_reason_from_the_body() {
        for (kind, body, expected) in [
            ("application/json", r#"{"error":{"message":"no such pet"}}"#, ": no such pet"),
            ("application/json", r#"{"message":"Not\nFound","documentation_url":"x"}"#, ": Not Found"),
            ("application/json", r#"{"error":"invalid","error_description":"why"}"#, ": why"),
            ("application/problem+json", r#"{"title":"T","detail":"D"}"#, ": D"),
            ("application/problem+json", r#"{"title":"T"}"#, ": T"),
            ("application/json", r#"{"errors":[{"message":"first"},{"message":"second"}]}"#, ": first"),
            ("application/json", r#"{"detail":[{"loc":["x"],"msg":"field required"}]}"#, ": field required"),
            ("application/json", r#"{"a":1}"#, ""),
            ("application/json", r#""words""#, ": words"),
            ("application/json", "123456789012345678901234567890", ""),
            ("application/json", r#"{"error":123456789012345678901234567890,"detail":"why"}"#, ": why"),
            ("application/json", "not json", ": not json"),
            ("text/plain", "plain \u{1b}[31mwords", ": plain words"),
            ("application/octet-stream", "\0\u{1}", ""),
            ("text/plain", "", ""),
        ] {
            let error = response_error("GET /p", &test_response(404, kind, body.as_bytes()), None, Some("nothing"));
            assert_eq!(error.message, format!("`GET /p` answered 404 Not Found{expected}"), "{body}");
            assert_eq!((error.code, error.is_retryable()), (Code::ToolExecutionFailed, false));
            assert!(!error.details.unwrap().to_string().contains("secret"));
        }
    }

    #[test]
    fn missing_credentials_are_named_for_401_and_403() {
        let error =
            response_error("GET /p", &test_response(401, "text/plain", b""), None, Some("`key` (a bearer token)"));
        let hint = "; the document requires `key` (a bearer token), to be configured in `auth` of the source";
        assert_eq!(error.message, format!("`GET /p` answered 401 Unauthorized{hint}"));
        let error = response_error("GET /p", &test_response(403, "text/plain", b"no"), None, None);
        assert_eq!(error.message, "`GET /p` answered 403 Forbidden: no");
    }

    #[test]
    fn transient_statuses_are_retryable() {
        for (status, retryable) in [
            (400, false),
            (401, false),
            (404, false),
            (408, true),
            (409, false),
            (422, false),
            (425, true),
            (429, true),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (504, true),
        ] {
            assert_eq!(
                response_error("x", &test_response(status, "text/plain", b""), None, None).is_retryable(),
                retryable,
                "{status}"
            );
        }
    }

    #[test]
    fn a_large_body_is_truncated() {
        let large = format!(r#"{{"message":"m","x":"{}"}}"#, "é".repeat(20_000));
        let error = response_error("GET /p", &test_response(500, "application/json", large.as_bytes()), None, None);
        assert!(error.message.ends_with(": m"));
        let details = error.details.unwrap();
        assert!(details["body"].as_str().unwrap().len() <= MAX_DETAIL_BODY_BYTES + 3);
    }
}
