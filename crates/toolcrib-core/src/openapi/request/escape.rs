//! Percent-encoding: what of a text stays as it is, by the rules of the place where it goes.

/// How values are written. Names are written as the strict one has it wherever anything is encoded at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeMode {
    /// Only unreserved characters of RFC 3986 stay.
    Unreserved,
    /// Reserved characters and percent-encoded triples stay too, as in RFC 6570's reserved expansion, but for these.
    Reserved { except: &'static str },
    /// Everything stays.
    Unescaped,
}

/// What the document itself has in a path or a query, where every delimiter is meant.
pub(super) const LITERAL: EscapeMode = EscapeMode::Reserved { except: "#" };

/// `allowReserved` in a path, where the specification forbids these.
pub(super) const RESERVED_IN_PATH: EscapeMode = EscapeMode::Reserved { except: "/?#" };

/// `allowReserved` in a query or a form. The specification (3.1.1, Parameter Object) has what a query does not allow (`[`,
/// `]`, `#`) and what means something in a form (`&`, `+`) encoded all the same.
pub(super) const RESERVED_IN_QUERY: EscapeMode = EscapeMode::Reserved { except: "&#[]+" };

/// `allowReserved` in a cookie: `;` would end it, and RFC 6265 has no comma in one.
pub(super) const RESERVED_IN_COOKIE: EscapeMode = EscapeMode::Reserved { except: ";," };

impl EscapeMode {
    pub(super) fn encode_value(self, text: &str) -> String {
        self.encode_item(text, "")
    }

    /// A value that stands beside others, and what is between them. It never has that itself, even where reserved
    /// characters stay: the specification leaves the outcome open there, and so what was given can be read back.
    pub(super) fn encode_item(self, text: &str, delimiters: &str) -> String {
        match self {
            EscapeMode::Unescaped => text.to_owned(),
            EscapeMode::Unreserved => encode(text, |_| false, false),
            EscapeMode::Reserved { except: but } => {
                let stays = |character| !but.contains(character) && !delimiters.contains(character);
                encode(text, |character| is_reserved(character) && stays(character), true)
            }
        }
    }

    pub(super) fn encode_name(self, text: &str) -> String {
        match self {
            EscapeMode::Unescaped => text.to_owned(),
            EscapeMode::Unreserved | EscapeMode::Reserved { .. } => EscapeMode::Unreserved.encode_value(text),
        }
    }
}

/// A value as one part of a path or a query has it.
pub fn percent_encode(text: &str) -> String {
    EscapeMode::Unreserved.encode_value(text)
}

fn encode(text: &str, stays: impl Fn(char) -> bool, keep_triples: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for (index, character) in text.char_indices() {
        let is_triple = character == '%' && keep_triples && begins_with_triple(&text.as_bytes()[index..]);
        if is_unreserved(character) || stays(character) || is_triple {
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

fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~')
}

fn is_reserved(character: char) -> bool {
    ":/?#[]@!$&'()*+,;=".contains(character)
}

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
    fn what_stays_depends_on_the_place() {
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
