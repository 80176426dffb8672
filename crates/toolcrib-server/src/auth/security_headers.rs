//! What every answer tells a browser about itself.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Pages run our own script and show our own style, from here, and nothing else; nobody puts them in a frame.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What a browser must know of a page. Forms sent under `no-referrer` come from the origin `null`, which is refused:
/// hence `same-origin`.
const PAGE_HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
];

/// What an answer says itself stands. One that has no body leaves what the browser has as it is.
pub(crate) fn set_security_headers(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::NOT_MODIFIED {
        return;
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What depends on who asks is kept by nobody in between, and asked for again.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    if headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        for (name, value) in PAGE_HEADERS {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
}
