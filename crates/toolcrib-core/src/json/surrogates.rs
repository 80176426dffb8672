//! Lone surrogates in JSON text. Programs that cut UTF-16 text inside an emoji write half of it as `\ud83e`, which
//! strict parsers reject.
//!
//! ```text
//! "a \ud83e b"       becomes    "a \ufffd b"
//! "a \ud83e\udd80"   stays: a pair is one character
//! "a \\ud83e"        stays: an escaped backslash, not an escape
//! ```

/// Replaces lone surrogates by U+FFFD. Returns `None` if there are none.
/// Works on the text and needs no valid JSON. Linear in its length.
pub fn replace_lone_surrogates(text: &str) -> Option<String> {
    const REPLACEMENT: &str = "\\ufffd";
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some(position) = rest.find('\\') {
        let (before, escape) = rest.split_at(position);
        repaired.push_str(before);
        // A pair is one character and stays; other escapes are copied with the character after the backslash.
        let length = match surrogate_code(escape) {
            Some(0xd800..=0xdbff) if matches!(escape.get(6..).and_then(surrogate_code), Some(0xdc00..=0xdfff)) => 12,
            Some(_) => {
                repaired.push_str(REPLACEMENT);
                is_changed = true;
                rest = &escape[6..];
                continue;
            }
            None => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
        };
        repaired.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    repaired.push_str(rest);
    is_changed.then_some(repaired)
}

/// Code of the surrogate escape at the start of a text, if there is one.
fn surrogate_code(escape: &str) -> Option<u32> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xd800..=0xdfff).contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r#"{"a":"\ud83e\udd80 b"}"#, None),
            (r#"{"a":"\\ud83e"}"#, None),
            (r#"{"a":"\n\u00e9ü"}"#, None),
            (r#"{"a":"\ud83e cut"}"#, Some(r#"{"a":"\ufffd cut"}"#)),
            (r#"{"a":"\udd80\ud83e\ud83e\udd80"}"#, Some(r#"{"a":"\ufffd\ufffd\ud83e\udd80"}"#)),
            (r#"{"a":"\ud83e\n\\\ud83e"}"#, Some(r#"{"a":"\ufffd\n\\\ufffd"}"#)),
            (r#""\ud83eü"#, Some(r#""\ufffdü"#)),
            (r"\ud8", None),
            (r"\", None),
        ] {
            assert_eq!(replace_lone_surrogates(text).as_deref(), expected, "{text}");
        }
    }
}
