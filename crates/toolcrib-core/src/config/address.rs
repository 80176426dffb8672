//! What is an address and what is a path, before any reference is known. Nothing here repeats a value.

/// Whether this may be an address of HTTP. A reference may hold the scheme, or the whole.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("${") || {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        is_http(scheme) && !rest.is_empty() && !rest.starts_with('/')
    }
}

/// Whether it begins with a template, and what it is shows only at use.
pub(super) fn begins_with_template(text: &str) -> bool {
    text.starts_with("{{") || text.starts_with("{%")
}

/// Whether it says by its scheme that it is no path.
pub(super) fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
    })
}

fn is_http(scheme: &str) -> bool {
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
            assert_eq!(is_address(text), expected, "{text}");
        }
    }

    #[test]
    fn a_path_has_no_scheme() {
        for (text, expected) in [("file:///x", true), ("https://x", true), ("./a://b", false), ("/x", false)] {
            assert_eq!(has_scheme(text), expected, "{text}");
        }
    }
}
