//! The cookie that carries the id of a console session.
//!
//! ```text
//! Set-Cookie: toolcrib_7450=ID; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict
//! ```
//!
//! The cookie is the id alone. What it gives access to is looked up in `sessions`, so ending a session needs no
//! cooperation of the browser.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use toolcrib::{Code, Error, Result};

use super::sessions::MAX_CONSOLE_SESSION_AGE;

/// Returns a cookie name with the port in it: browsers share cookies between all ports of a host, and several servers may
/// run on one machine.
fn cookie_name(address: SocketAddr) -> String {
    format!("toolcrib_{}", address.port())
}

/// Returns the session id that a request carries.
pub(super) fn session_id(address: SocketAddr, headers: &HeaderMap) -> Option<&str> {
    let mut cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    // Most requests have no cookie at all; they need not build the name.
    let first = cookies.next()?;
    let name = cookie_name(address);
    let pairs = std::iter::once(first).chain(cookies).flat_map(|value| value.split(';'));
    let has_name = |pair: &'_ str| pair.trim().split_once('=').is_some_and(|(key, _)| key == name);
    pairs.filter(|pair| has_name(pair)).find_map(|pair| pair.trim().split_once('=')).map(|(_, value)| value)
}

/// Builds the `Set-Cookie` value of a new session. `HttpOnly` hides the cookie from scripts; `SameSite=Strict` keeps
/// browsers from sending it with requests of other sites.
pub(super) fn session_cookie(address: SocketAddr, headers: &HeaderMap, id: &str) -> Result<HeaderValue> {
    build_cookie(address, headers, id, MAX_CONSOLE_SESSION_AGE.as_secs())
}

/// Builds the `Set-Cookie` value that deletes the cookie.
pub(super) fn expired_cookie(address: SocketAddr, headers: &HeaderMap) -> Result<HeaderValue> {
    build_cookie(address, headers, "", 0)
}

/// `seconds` is the lifetime of the cookie; 0 deletes it.
fn build_cookie(address: SocketAddr, headers: &HeaderMap, value: &str, seconds: u64) -> Result<HeaderValue> {
    let secure = if is_https(headers) { "; Secure" } else { "" };
    let text =
        format!("{}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", cookie_name(address));
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
    fn a_session_is_found_among_other_cookies_by_its_port() {
        let address: SocketAddr = "127.0.0.1:7450".parse().unwrap();
        let check = |cookies: &[&'static str], expected: Option<&str>| {
            let headers = cookies.iter().map(|text| (header::COOKIE, HeaderValue::from_static(text))).collect();
            assert_eq!(session_id(address, &headers), expected, "{cookies:?}");
        };
        check(&[], None);
        check(&["toolcrib_7450=abc"], Some("abc"));
        check(&["a=b; toolcrib_7451=x;  toolcrib_7450=abc"], Some("abc"));
        check(&["a=b", "toolcrib_7450=abc"], Some("abc"));
        check(&["toolcrib_7450", "xtoolcrib_7450=1"], None);
    }

    #[test]
    fn the_cookie_is_secure_behind_a_tls_proxy() {
        let address: SocketAddr = "127.0.0.1:7450".parse().unwrap();
        let plain = session_cookie(address, &HeaderMap::new(), "x").unwrap();
        assert_eq!(plain, "toolcrib_7450=x; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let headers = HeaderMap::from_iter([("x-forwarded-proto".parse().unwrap(), HeaderValue::from_static("https"))]);
        assert!(session_cookie(address, &headers, "x").unwrap().to_str().unwrap().ends_with("; Secure"));
    }
}
