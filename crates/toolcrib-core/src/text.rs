//! Making text from outside fit to be seen (no control characters, no terminal codes, nothing invisible that steers),
//! and guessing what a mistyped word meant.

/// Text as an agent or a terminal may see it. Line breaks and tabs stay; ANSI sequences, other control characters,
/// bidirectional marks, zero-width characters and Unicode tags go.
pub fn shown(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\u{9b}' => skip_control_sequence(&mut characters),
            '\n' | '\t' => clean.push(character),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            _ if character.is_control() || is_invisible(character) => {}
            _ => clean.push(character),
        }
    }
    clean
}

/// Whether a text may be shown as it is.
pub fn is_plain(text: &str) -> bool {
    text.chars().all(|character| match character {
        '\n' | '\t' => true,
        _ => !character.is_control() && !is_invisible(character),
    })
}

/// One line, at most `limit` characters, fit for a message.
pub fn shown_short(text: &str, limit: usize) -> String {
    let line: String = shown(text).split_whitespace().collect::<Vec<_>>().join(" ");
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
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    nearest(word, candidates).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// After ESC: a control sequence, a string (OSC and its kin, up to BEL or ST), or one more character.
fn skip_escape(characters: &mut Characters<'_>) {
    match characters.next() {
        Some('[') => skip_control_sequence(characters),
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(character) = characters.next() {
                if character == '\u{7}' || character == '\u{9c}' {
                    return;
                }
                if character == '\u{1b}' && characters.peek() == Some(&'\\') {
                    characters.next();
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Parameters and intermediates up to the final byte `@` to `~`.
fn skip_control_sequence(characters: &mut Characters<'_>) {
    while let Some(character) = characters.peek() {
        match character {
            '\u{20}'..='\u{3f}' => {
                characters.next();
            }
            '\u{40}'..='\u{7e}' => {
                characters.next();
                return;
            }
            _ => return,
        }
    }
}

fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_or_hides_is_removed() {
        for (raw, clean) in [
            ("plain, with\nlines\tand ünïcödé 日本 👩‍👩‍👧", "plain, with\nlines\tand ünïcödé 日本 👩‍👩‍👧"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{9b}31mred", "red"),
            ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{1b}\\!", "link!"),
            ("a\u{202e}b\u{2066}c\u{200b}d", "abcd"),
            ("x\u{e0041}\u{e0042}y", "xy"),
            ("bell\u{7} null\u{0} back\u{8}", "bell null back"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(shown(raw), clean, "{raw:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_with_a_mark() {
        assert_eq!(shown_short("a\nb  c", 10), "a b c");
        assert_eq!(shown_short("abcdef", 4), "abc…");
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
            assert_eq!(nearest(word, ["command", "url", "args", "connect_timeout"]), expected, "{word}");
        }
    }
}
