//! Encoding of names and values in each part of a request. The characters of each part are `toolcrib_core::percent`.

use toolcrib_core::percent::{self, AsciiSet};

/// Encoding of values. Names are encoded strictly wherever anything is encoded at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeMode {
    /// Keeps only the unreserved characters of RFC 3986.
    Unreserved,
    /// Also keeps existing escapes, and reserved characters that are not in this set.
    Reserved(&'static AsciiSet),
    /// Encodes nothing.
    Unescaped,
}

/// For literal text of the document.
pub(super) const LITERAL: EscapeMode = EscapeMode::Reserved(percent::LITERAL);

/// For `allowReserved` in a path, where the specification forbids `/`, `?` and `#`.
pub(super) const RESERVED_IN_PATH: EscapeMode = EscapeMode::Reserved(percent::IN_PATH);

/// For `allowReserved` in a query or form. The specification (3.1.1, Parameter Object) still encodes characters that a
/// query does not allow or that have a meaning in a form.
pub(super) const RESERVED_IN_QUERY: EscapeMode = EscapeMode::Reserved(percent::IN_QUERY);

/// For `allowReserved` in a cookie.
pub(super) const RESERVED_IN_COOKIE: EscapeMode = EscapeMode::Reserved(percent::IN_COOKIE);

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
            EscapeMode::Unreserved => percent::encode(text),
            EscapeMode::Reserved(set) => {
                let encoded = percent::encode_with(text, set);
                // A delimiter that was kept stands for itself, so that it can be encoded afterwards.
                delimiters.chars().fold(encoded, |encoded, delimiter| {
                    encoded.replace(delimiter, &percent::encode(delimiter.encode_utf8(&mut [0; 4])))
                })
            }
        }
    }

    /// Encodes a name.
    pub(super) fn encode_name(self, text: &str) -> String {
        match self {
            EscapeMode::Unescaped => text.to_owned(),
            EscapeMode::Unreserved | EscapeMode::Reserved(_) => EscapeMode::Unreserved.encode_value(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_characters_depend_on_the_location() {
        let text = "a /&,%41";
        assert_eq!(EscapeMode::Unescaped.encode_value(text), text);
        assert_eq!(EscapeMode::Unreserved.encode_value(text), "a%20%2F%26%2C%2541");
        assert_eq!(RESERVED_IN_PATH.encode_value(text), "a%20%2F&,%41");
        assert_eq!(RESERVED_IN_QUERY.encode_value(text), "a%20/%26,%41");
        assert_eq!(RESERVED_IN_COOKIE.encode_value(text), "a%20/&%2C%41");
        assert_eq!(RESERVED_IN_QUERY.encode_item("a,b:c", ","), "a%2Cb:c");
        assert_eq!(RESERVED_IN_QUERY.encode_name("a:b"), "a%3Ab");
        assert_eq!(EscapeMode::Unescaped.encode_name("a:b"), "a:b");
    }
}
