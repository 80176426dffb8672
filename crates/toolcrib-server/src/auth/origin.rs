//! Checks `Host`, `Origin` and `Sec-Fetch-Site`. A page of another site can make a browser on this machine, or one with
//! a console session, send requests here (DNS rebinding, CSRF); such a request names a foreign host or origin.
//!
//! Programs send no `Origin`, so for them only the host is checked, and only where local processes need no token. CSRF
//! tokens of sessions are checked in addition, by `authorize`.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use toolcrib::Code;
use url::{Host, Url};

use super::{Authenticator, Locality};
use crate::rest::error_response;

/// Returns the response that rejects a request with an ambiguous or foreign host, or from a foreign origin; `None` if
/// the request may proceed.
pub(crate) fn reject_foreign_request(auth: &Authenticator, request: &Request, locality: Locality) -> Option<Response> {
    let headers = request.headers();
    let Ok(host) = request_host(request) else {
        let message = "ambiguous host; send one `Host` header that agrees with the request target";
        return Some(error_response(StatusCode::BAD_REQUEST, Code::BadRequest, message));
    };
    // On loopback, check `Host` against DNS rebinding: anyone can register a name that resolves to 127.0.0.1. Elsewhere
    // every request carries a token, and so does one that a proxy forwarded for the public host.
    let is_expected = |host: &str| {
        is_common_local_host(host)
            || (locality == Locality::Forwarded && auth.is_public_host(host))
            || is_local_origin(&format!("http://{host}"))
    };
    if auth.allows_local_without_token() && !host.is_some_and(is_expected) {
        return Some(forbidden("this server accepts requests for localhost and the host of `public_url` only"));
    }
    // Pages of other local servers may send safe requests, whose responses the browser withholds from them. They may not
    // change or call anything.
    let allows_local_origins = locality == Locality::Local && request.method().is_safe();
    let is_allowed = |origin: &str| {
        host.is_some_and(|host| is_same_origin(origin, host)) || (allows_local_origins && is_local_origin(origin))
    };
    // All of them: with several `Origin` headers, one allowed origin must not cover for another. `null` is refused too.
    if !headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_allowed)) {
        return Some(forbidden("requests from other origins are refused"));
    }
    // In addition to `Origin`. Links from other sites are safe requests and stay possible.
    if !request.method().is_safe() && is_cross_site(headers) {
        return Some(forbidden("requests from other sites are refused"));
    }
    None
}

/// Host and port of `public_url`, behind which a proxy listens. Requests for them come over the network.
#[derive(Debug)]
pub(super) struct PublicHost {
    name: String,
    /// Left out of `Host` if it is the default one of the scheme.
    port: u16,
    is_default_port: bool,
}

impl PublicHost {
    /// Reads the host of an address; `None` for one on this machine.
    pub(super) fn from_url(url: &str) -> Option<PublicHost> {
        let url = Url::parse(url).ok().filter(|url| !is_local_url(url))?;
        let name = url.host_str()?.to_owned();
        Some(PublicHost { name, port: url.port_or_known_default()?, is_default_port: url.port().is_none() })
    }

    fn matches(&self, host: &str) -> bool {
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        match host.rsplit_once(':').filter(|(_, port)| is_port(port)) {
            Some((name, port)) => name.eq_ignore_ascii_case(&self.name) && port.parse() == Ok(self.port),
            None => host.eq_ignore_ascii_case(&self.name) && self.is_default_port,
        }
    }
}

impl Authenticator {
    fn is_public_host(&self, host: &str) -> bool {
        self.public_host.load().as_ref().is_some_and(|public_host| public_host.matches(host))
    }

    /// Whether a request names the host of `public_url`, so that a proxy forwarded it.
    pub(super) fn is_for_public_host(&self, headers: &HeaderMap) -> bool {
        headers.get_all(header::HOST).iter().any(|host| host.to_str().is_ok_and(|host| self.is_public_host(host)))
    }
}

/// 403 with an error envelope; browsers and programs get the same.
fn forbidden(message: &str) -> Response {
    error_response(StatusCode::FORBIDDEN, Code::Forbidden, message)
}

/// A request with several hosts. This check would look at one, and a proxy or handler at another.
struct AmbiguousHost;

/// Returns the host that a request is for. An absolute request target names a host too, which takes precedence over the
/// `Host` header (RFC 9112, section 3.2.2), so both must agree.
fn request_host(request: &Request) -> Result<Option<&str>, AmbiguousHost> {
    let mut hosts =
        request.headers().get_all(header::HOST).iter().map(|value| value.to_str().map_err(|_| AmbiguousHost));
    let host = hosts.next().transpose()?;
    let authority = request.uri().authority().map(Authority::as_str);
    if hosts.next().is_some() {
        return Err(AmbiguousHost);
    }
    match (host, authority) {
        (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => Err(AmbiguousHost),
        (host, authority) => Ok(host.or(authority)),
    }
}

/// True when the browser reports that another site caused the request. Scripts cannot set `Sec-Fetch-Site`.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// Recognises the usual spellings of a local host without the cost of parsing a URL.
fn is_common_local_host(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    matches!(name.map_or(host, |(name, _)| name), "127.0.0.1" | "localhost")
}

/// True for an origin on this machine, at any port.
fn is_local_origin(origin: &str) -> bool {
    parse_origin(origin).is_some_and(|url| is_local_url(&url))
}

/// The name `localhost` may have a trailing dot, which browsers keep.
fn is_local_url(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name == "localhost.",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// True when `origin` has the host and port that the request is for. A proxy may have terminated TLS, so the default
/// port follows from the scheme of the origin. All names of the loopback interface count as the same host.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let Some(origin) = parse_origin(origin) else { return false };
    let Some(host) = parse_origin(&format!("{}://{host}", origin.scheme())) else { return false };
    // A page that was opened at `http://localhost` may send a form to `http://127.0.0.1`: both are this server.
    let same_host = origin.host() == host.host() || (is_local_url(&origin) && is_local_url(&host));
    same_host && origin.port_or_known_default() == host.port_or_known_default()
}

/// Parses an origin: an HTTP(S) URL with nothing but scheme, host and port.
fn parse_origin(origin: &str) -> Option<Url> {
    let url = Url::parse(origin).ok()?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    (is_plain && url.path() == "/" && url.query().is_none() && url.fragment().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_host_is_that_of_the_public_url_with_its_port() {
        for (url, expected, foreign) in [
            (
                "https://tools.example/base",
                &["tools.example", "Tools.Example:443"][..],
                &["tools.example:80", "tools.example:", "x.tools.example", "tools.example.evil.example", ""][..],
            ),
            ("http://tools.lan:7450", &["tools.lan:7450"], &["tools.lan", "tools.lan:80"]),
            ("https://[2001:db8::1]", &["[2001:db8::1]", "[2001:db8::1]:443"], &["[2001:db8::2]", "2001"]),
        ] {
            let public_host = PublicHost::from_url(url).unwrap();
            assert!(expected.iter().all(|host| public_host.matches(host)), "{url}");
            assert!(!foreign.iter().any(|host| public_host.matches(host)), "{url}");
        }
        assert!(PublicHost::from_url("http://localhost:7450").is_none());
    }

    #[test]
    fn only_loopback_origins_are_local() {
        for address in ["http://localhost", "http://localhost:7450", "https://127.0.0.1:1", "http://[::1]:7450"] {
            assert!(is_local_origin(address), "{address}");
        }
        for address in [
            "null",
            "",
            "http://evil.example",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://localhost@evil.example",
            "http://evil@localhost",
            "http://localhost/path",
            "file:///etc",
        ] {
            assert!(!is_local_origin(address), "{address}");
        }
    }

    #[test]
    fn an_origin_matches_the_requested_host_with_or_without_tls() {
        for (origin, host) in [
            ("http://tools.example:7450", "tools.example:7450"),
            ("https://tools.example", "tools.example"),
            ("https://tools.example", "tools.example:443"),
            ("http://tools.example", "tools.example:80"),
            ("http://[2001:db8::1]:7450", "[2001:db8::1]:7450"),
            ("http://localhost:7450", "127.0.0.1:7450"),
            ("http://[::1]:7450", "localhost:7450"),
        ] {
            assert!(is_same_origin(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "tools.example"),
            ("https://evil.example", "tools.example"),
            ("https://tools.example:8443", "tools.example"),
            ("http://tools.example:7451", "tools.example:7450"),
            ("http://localhost:3000", "localhost:7450"),
            ("http://localhost", "localhost:7450"),
            ("http://tools.example.evil.example", "tools.example"),
            ("https://tools.example", "tools.example/x"),
        ] {
            assert!(!is_same_origin(origin, host), "{origin} {host}");
        }
    }
}
