//! What is an address and what is a path, before any reference is known. Nothing here repeats a value.

use url::Url;

use crate::reference::{ReferencePart, split_references};

/// What is wrong with an address of HTTP, as far as it is known before references and templates are filled.
pub(super) fn find_url_error(text: &str) -> Option<&'static str> {
    if !is_http_url(text) {
        return Some("expected an address that begins with `http://` or `https://`");
    }
    // They would be left out in silence.
    if text.chars().any(char::is_control) {
        return Some("no address has line breaks or other control characters");
    }
    // What a reference stands for may be a name or a port, or hold all up to here.
    let filled = |with: &str| {
        let each = split_references(text).into_iter().map(|piece| match piece {
            ReferencePart::Literal(text) => text,
            ReferencePart::Reference(_) => with,
        });
        each.collect::<String>()
    };
    let open = text.starts_with("${") || ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
    let known = || ["x", "1"].iter().any(|with| Url::parse(&filled(with)).is_ok());
    (!open && !known()).then_some("is not a valid address: look at its host and its port")
}

/// Whether this may be an address of HTTP. A reference may hold the scheme, or the whole.
pub(super) fn is_http_url(text: &str) -> bool {
    text.starts_with("${") || {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        is_http_scheme(scheme) && !rest.is_empty() && !rest.starts_with('/')
    }
}

/// Whether it begins with a template, and what it is shows only at use.
pub(super) fn starts_with_template(text: &str) -> bool {
    text.starts_with("{{") || text.starts_with("{%")
}

/// Whether it says by its scheme that it is no path.
pub(super) fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
    })
}

fn is_http_scheme(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_unless_a_reference_has_them() {
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
    fn an_address_can_be_read_but_for_what_references_hold() {
        for right in [
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
            assert_eq!(find_url_error(right), None, "{right}");
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
