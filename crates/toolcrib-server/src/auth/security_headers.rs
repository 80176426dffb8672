//! Response headers that restrict what a browser does with a response: CSP, framing, referrer, sniffing, caching.
//!
//! Pages contain text from sources, which is untrusted. It is escaped when it is rendered; the policy is the second
//! line of defence, under which markup that slipped through could neither run a script nor load anything from another
//! site.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Content security policy of console pages: own script and style only, no inline code, no framing.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of HTML pages. The referrer policy is `same-origin` because under `no-referrer` browsers send forms with
/// `Origin: null`, which the origin check rejects.
const PAGE_HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
];

/// Adds the security headers to a response; headers that the handler set stay. A 304 gets only `Vary`, so that the browser
/// keeps the others of its cached copy.
pub(crate) fn set_security_headers(status: StatusCode, headers: &mut HeaderMap) {
    // The credentials decide about every response except those that are public. RFC 9110 wants it on a 304 too.
    let cache_control = headers.get(header::CACHE_CONTROL);
    if !cache_control.is_some_and(|value| value.as_bytes().starts_with(b"public")) {
        headers.append(header::VARY, HeaderValue::from_static("Authorization, Cookie"));
    }
    if status == StatusCode::NOT_MODIFIED {
        return;
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Responses depend on the principal: shared caches must not store them, and browsers must revalidate.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    if headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        for (name, value) in PAGE_HEADERS {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
}
