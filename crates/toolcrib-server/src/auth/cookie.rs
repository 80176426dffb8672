//! The cookie that carries the id of a console session.
//!
//! ```text
//! Set-Cookie: toolcrib_1f0c59ab=ID; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict
//! ```
//!
//! The cookie is the id alone. What it gives access to is looked up in the store's sessions, so ending a session needs no
//! cooperation of the browser.

use axum::http::{HeaderMap, HeaderValue, header};
use toolcrib::registry::MAX_CONSOLE_SESSION_AGE;
use toolcrib::{Code, Error, Result};

/// Returns the name of the cookie. It is the same in all servers on a store, because a load balancer may send each
/// request to another one, and differs between stores: browsers share cookies between all ports of a host, and several
/// servers may run on one machine.
pub(super) fn cookie_name(store_tag: &str) -> String {
    format!("toolcrib_{store_tag}")
}

/// Returns the session id that a request carries.
pub(super) fn session_id<'a>(name: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';'));
    let has_name = |pair: &str| pair.trim().split_once('=').is_some_and(|(key, _)| key == name);
    pairs.filter(|pair| has_name(pair)).find_map(|pair| pair.trim().split_once('=')).map(|(_, value)| value)
}

/// Builds the `Set-Cookie` value of a new session. `HttpOnly` hides the cookie from scripts; `SameSite=Strict` keeps
/// browsers from sending it with requests of other sites.
pub(super) fn session_cookie(name: &str, headers: &HeaderMap, id: &str) -> Result<HeaderValue> {
    build_cookie(name, headers, id, MAX_CONSOLE_SESSION_AGE.as_secs())
}

/// Builds the `Set-Cookie` value that deletes the cookie.
pub(super) fn expired_cookie(name: &str, headers: &HeaderMap) -> Result<HeaderValue> {
    build_cookie(name, headers, "", 0)
}

/// `seconds` is the lifetime of the cookie; 0 deletes it.
fn build_cookie(name: &str, headers: &HeaderMap, value: &str, seconds: u64) -> Result<HeaderValue> {
    let secure = if is_https(headers) { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text)
        .map_err(|error| Error::new(Code::Internal, "the cookie cannot be written").with_cause(error))
}

/// True when the browser uses HTTPS, which a reverse proxy terminated. This server does not speak TLS itself. A client
/// that forges the header only marks its own cookie as secure.
fn is_https(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    text("x-forwarded-proto").split(',').next().is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
        || text("origin").starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies_by_its_name() {
        let check = |cookies: &[&'static str], expected: Option<&str>| {
            let headers = cookies.iter().map(|text| (header::COOKIE, HeaderValue::from_static(text))).collect();
            assert_eq!(session_id("toolcrib_7450", &headers), expected, "{cookies:?}");
        };
        check(&[], None);
        check(&["toolcrib_7450=abc"], Some("abc"));
        check(&["a=b; toolcrib_7451=x;  toolcrib_7450=abc"], Some("abc"));
        check(&["a=b", "toolcrib_7450=abc"], Some("abc"));
        check(&["toolcrib_7450", "xtoolcrib_7450=1"], None);
    }

    #[test]
    fn the_cookie_is_secure_behind_a_tls_proxy() {
        let plain = session_cookie("toolcrib_7450", &HeaderMap::new(), "x").unwrap();
        assert_eq!(plain, "toolcrib_7450=x; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let headers = HeaderMap::from_iter([("x-forwarded-proto".parse().unwrap(), HeaderValue::from_static("https"))]);
        assert!(session_cookie("toolcrib_7450", &headers, "x").unwrap().to_str().unwrap().ends_with("; Secure"));
    }
}
