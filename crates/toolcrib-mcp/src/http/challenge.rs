//! Challenges of a 401 or 403 response (`WWW-Authenticate`, RFC 9110), as far as they are about OAuth (RFC 6750, 9728).

use http::{HeaderMap, header};

use crate::error::sanitize_excerpt;

/// Maximum length of the headers that are parsed, and maximum number of scopes.
const MAX_CHALLENGE_LEN: usize = 8 * 1024;
const MAX_SCOPES: usize = 50;

/// The login that a server wants, as it says itself. Untrusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthChallenge {
    /// Whether the scheme is `Bearer` or `DPoP`, which are those of OAuth.
    pub is_oauth: bool,
    /// Whether the token is valid and lacks a scope.
    pub needs_more_scope: bool,
    /// URL of the metadata of the protected resource.
    pub resource_metadata: Option<String>,
    pub scopes: Vec<String>,
}

/// Parses all challenges of a response into one.
pub(crate) fn parse_challenges(headers: &HeaderMap) -> AuthChallenge {
    let mut challenge = AuthChallenge::default();
    for text in headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()) {
        let text = &text[..text.floor_char_boundary(MAX_CHALLENGE_LEN)];
        challenge.is_oauth |= has_scheme(text, "bearer") || has_scheme(text, "dpop");
        challenge.needs_more_scope |= text.contains("insufficient_scope");
        for (name, value) in parameters(text) {
            match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => challenge.resource_metadata = Some(value),
                "scope" => {
                    let scopes = value.split_whitespace().map(sanitize_excerpt).take(MAX_SCOPES);
                    challenge.scopes = scopes.collect();
                }
                _ => {}
            }
        }
    }
    challenge
}

/// Whether a scheme stands at the beginning of a challenge: at the beginning of the text, or after a comma. A quoted
/// string may contain anything.
fn has_scheme(text: &str, scheme: &str) -> bool {
    let mut unquoted = String::new();
    let mut rest = text;
    while let Some((before, quoted)) = rest.split_once('"') {
        unquoted.push_str(before);
        rest = read_quoted(quoted).1;
    }
    unquoted.push_str(rest);
    unquoted.split(',').any(|part| part.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case(scheme)))
}

/// Returns the parameters `name=value` and `name="value"` of a header with any number of challenges.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.rsplit([' ', ',', '\t']).next().unwrap_or_default().to_owned();
        let (value, remaining) = match after.strip_prefix('"') {
            Some(quoted) => read_quoted(quoted),
            None => {
                let end = after.find([',', ' ']).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        found.push((name, value));
        rest = remaining;
    }
    found
}

/// Reads a quoted string up to its closing quote; a backslash escapes the next character.
fn read_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn challenges_are_parsed_leniently() {
        let check = |headers: &[&str], is_oauth: bool, metadata: Option<&str>, scopes: &[&str]| {
            let mut map = HeaderMap::new();
            for text in headers {
                map.append(header::WWW_AUTHENTICATE, HeaderValue::from_str(text).unwrap());
            }
            let parsed = parse_challenges(&map);
            let found = (parsed.is_oauth, parsed.resource_metadata.as_deref(), parsed.scopes);
            assert_eq!(found, (is_oauth, metadata, scopes.iter().map(|scope| (*scope).to_owned()).collect()));
        };
        check(&[], false, None, &[]);
        check(&["Basic realm=\"a, Bearer b\""], false, None, &[]);
        check(&["bearer"], true, None, &[]);
        check(
            &["Bearer error=\"invalid_token\", resource_metadata=\"https://a.example/.well-known/x\", scope=\"a b\""],
            true,
            Some("https://a.example/.well-known/x"),
            &["a", "b"],
        );
        check(&["Basic realm=x, Bearer scope=read"], true, None, &["read"]);
        check(&["Basic", "DPoP resource_metadata=\"u\\\"v\""], true, Some("u\"v"), &[]);
    }
}
