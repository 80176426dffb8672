//! Checks of URLs in a configuration, as far as possible before references and templates are resolved.
//! Messages never quote the URL, which may contain credentials.
//!
//! A configuration is checked long before a request is made, and the values of references are not known then:
//! `http://${env:HOST}:${env:PORT}/` is valid for some values. These checks find typing errors early; whether an
//! address may be contacted is decided when a connection is made (`url_policy.rs` of the library).

use url::Url;

use crate::reference::{ReferencePart, split_references};

/// Returns why `text` is not a valid HTTP URL, or `None` if it is or may become one once references are resolved.
pub(super) fn find_url_error(text: &str) -> Option<&'static str> {
    if !is_http_url(text) {
        return Some("expected a URL that begins with `http://` or `https://`");
    }
    // The URL parser would strip them silently.
    if text.chars().any(char::is_control) {
        return Some("a URL cannot contain line breaks or other control characters");
    }
    // A reference may stand for a host name or a port, so both a letter and a digit are tried in its place.
    let with_placeholder = |placeholder: &str| {
        let parts = split_references(text).into_iter().map(|part| match part {
            ReferencePart::Literal(text) => text,
            ReferencePart::Reference(_) => placeholder,
        });
        parts.collect::<String>()
    };
    // A leading reference may hold the whole beginning, and templates are filled at the time of a request.
    let is_unknown = text.starts_with("${") || ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
    // One placeholder for all references at once. A URL that needs a letter in one place and a digit in another still
    // passes, because a digit is a valid host name too.
    let is_valid = || ["x", "1"].iter().any(|placeholder| Url::parse(&with_placeholder(placeholder)).is_ok());
    (!is_unknown && !is_valid()).then_some("is not a valid URL: check its host and its port")
}

/// Whether this looks like an HTTP URL. A leading reference may hold the scheme or the whole URL.
/// Requires something that can be a host behind `://`, so that `http:///path` is not taken for a URL without a host.
pub(super) fn is_http_url(text: &str) -> bool {
    text.starts_with("${") || {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        is_http_scheme(scheme) && !rest.is_empty() && !rest.starts_with('/')
    }
}

/// Whether the text starts with a template, so that its kind is known only when it is filled.
pub(super) fn starts_with_template(text: &str) -> bool {
    text.starts_with("{{") || text.starts_with("{%")
}

/// Whether the text starts with a URL scheme, and so is not a file path.
/// A relative path such as `./a://b` has none, because `.` and `/` cannot start one.
pub(super) fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
    })
}

/// Schemes are compared without regard to case, as RFC 3986 defines.
fn is_http_scheme(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_urls_have_scheme_and_host_unless_they_start_with_a_reference() {
        for (text, expected) in [
            ("http://a", true),
            ("HTTPS://a/b", true),
            ("${env:URL}/x", true),
            ("{{ host }}/x", false),
            ("http:///a", false),
            ("http://", false),
            ("ftp://a", false),
            ("a.example/x", false),
            ("", false),
        ] {
            assert_eq!(is_http_url(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_urls_are_reported_and_references_are_accepted() {
        for url in [
            "http://a.example:8080/mcp?x=1",
            "https://user:word@[::1]:1/",
            "http://${env:HOST}:${env:PORT}/mcp",
            "http://api.${env:ZONE}/mcp",
            "http://10.0.0.${env:LAST}/",
            "http://h/${env:KEY}/mcp",
            "${env:URL}",
            "https://{{ host }}/v1",
            "http://bücher.example/",
        ] {
            assert_eq!(find_url_error(url), None, "{url}");
        }
        for text in [
            "http://a:99999",
            "http://a:b/",
            "http://a b/",
            "http://[::1",
            "http://a%zz/",
            "http://1.2.3.4.5/",
            "http://?x",
            "http://a:${env:PORT}x/",
            "http://a\n.example/",
        ] {
            assert!(find_url_error(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_path_has_no_scheme() {
        for (text, expected) in [("file:///x", true), ("https://x", true), ("./a://b", false), ("/x", false)] {
            assert_eq!(has_scheme(text), expected, "{text}");
        }
    }
}
