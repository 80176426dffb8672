//! Where a request comes from. A web page elsewhere can make a browser on this machine, or one that is signed in, send
//! requests here; such a request names another host, or comes from another origin.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use toolcrib::Code;
use url::{Host, Url};

use super::{Authenticator, Locality};
use crate::rest::error_response;

/// The refusal, for one that is not to be listened to.
pub(crate) fn reject_foreign_request(
    access: &Authenticator,
    request: &Request,
    locality: Locality,
) -> Option<Response> {
    let headers = request.headers();
    let Ok(host) = request_host(request) else {
        let message = "a request names one host, once or by the same name in its address and in `Host`";
        return Some(error_response(StatusCode::BAD_REQUEST, Code::BadRequest, message));
    };
    // Names that lead to this machine are anybody's to make. Beyond it, a token tells who comes.
    if access.allows_local_without_token()
        && !host.is_some_and(|host| is_common_local_host(host) || is_local_origin(&format!("http://{host}")))
    {
        return Some(forbidden("this address answers on localhost only"));
    }
    // A page that another program on this machine serves may look, and reads no answer; it changes and calls nothing.
    let neighbours = locality == Locality::Local && request.method().is_safe();
    let ours =
        |origin: &str| host.is_some_and(|host| is_same_origin(origin, host)) || (neighbours && is_local_origin(origin));
    if !headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(ours)) {
        return Some(forbidden("requests from other origins are refused"));
    }
    if !request.method().is_safe() && is_cross_site(headers) {
        return Some(forbidden("requests from other sites are refused"));
    }
    None
}

fn forbidden(message: &str) -> Response {
    error_response(StatusCode::FORBIDDEN, Code::Forbidden, message)
}

/// Several hosts, of which one is looked at here and another by somebody else.
struct AmbiguousHost;

/// The host that a request asks for. The address of a request may name one too, and that one is who it is for: so they
/// must be the same.
fn request_host(request: &Request) -> Result<Option<&str>, AmbiguousHost> {
    let mut named =
        request.headers().get_all(header::HOST).iter().map(|value| value.to_str().map_err(|_| AmbiguousHost));
    let (host, authority) = (named.next().transpose()?, request.uri().authority().map(Authority::as_str));
    if named.next().is_some() {
        return Err(AmbiguousHost);
    }
    match (host, authority) {
        (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => Err(AmbiguousHost),
        (host, authority) => Ok(host.or(authority)),
    }
}

/// What browsers tell by themselves, and pages cannot.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// The usual spellings, seen without reading them as an address.
fn is_common_local_host(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    matches!(name.map_or(host, |(name, _)| name), "127.0.0.1" | "localhost")
}

fn is_local_origin(address: &str) -> bool {
    parse_origin(address).is_some_and(|url| is_local_url(&url))
}

fn is_local_url(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name == "localhost.",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether an origin is the host that a request asked for. A proxy may have taken the TLS off on the way, so that only
/// the origin knows what port goes without saying. All names of this machine are one.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let Some(origin) = parse_origin(origin) else { return false };
    let Some(host) = parse_origin(&format!("{}://{host}", origin.scheme())) else { return false };
    let same_host = origin.host() == host.host() || (is_local_url(&origin) && is_local_url(&host));
    same_host && origin.port_or_known_default() == host.port_or_known_default()
}

/// An address of the web with nothing after its host.
fn parse_origin(address: &str) -> Option<Url> {
    let url = Url::parse(address).ok()?;
    let plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    (plain && url.path() == "/" && url.query().is_none() && url.fragment().is_none()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_here() {
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
    fn an_origin_is_the_host_that_was_asked_for_with_or_without_tls() {
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
