//! Sanitises untrusted text (control characters, terminal sequences, invisible characters), and suggests corrections
//! for misspelled words.
//!
//! Texts of sources and clients pass through here before they reach an agent, a terminal or a log; only `results: raw` on
//! a source passes its results on unchanged.
//! Descriptions with invisible text can instruct an agent without a person seeing it, and terminal sequences can
//! rewrite what a person sees. The meaning of visible text is not judged.
//!
//! ```text
//! sanitize             descriptions: line breaks normalised
//! sanitize_result      results of tools: `\r\n` kept
//! sanitize_truncated   names and quotes in messages: one line, bounded
//! may_contain_hidden   a scan of JSON bytes that saves parsing in the usual case
//! ```
//!
//! `hidden` has the tables of characters; `mentions` removes sentences that name withheld tools.

mod hidden;
mod mentions;

pub use mentions::WithheldNames;

use hidden::{LineBreaks, is_suspicious, remove_hidden};

/// Sanitises a text for agents and terminals. Keeps line breaks and tabs. Removes ANSI sequences, other control
/// characters, bidirectional controls, tags, fillers and private-use characters, and also variation selectors and
/// zero-width characters where no emoji or script needs them. docs/security.md has the list.
pub fn sanitize(text: &str) -> String {
    if text.chars().any(is_suspicious) { remove_hidden(text, LineBreaks::Normalised) } else { text.to_owned() }
}

/// Whether [`sanitize`] would not change the text.
/// Allocates only if the text has a suspicious character.
pub fn is_sanitized(text: &str) -> bool {
    !text.chars().any(is_suspicious) || remove_hidden(text, LineBreaks::Normalised) == text
}

/// Sanitises the text of a tool result, or returns `None` if nothing is to be removed. Keeps `\r\n`, because the text
/// may be compared with a file later.
pub fn sanitize_result(text: &str) -> Option<String> {
    if !text.chars().any(is_suspicious) {
        return None;
    }
    Some(remove_hidden(text, LineBreaks::Preserved)).filter(|clean| clean != text)
}

/// Whether a text has no invisible characters. Any kind of line break is allowed.
pub fn has_no_hidden_characters(text: &str) -> bool {
    let without_returns = text.replace('\r', "");
    is_sanitized(&without_returns)
}

/// Whether JSON text may contain a character that [`sanitize`] removes, literally or as an escape. Scans the bytes once
/// without parsing; `true` may be a false alarm and calls for an exact check.
pub fn may_contain_hidden(json: &str) -> bool {
    // Quotes and brackets need no attention: a hidden character can only be inside of a string, and where the string
    // starts does not matter.
    let bytes = json.as_bytes();
    let mut position = 0;
    while let Some(offset) = next_candidate(&bytes[position..]) {
        position += offset;
        if bytes[position] == b'\\' {
            let Some(length) = harmless_escape_len(&bytes[position..]) else { return true };
            position = bytes.len().min(position + length);
            continue;
        }
        // The position is that of a leading byte, because sequences are skipped as a whole.
        // Length of the UTF-8 sequence.
        let length = match bytes[position] {
            0..0xc0 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let second = bytes.get(position + 1).copied().unwrap_or_default();
        if can_begin_hidden(bytes[position], second) && json[position..].chars().next().is_some_and(is_suspicious) {
            return true;
        }
        position += length;
    }
    false
}

/// Position of the first backslash, DEL or non-ASCII byte. Reads eight bytes at a time, as most text has none of them.
fn next_candidate(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    let mut position = 0;
    while let Some(word) = bytes[position..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        // The high bit of a byte is set where it matches. Borrow and carry can set false bits only after a true match.
        let differences = word ^ BACKSLASHES;
        let backslashes = differences.wrapping_sub(ONES) & !differences;
        let from_delete_on = word | word.wrapping_add(ONES);
        let found = (backslashes | from_delete_on) & HIGH_BITS;
        if found != 0 {
            return Some(position + found.trailing_zeros() as usize / 8);
        }
        position += 8;
    }
    let rest = bytes[position..].iter().position(|&byte| byte >= 0x7f || byte == b'\\');
    rest.map(|offset| position + offset)
}

/// Whether a character starting with these UTF-8 bytes can be suspicious. Cheap test that rules out most letters. Must
/// allow every non-ASCII character of [`is_suspicious`]; it may allow more.
fn can_begin_hidden(first: u8, second: u8) -> bool {
    match first {
        0x7f | 0xc2 | 0xee | 0xf3 | 0xf4 => true,
        0xcd => second == 0x8f,
        0xd8 => second == 0x9c,
        0xe1 => matches!(second, 0x85 | 0x9e | 0xa0),
        0xe2 => matches!(second, 0x80 | 0x81 | 0xa0),
        0xe3 => second == 0x85,
        0xef => matches!(second, 0x80..=0xa3 | 0xb8 | 0xbb | 0xbe | 0xbf),
        0xf0 => matches!(second, 0x9b | 0x9d),
        _ => false,
    }
}

/// Returns the length of the escape at the start of `bytes`, or `None` if it may stand for a hidden character. Lone
/// surrogates and malformed escapes may.
fn harmless_escape_len(bytes: &[u8]) -> Option<usize> {
    let unit = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (code, length) = match bytes {
        // Backspace and form feed are control characters. `\r\n` is an ordinary line break, `\r` alone can overwrite a
        // line on a terminal.
        [_, b'b' | b'f', ..] => return None,
        [_, b'r', b'\\', b'n', ..] => return Some(4),
        [_, b'r', ..] => return None,
        [_, b'u', ..] => match unit(bytes)? {
            high @ 0xd800..=0xdbff => {
                let low = bytes.get(6..).and_then(unit).filter(|low| (0xdc00..=0xdfff).contains(low))?;
                (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12)
            }
            code => (code, 6),
        },
        _ => return Some(2),
    };
    char::from_u32(code).filter(|character| !is_suspicious(*character)).map(|_| length)
}

/// Sanitises a text for a message: one line of at most `limit` characters.
/// Runs of white space become one space. A longer text ends in `…`, which is counted in the limit.
pub fn sanitize_truncated(text: &str, limit: usize) -> String {
    let line: String = sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= limit {
        return line;
    }
    let mut short: String = line.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Maximum length in bytes of a word that [`closest_match`] compares.
/// Far above every key, command and id; names of tools have a comparison of their own.
const MAX_WORD_LEN: usize = 64;

/// Returns the candidate with the smallest edit distance to `word`, if it is close enough to be a misspelling.
/// Close enough means at most one edit, or one in three characters of the longer word. Case does not matter.
pub fn closest_match<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // The cost is the product of both lengths, and no candidate is close to a very long word.
    if word.len() > MAX_WORD_LEN {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 4 * MAX_WORD_LEN)
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len().max(word.len()) / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …?` to append to an error message, or an empty text without a close candidate.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest_match(word, candidates).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_and_invisible_characters_are_removed() {
        for (raw, clean) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{9b}31mred", "red"),
            ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{1b}\\!", "link!"),
            ("\u{1b}]0;never ended\nnext line", "\nnext line"),
            ("a\u{202e}b\u{2066}c\u{200b}d", "abcd"),
            ("x\u{e0041}\u{e0042}y", "xy"),
            ("bell\u{7} null\u{0} back\u{8} delete\u{7f}", "bell null back delete"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("\u{1b}", ""),
            // Fillers and other invisible characters.
            ("a\u{3164}b\u{115f}c\u{1160}d\u{ffa0}e\u{2800}f\u{34f}g\u{ad}h\u{feff}i", "abcdefghi"),
            ("a\u{17b4}b\u{180e}c\u{2061}d\u{1d173}e\u{1bca0}f\u{fffb}g", "abcdefg"),
            ("a\u{e000}b\u{f0000}c\u{10fffd}d", "abcd"),
            // Data encoded as variation selectors after an emoji or a letter.
            ("😀\u{fe0f}\u{fe01}\u{fe02}\u{e0100}\u{e01ef}!", "😀\u{fe0f}!"),
            ("a\u{fe0f}b\u{fe0e}c\u{e0123}", "abc"),
            // Data encoded as joiners.
            ("a\u{200c}\u{200d}\u{200c}b", "ab"),
            ("می\u{200c}\u{200d}\u{200c}خواهم", "می\u{200c}خواهم"),
            ("😀\u{200d}\u{200d}\u{200d}😀", "😀\u{200d}😀"),
            ("😀\u{200d} x", "😀 x"),
            // Tags after a flag that form none of the three valid sequences.
            ("🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}", "🏴"),
            ("🏴\u{e0072}\u{e0075}\u{e006e}\u{e0020}\u{e0078}\u{e007f}", "🏴"),
            ("\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}", ""),
        ] {
            assert_eq!(sanitize(raw), clean, "{raw:?}");
            assert_eq!(sanitize(clean), clean, "{raw:?}");
            assert!(!is_sanitized(raw) && is_sanitized(clean), "{raw:?}");
            let json = |text: &str| serde_json::to_string(text).unwrap();
            assert!(may_contain_hidden(&json(raw)), "{raw:?}");
            assert!(may_contain_hidden(&escape_all(raw)), "{raw:?}");
        }
    }

    #[test]
    fn characters_that_scripts_and_emoji_need_stay() {
        for text in [
            "plain, with\nlines\tand ünïcödé 日本語 한국어 中文 – “quotes” … € ∑",
            "👩\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 👩🏽\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 🧔\u{200d}♂\u{fe0f}",
            "⚠\u{fe0f} 🛡\u{fe0f} ✔\u{fe0e} ©\u{fe0f} 1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3} ⏱\u{fe0f} ▶\u{fe0f} ⬅\u{fe0f} 🇩🇪",
            "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}!",
            "می\u{200c}خواهم",
            "العربية مع الحركات: مُحَمَّد ه\u{200d}",
            "हिन्दी क्\u{200d}ष क्\u{200c}ष",
            "ශ්\u{200d}රී ලංකා",
            "ᠮᠣᠩᠭᠣᠯ ᠠ\u{180b}",
            "ไทย עברית ελληνικά",
        ] {
            assert_eq!(sanitize(text), text);
            assert!(is_sanitized(text) && sanitize_result(text).is_none());
        }
    }

    #[test]
    fn sanitizing_a_result_preserves_line_breaks() {
        assert_eq!(sanitize_result("one\r\ntwo"), None);
        assert_eq!(sanitize_result("one\r\ntwo\u{200b}\rthree").unwrap(), "one\r\ntwo\nthree");
        assert!(
            has_no_hidden_characters("\r\n") && has_no_hidden_characters("\r") && !has_no_hidden_characters("\u{b}")
        );
    }

    #[test]
    fn only_json_with_suspicious_characters_needs_a_check() {
        let long = format!("\"{} – “日本語” 🎉 \\n \\\" \\\\u202e \\r\\n \\u00e9 \\ud83c\\udf89\"", "x".repeat(100));
        for json in ["", "\"\"", "{\"a\": [1, \"b\\tc\"]}", &long] {
            assert!(!may_contain_hidden(json), "{json}");
        }
        for json in
            [r#""\u202E""#, r#""\ud800""#, r#""\udc00x""#, r#""\ud800\n""#, r#""\b""#, r#""\r""#, "\"\u{7f}\"", r"\u12"]
        {
            assert!(may_contain_hidden(json), "{json}");
        }
    }

    #[test]
    fn json_is_judged_like_plain_text_for_every_character() {
        for character in '\u{20}'..=char::MAX {
            if matches!(character, '"' | '\\') {
                continue;
            }
            for json in [format!("\"123456{character}89\""), escape_all(&character.to_string())] {
                assert_eq!(may_contain_hidden(&json), is_suspicious(character), "{json} {:x}", u32::from(character));
            }
        }
        for control in '\0'..'\u{20}' {
            let expected = !matches!(control, '\n' | '\t');
            assert_eq!(may_contain_hidden(&escape_all(&control.to_string())), expected, "{control:?}");
        }
    }

    /// JSON in which every character is an escape.
    fn escape_all(text: &str) -> String {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    }

    #[test]
    fn a_long_text_is_truncated_with_an_ellipsis() {
        assert_eq!(sanitize_truncated("a\nb  c", 10), "a b c");
        assert_eq!(sanitize_truncated("abcdef", 4), "abc…");
    }

    #[test]
    fn only_close_words_are_suggested() {
        for (word, expected) in [
            ("comand", Some("command")),
            ("URL", Some("url")),
            ("agrs", Some("args")),
            ("conect_timeout", Some("connect_timeout")),
            ("banana", None),
        ] {
            assert_eq!(closest_match(word, ["command", "url", "args", "connect_timeout"]), expected, "{word}");
        }
    }
}
