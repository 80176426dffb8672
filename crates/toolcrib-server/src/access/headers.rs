//! What every answer tells a browser about itself.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Pages run our own script and show our own style, from here, and nothing else; nobody puts them in a frame.
const PAGES: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Forms sent under `no-referrer` come from the origin `null`, which is refused: hence `same-origin`.
const ALL: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
];

/// What an answer says itself stands.
pub(crate) fn secure(headers: &mut HeaderMap) {
    for (name, value) in ALL {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What depends on who asks is kept by nobody in between, and asked for again.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    if headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(PAGES));
    }
}
