//! Percent-encoding (RFC 3986). The sets name the characters that are encoded in each part of a URL; decoding differs
//! in the treatment of text that is malformed.
//!
//! ```text
//! encode                       a/b c&d  ->  a%2Fb%20c%26d
//! encode_with IN_QUERY         a/b c&d  ->  a/b%20c%26d
//! ```

use std::borrow::Cow;

pub use percent_encoding::AsciiSet;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_decode_str, utf8_percent_encode};

/// All characters that are not unreserved.
const VALUE: AsciiSet = keep(NON_ALPHANUMERIC, b"-._~");

/// All characters that are neither unreserved nor reserved.
const NEITHER: AsciiSet = keep(&VALUE, b":/?#[]@!$&'()*+,;=");

/// For literal text of a URL, where every delimiter is intended.
pub const LITERAL: &AsciiSet = &NEITHER.add(b'#');

/// For reserved characters in a segment of a path, which these would end.
pub const IN_PATH: &AsciiSet = &NEITHER.add(b'/').add(b'?').add(b'#');

/// For reserved characters in a query or form: also those that a query does not allow or that have a meaning in a form.
pub const IN_QUERY: &AsciiSet = &NEITHER.add(b'&').add(b'#').add(b'[').add(b']').add(b'+');

/// For reserved characters in a cookie: `;` would end it, and RFC 6265 does not allow commas.
pub const IN_COOKIE: &AsciiSet = &NEITHER.add(b';').add(b',');

/// Returns a set without some characters.
const fn keep(set: &AsciiSet, characters: &[u8]) -> AsciiSet {
    match characters {
        [first, rest @ ..] => keep(&set.remove(*first), rest),
        [] => set.union(AsciiSet::EMPTY),
    }
}

/// Encodes a text as one segment of a path or one value of a query. Keeps unreserved characters only.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, const { &VALUE }).to_string()
}

/// Encodes the characters of a set. Keeps escapes that the text already has, as in RFC 6570's reserved expansion.
pub fn encode_with(text: &str, set: &'static AsciiSet) -> String {
    let mut encoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('%') {
        encoded.extend(utf8_percent_encode(&rest[..position], set));
        let is_escape = begins_with_escape(&rest.as_bytes()[position..]);
        encoded.push_str(if is_escape { "%" } else { "%25" });
        rest = &rest[position + 1..];
    }
    encoded.extend(utf8_percent_encode(rest, set));
    encoded
}

/// Decodes a text. A `%` that begins no escape stays. `None` if the result is not valid UTF-8.
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// Decodes a text, with U+FFFD for what is not valid UTF-8.
pub fn decode_lossy(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// Decodes bytes, which need not be text.
pub fn decode_bytes(bytes: &[u8]) -> impl Iterator<Item = u8> {
    percent_decode(bytes)
}

/// Decodes a text in which every `%` must begin an escape.
pub fn decode_strict(text: &str) -> Option<Cow<'_, str>> {
    let is_malformed = text.match_indices('%').any(|(position, _)| !begins_with_escape(&text.as_bytes()[position..]));
    if is_malformed { None } else { decode(text) }
}

/// Returns whether bytes begin with an escape such as `%2F`.
fn begins_with_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_characters_depend_on_the_set() {
        let text = "aZ9-._~ :/?#[]@!$&'()*+,;=%%41é\\\"";
        assert_eq!(
            encode(text),
            "aZ9-._~%20%3A%2F%3F%23%5B%5D%40%21%24%26%27%28%29%2A%2B%2C%3B%3D%25%2541%C3%A9%5C%22"
        );
        for (set, expected) in [
            (LITERAL, "aZ9-._~%20:/?%23[]@!$&'()*+,;=%25%41%C3%A9%5C%22"),
            (IN_PATH, "aZ9-._~%20:%2F%3F%23[]@!$&'()*+,;=%25%41%C3%A9%5C%22"),
            (IN_QUERY, "aZ9-._~%20:/?%23%5B%5D@!$%26'()*%2B,;=%25%41%C3%A9%5C%22"),
            (IN_COOKIE, "aZ9-._~%20:/?#[]@!$&'()*+%2C%3B=%25%41%C3%A9%5C%22"),
        ] {
            assert_eq!(encode_with(text, set), expected);
        }
    }

    #[test]
    fn malformed_text_is_kept_replaced_or_refused() {
        for (text, lenient, lossy, strict) in [
            ("a%20b", Some("a b"), "a b", Some("a b")),
            ("100%", Some("100%"), "100%", None),
            ("%zz%4", Some("%zz%4"), "%zz%4", None),
            ("%ff", None, "\u{fffd}", None),
            ("%C3%A9", Some("é"), "é", Some("é")),
        ] {
            assert_eq!(decode(text).as_deref(), lenient);
            assert_eq!(decode_lossy(text), lossy);
            assert_eq!(decode_strict(text).as_deref(), strict);
        }
    }
}
