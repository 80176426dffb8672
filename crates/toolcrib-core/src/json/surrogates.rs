//! Halves of characters: a text that was cut between the two parts of an emoji and then written as JSON.

/// JSON with every half of a character replaced; nothing where there is none.
pub fn replace_lone_surrogates(text: &str) -> Option<String> {
    const REPLACEMENT: &str = "\\ufffd";
    let mut mended = String::with_capacity(text.len());
    let (mut rest, mut found) = (text, false);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let length = match surrogate_code(escape) {
            Some(0xd800..=0xdbff) if matches!(escape.get(6..).and_then(surrogate_code), Some(0xdc00..=0xdfff)) => 12,
            Some(_) => {
                mended.push_str(REPLACEMENT);
                found = true;
                rest = &escape[6..];
                continue;
            }
            None => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
        };
        mended.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    mended.push_str(rest);
    found.then_some(mended)
}

/// The half that an escape at the beginning of a text stands for.
fn surrogate_code(escape: &str) -> Option<u32> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xd800..=0xdfff).contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_nothing_else_is() {
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
