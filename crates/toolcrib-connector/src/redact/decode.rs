//! Text with percent-encoding and backslash escapes removed, and the original position of each byte. A secret may be
//! escaped partly and in several ways; searching the decoded text finds all of them.

use std::ops::Range;

/// Decoded bytes of a text and where they came from.
pub(super) struct DecodedText {
    /// Empty if the text has nothing to decode.
    pub(super) bytes: Vec<u8>,
    /// Range of the original text for each byte. 32-bit offsets, because this takes eight times the size of the text.
    origins: Vec<Range<u32>>,
}

impl DecodedText {
    /// Starts with the text itself; [`DecodedText::decode`] removes one level of escapes at a time.
    pub(super) fn new(text: &str) -> DecodedText {
        // Longer texts count as empty; messages and documents are bounded far below 4 GiB.
        let len = u32::try_from(text.len()).unwrap_or_default();
        // Most texts have nothing to decode: avoid the allocation.
        if len == 0 || !text.contains(['%', '\\']) {
            return DecodedText { bytes: Vec::new(), origins: Vec::new() };
        }
        DecodedText { bytes: text.as_bytes().to_vec(), origins: (0..len).map(|at| at..at + 1).collect() }
    }

    /// Removes one level of escapes. Returns false if there is none.
    pub(super) fn decode(&mut self) -> bool {
        if !self.bytes.iter().any(|byte| matches!(byte, b'%' | b'\\')) {
            return false;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut origins = Vec::with_capacity(self.bytes.len());
        let mut at = 0;
        while at < self.bytes.len() {
            // All bytes of a decoded character have the whole escape as origin, so that none of it remains.
            let (decoded, length) = unescape(&self.bytes[at..]);
            let origin = self.origins[at].start..self.origins[at + length - 1].end;
            origins.resize(origins.len() + decoded.len(), origin);
            bytes.extend_from_slice(decoded.as_bytes());
            at += length;
        }
        self.bytes = bytes;
        self.origins = origins;
        true
    }

    /// Range of the original text for a range of the decoded bytes.
    pub(super) fn original_range(&self, range: Range<usize>) -> Range<usize> {
        self.origins[range.start].start as usize..self.origins[range.end - 1].end as usize
    }
}

/// Bytes of one decoded escape: at most one character.
struct DecodedChar {
    bytes: [u8; 4],
    /// Used bytes: 1 for a byte, up to 4 for a character in UTF-8.
    len: usize,
}

impl DecodedChar {
    fn from_byte(byte: u8) -> DecodedChar {
        DecodedChar { bytes: [byte, 0, 0, 0], len: 1 }
    }

    fn from_char(character: char) -> DecodedChar {
        let mut bytes = [0; 4];
        let len = character.encode_utf8(&mut bytes).len();
        DecodedChar { bytes, len }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes the beginning of a text. Returns the decoded bytes and the length of what they replace.
fn unescape(text: &[u8]) -> (DecodedChar, usize) {
    let byte_at = |from: usize| text.get(from..from + 2).and_then(parse_hex).and_then(|value| u8::try_from(value).ok());
    let unit_at = |from: usize| text.get(from..from + 4).and_then(parse_hex);
    match text {
        [b'%', ..] => match byte_at(1) {
            Some(byte) => (DecodedChar::from_byte(byte), 3),
            // A percent sign that begins no escape stands for itself, as in `100%`.
            None => (DecodedChar::from_byte(b'%'), 1),
        },
        [b'\\', b'x', ..] if byte_at(2).is_some() => (DecodedChar::from_byte(byte_at(2).unwrap_or_default()), 4),
        [b'\\', b'u', ..] if unit_at(2).is_some() => {
            let first = unit_at(2).unwrap_or_default();
            // Characters beyond the basic multilingual plane are escaped as surrogate pairs.
            let second = text.get(6..8).filter(|escape| *escape == b"\\u").and_then(|_| unit_at(8));
            if let (0xD800..0xDC00, Some(second @ 0xDC00..0xE000)) = (first, second) {
                let scalar = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return (DecodedChar::from_char(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER)), 12);
            }
            (DecodedChar::from_char(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)), 6)
        }
        [b'\\', escaped, ..] if escaped.is_ascii() => {
            let byte = match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                // Quotes and backslashes of JSON, and any other character that a shell escapes.
                other => *other,
            };
            (DecodedChar::from_byte(byte), 2)
        }
        [byte, ..] => (DecodedChar::from_byte(*byte), 1),
        [] => (DecodedChar { bytes: [0; 4], len: 0 }, 1),
    }
}

/// Parses hexadecimal digits.
fn parse_hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}
