//! Percent-encoding: which characters stay unencoded in each part of a URL.
//!
//! ```text
//! Unreserved            a/b c&d  ->  a%2Fb%20c%26d
//! RESERVED_IN_QUERY     a/b c&d  ->  a/b%20c%26d
//! Unescaped             a/b c&d  ->  a/b c&d
//! ```

/// Encoding of values. Names are encoded strictly wherever anything is encoded at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeMode {
    /// Keeps only the unreserved characters of RFC 3986.
    Unreserved,
    /// Also keeps reserved characters and percent-encoded triples, as in RFC 6570's reserved expansion, except these.
    Reserved { except: &'static str },
    /// Encodes nothing.
    Unescaped,
}

/// For literal text of the document, where every delimiter is intended.
pub(super) const LITERAL: EscapeMode = EscapeMode::Reserved { except: "#" };

/// For `allowReserved` in a path, where the specification forbids these characters.
pub(super) const RESERVED_IN_PATH: EscapeMode = EscapeMode::Reserved { except: "/?#" };

/// For `allowReserved` in a query or form. The specification (3.1.1, Parameter Object) still encodes characters that a
/// query does not allow (`[`, `]`, `#`) or that have a meaning in a form (`&`, `+`).
pub(super) const RESERVED_IN_QUERY: EscapeMode = EscapeMode::Reserved { except: "&#[]+" };

/// For `allowReserved` in a cookie: `;` would end it, and RFC 6265 does not allow commas.
pub(super) const RESERVED_IN_COOKIE: EscapeMode = EscapeMode::Reserved { except: ";," };

impl EscapeMode {
    /// Encodes a value that is not an item of a list.
    pub(super) fn encode_value(self, text: &str) -> String {
        self.encode_item(text, "")
    }

    /// Encodes a value of a list. Encodes `delimiters` within it even where reserved characters are kept: the
    /// specification leaves that case open, and the list can be split again this way. `Unescaped`, as in headers,
    /// encodes nothing.
    pub(super) fn encode_item(self, text: &str, delimiters: &str) -> String {
        match self {
            EscapeMode::Unescaped => text.to_owned(),
            EscapeMode::Unreserved => encode(text, |_| false, false),
            EscapeMode::Reserved { except: but } => {
                let is_kept = |character| !but.contains(character) && !delimiters.contains(character);
                encode(text, |character| is_reserved(character) && is_kept(character), true)
            }
        }
    }

    /// Encodes a name.
    pub(super) fn encode_name(self, text: &str) -> String {
        match self {
            EscapeMode::Unescaped => text.to_owned(),
            EscapeMode::Unreserved | EscapeMode::Reserved { .. } => EscapeMode::Unreserved.encode_value(text),
        }
    }
}

/// Encodes a text as one segment of a path or one value of a query.
pub fn percent_encode(text: &str) -> String {
    EscapeMode::Unreserved.encode_value(text)
}

/// Percent-encodes all bytes of characters that are neither unreserved nor kept. `keep_triples` keeps existing escapes.
/// Hexadecimal digits are in upper case, as RFC 3986 recommends.
fn encode(text: &str, is_kept: impl Fn(char) -> bool, keep_triples: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for (index, character) in text.char_indices() {
        let is_triple = character == '%' && keep_triples && begins_with_triple(&text.as_bytes()[index..]);
        if is_unreserved(character) || is_kept(character) || is_triple {
            encoded.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            encoded.push('%');
            encoded.push(hex_digit(byte >> 4));
            encoded.push(hex_digit(byte & 0xF));
        }
    }
    encoded
}

/// Returns whether a character is unreserved in RFC 3986.
fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~')
}

/// Returns whether a character is reserved in RFC 3986.
fn is_reserved(character: char) -> bool {
    ":/?#[]@!$&'()*+,;=".contains(character)
}

/// Returns whether bytes begin with a percent-encoded byte such as `%2F`.
fn begins_with_triple(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_characters_depend_on_the_location() {
        let text = "aZ9-._~ :/?#[]@!$&'()*+,;=%%41é\\\"";
        let cases = [
            (EscapeMode::Unescaped, text),
            (
                EscapeMode::Unreserved,
                "aZ9-._~%20%3A%2F%3F%23%5B%5D%40%21%24%26%27%28%29%2A%2B%2C%3B%3D%25%2541%C3%A9%5C%22",
            ),
            (RESERVED_IN_PATH, "aZ9-._~%20:%2F%3F%23[]@!$&'()*+,;=%25%41%C3%A9%5C%22"),
            (RESERVED_IN_QUERY, "aZ9-._~%20:/?%23%5B%5D@!$%26'()*%2B,;=%25%41%C3%A9%5C%22"),
            (RESERVED_IN_COOKIE, "aZ9-._~%20:/?#[]@!$&'()*+%2C%3B=%25%41%C3%A9%5C%22"),
        ];
        for (escape, expected) in cases {
            assert_eq!(escape.encode_value(text), expected);
        }
        assert_eq!(RESERVED_IN_QUERY.encode_item("a,b:c", ","), "a%2Cb:c");
        assert_eq!(RESERVED_IN_QUERY.encode_name("a:b"), "a%3Ab");
        assert_eq!(EscapeMode::Unescaped.encode_name("a:b"), "a:b");
    }
}
