//! Making text from outside fit to be seen (no control characters, no terminal codes, nothing invisible that steers),
//! and guessing what a mistyped word meant.

mod hidden;

use hidden::{LineBreaks, is_suspicious, remove_hidden};

/// Text as an agent or a terminal may see it. Line breaks and tabs stay; ANSI sequences, other control characters,
/// bidirectional controls, tags, fillers and private-use characters go, as do variation selectors and zero-width
/// characters where no emoji and no script needs them. docs/security.md lists them.
pub fn sanitize(text: &str) -> String {
    if text.chars().any(is_suspicious) { remove_hidden(text, LineBreaks::Normalised) } else { text.to_owned() }
}

/// Whether a text may be shown as it is.
pub fn is_sanitized(text: &str) -> bool {
    !text.chars().any(is_suspicious) || remove_hidden(text, LineBreaks::Normalised) == text
}

/// A text of a result with the same characters removed, or nothing where it has none of them. `\r\n` stays, for a text
/// may be looked up in a file again.
pub fn sanitize_result(text: &str) -> Option<String> {
    if !text.chars().any(is_suspicious) {
        return None;
    }
    Some(remove_hidden(text, LineBreaks::Preserved)).filter(|clean| clean != text)
}

/// Whether a text holds no character that an agent would not see. Line breaks of any kind may stand in it.
pub fn has_no_hidden_characters(text: &str) -> bool {
    let without_returns = text.replace('\r', "");
    is_sanitized(&without_returns)
}

/// Whether the text of a JSON value may hold a character that [`shown`] removes, written as it is or as an escape. Reads
/// the bytes once and parses nothing; `true` is a reason to look closer.
pub fn may_contain_hidden(json: &str) -> bool {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(offset) = next_candidate(&bytes[at..]) {
        at += offset;
        if bytes[at] == b'\\' {
            match classify_escape(&bytes[at..]) {
                JsonEscape::Suspicious => return true,
                JsonEscape::Harmless { length } => at = bytes.len().min(at + length),
            }
            continue;
        }
        let length = match bytes[at] {
            0..0xc0 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let second = bytes.get(at + 1).copied().unwrap_or_default();
        if can_begin_hidden(bytes[at], second) && json[at..].chars().next().is_some_and(is_suspicious) {
            return true;
        }
        at += length;
    }
    false
}

/// The first byte that is a backslash, DEL or part of a character outside of ASCII. Eight bytes at a time, for most of a
/// text is neither.
fn next_candidate(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        // What is zero after this was a backslash; a borrow or a carry can only mark bytes behind one that counts.
        let differences = word ^ BACKSLASHES;
        let backslashes = differences.wrapping_sub(ONES) & !differences;
        let from_delete_on = word | word.wrapping_add(ONES);
        let found = (backslashes | from_delete_on) & HIGH_BITS;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|&byte| byte >= 0x7f || byte == b'\\');
    rest.map(|offset| at + offset)
}

/// Whether a character that begins with these bytes may be suspicious; most letters are told apart here.
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

enum JsonEscape {
    Harmless { length: usize },
    Suspicious,
}

/// Judges the escape at the beginning of `bytes`. Any half of a character that is not one of the usual planes is
/// suspicious, as is one without the other half.
fn classify_escape(bytes: &[u8]) -> JsonEscape {
    let unit = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match bytes {
        [_, b'b' | b'f', ..] => JsonEscape::Suspicious,
        [_, b'r', b'\\', b'n', ..] => JsonEscape::Harmless { length: 4 },
        [_, b'r', ..] => JsonEscape::Suspicious,
        [_, b'u', ..] => match unit(bytes) {
            Some(high @ 0xd800..=0xdbff) => match bytes.get(6..).and_then(unit) {
                Some(low @ 0xdc00..=0xdfff) => {
                    let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    classify_character(char::from_u32(code), 12)
                }
                Some(_) | None => JsonEscape::Suspicious,
            },
            Some(code) => classify_character(char::from_u32(code), 6),
            None => JsonEscape::Suspicious,
        },
        _ => JsonEscape::Harmless { length: 2 },
    }
}

fn classify_character(character: Option<char>, length: usize) -> JsonEscape {
    match character {
        Some(character) if !is_suspicious(character) => JsonEscape::Harmless { length },
        Some(_) | None => JsonEscape::Suspicious,
    }
}

/// One line, at most `limit` characters, fit for a message.
pub fn sanitize_truncated(text: &str, limit: usize) -> String {
    let line: String = sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= limit {
        return line;
    }
    let mut short: String = line.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Longest word that is compared with candidates, in bytes.
const MAX_WORD_LEN: usize = 64;

/// The candidate that somebody who wrote `word` most likely meant.
pub fn closest_match<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A long word is far from everything here, and measuring it costs the product of both lengths.
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

/// `; did you mean …?`, or nothing when no candidate is near.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest_match(word, candidates).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_or_hides_is_removed() {
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
            // Fillers and other characters without a shape.
            ("a\u{3164}b\u{115f}c\u{1160}d\u{ffa0}e\u{2800}f\u{34f}g\u{ad}h\u{feff}i", "abcdefghi"),
            ("a\u{17b4}b\u{180e}c\u{2061}d\u{1d173}e\u{1bca0}f\u{fffb}g", "abcdefg"),
            ("a\u{e000}b\u{f0000}c\u{10fffd}d", "abcd"),
            // Bytes encoded as variation selectors behind an emoji, or behind nothing.
            ("😀\u{fe0f}\u{fe01}\u{fe02}\u{e0100}\u{e01ef}!", "😀\u{fe0f}!"),
            ("a\u{fe0f}b\u{fe0e}c\u{e0123}", "abc"),
            // Bits encoded as joiners.
            ("a\u{200c}\u{200d}\u{200c}b", "ab"),
            ("می\u{200c}\u{200d}\u{200c}خواهم", "می\u{200c}خواهم"),
            ("😀\u{200d}\u{200d}\u{200d}😀", "😀\u{200d}😀"),
            ("😀\u{200d} x", "😀 x"),
            // Tags behind a flag that spell none of the three that there are.
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
    fn what_a_script_or_an_emoji_needs_stays() {
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
    fn a_result_keeps_its_line_breaks() {
        assert_eq!(sanitize_result("one\r\ntwo"), None);
        assert_eq!(sanitize_result("one\r\ntwo\u{200b}\rthree").unwrap(), "one\r\ntwo\nthree");
        assert!(
            has_no_hidden_characters("\r\n") && has_no_hidden_characters("\r") && !has_no_hidden_characters("\u{b}")
        );
    }

    #[test]
    fn plain_json_is_not_looked_at_closer() {
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
    fn every_character_is_judged_alike_in_json() {
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
    fn a_long_text_is_cut_with_a_mark() {
        assert_eq!(sanitize_truncated("a\nb  c", 10), "a b c");
        assert_eq!(sanitize_truncated("abcdef", 4), "abc…");
    }

    #[test]
    fn only_a_near_word_is_suggested() {
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
