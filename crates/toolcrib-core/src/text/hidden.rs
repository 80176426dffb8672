//! Invisible and terminal-controlling characters: which they are, and the contexts in which some of them are
//! legitimate.
//!
//! Three groups: characters that are removed everywhere ([`is_hidden`]), joiners and variation selectors, which stay
//! where a script or an emoji needs them, and escape sequences, which are removed together with their parameters. Emoji
//! and scripts are recognised by blocks instead of Unicode tables; a few characters more or less are accepted for that.

use std::iter::Peekable;
use std::str::Chars;

/// Treatment of line breaks other than `\n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineBreaks {
    /// `\r\n` and `\r` become `\n`.
    Normalised,
    /// `\r\n` stays, for content that is compared with a file later.
    Preserved,
}

/// Whether a character may have to be removed. [`remove_hidden`] decides by context.
pub(super) fn is_suspicious(character: char) -> bool {
    match character {
        '\n' | '\t' | ' '..='~' => false,
        _ => character.is_control() || is_hidden(character) || is_joiner(character) || is_selector(character),
    }
}

/// Removes escape sequences, control characters and invisible characters, except where a script or an emoji needs them.
/// One pass; the output is never longer than the input.
pub(super) fn remove_hidden(text: &str, line_breaks: LineBreaks) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    // Last character of the output; determines whether a joiner or selector is legitimate.
    let mut last = None;
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        let output = match character {
            '\u{1b}' => {
                skip_escape(&mut characters);
                None
            }
            '\u{9b}' => {
                skip_control_sequence(&mut characters);
                None
            }
            '\n' | '\t' => Some(character),
            '\r' if next == Some('\n') => (line_breaks == LineBreaks::Preserved).then_some('\r'),
            '\r' => Some('\n'),
            _ if character.is_control() || is_hidden(character) => None,
            _ if is_joiner(character) => {
                last.filter(|&last| is_joiner_needed(last, character, next)).map(|_| character)
            }
            _ if is_selector(character) => {
                last.filter(|&last| is_selector_needed(last, character, next)).map(|_| character)
            }
            _ => Some(character),
        };
        if let Some(output) = output {
            clean.push(output);
            last = Some(output);
        }
        if character == BLACK_FLAG
            && let Some(tags) = FLAG_TAGS.iter().find(|tags| characters.clone().take(6).eq(tags.chars()))
        {
            clean.push_str(tags);
            characters.nth(5);
        }
    }
    clean
}

/// Base character of the flags that are written with tags.
const BLACK_FLAG: char = '\u{1f3f4}';

/// Tags after a black flag in the only three valid tag sequences: England, Scotland and Wales.
const FLAG_TAGS: [&str; 3] = [
    "\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
];

/// Characters that are removed everywhere, except in [`FLAG_TAGS`].
fn is_hidden(character: char) -> bool {
    matches!(character,
        // Soft hyphen, combining grapheme joiner, Arabic letter mark.
        '\u{ad}' | '\u{34f}' | '\u{61c}'
        // Hangul fillers, invisible Khmer vowels, Mongolian vowel separator, blank Braille pattern.
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
        // Zero-width space and directional marks.
        | '\u{200b}' | '\u{200e}' | '\u{200f}'
        // Line and paragraph separators, directional embeddings and overrides.
        | '\u{2028}'..='\u{202e}'
        // Word joiner, invisible operators, directional isolates, deprecated format characters.
        | '\u{2060}'..='\u{206f}'
        // Byte order mark, interlinear annotations and the unassigned code points before them.
        | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        // Format characters of shorthand and musical notation.
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Private use: no agreed meaning.
        | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}'
        // Tags, and the rest of their plane except variation selectors.
        | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// U+200C ZERO WIDTH NON-JOINER and U+200D ZERO WIDTH JOINER.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// Variation selectors: Mongolian ones, 1 to 16, and 17 to 256.
fn is_selector(character: char) -> bool {
    matches!(character,
        '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a joiner after `last` is legitimate: after a letter of a joining script, or between two pictographs of an
/// emoji. `last` is the last character of the output, so a second joiner in a row follows a joiner and is removed: runs
/// of them can encode text.
fn is_joiner_needed(last: char, joiner: char, next: Option<char>) -> bool {
    let in_emoji =
        joiner == '\u{200d}' && (is_pictograph(last) || is_emoji_selector(last)) && next.is_some_and(is_pictograph);
    in_emoji || is_joining_script(last)
}

/// Whether a variation selector after `last` is legitimate: text or emoji style of a pictograph or keycap, or a variant
/// of a Mongolian letter.
fn is_selector_needed(last: char, selector: char, next: Option<char>) -> bool {
    match selector {
        '\u{180b}'..='\u{180d}' | '\u{180f}' => matches!(last, '\u{1820}'..='\u{18aa}'),
        _ if is_emoji_selector(selector) => {
            is_pictograph(last) || matches!(last, '0'..='9' | '#' | '*') && next == Some('\u{20e3}')
        }
        _ => false,
    }
}

/// Selectors of text and emoji style.
fn is_emoji_selector(character: char) -> bool {
    matches!(character, '\u{fe0e}' | '\u{fe0f}')
}

/// Characters that emoji consist of: Extended_Pictographic of Unicode (whole blocks where most of a block has the
/// property), flags and skin tones.
fn is_pictograph(character: char) -> bool {
    matches!(character,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2194}'..='\u{2199}' | '\u{21a9}' | '\u{21aa}'
        | '\u{231a}' | '\u{231b}' | '\u{2328}' | '\u{2388}' | '\u{23cf}' | '\u{23e9}'..='\u{23f3}'
        | '\u{23f8}'..='\u{23fa}' | '\u{24c2}' | '\u{25aa}' | '\u{25ab}' | '\u{25b6}' | '\u{25c0}'
        | '\u{25fb}'..='\u{25fe}' | '\u{2600}'..='\u{27bf}' | '\u{2934}' | '\u{2935}'
        | '\u{2b05}'..='\u{2b07}' | '\u{2b1b}' | '\u{2b1c}' | '\u{2b50}' | '\u{2b55}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Scripts in which joiners change the shape of letters: Arabic and related scripts, Mongolian, scripts of South and
/// South-East Asia.
fn is_joining_script(character: char) -> bool {
    matches!(character,
        '\u{600}'..='\u{74f}' | '\u{750}'..='\u{77f}' | '\u{7c0}'..='\u{7ff}' | '\u{840}'..='\u{8ff}'
        | '\u{900}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{1900}'..='\u{194f}'
        | '\u{1a20}'..='\u{1aaf}' | '\u{1b00}'..='\u{1bff}' | '\u{a840}'..='\u{a8ff}' | '\u{a980}'..='\u{a9df}'
        | '\u{abc0}'..='\u{abff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        | '\u{10ac0}'..='\u{10aff}' | '\u{10d00}'..='\u{10fff}' | '\u{11000}'..='\u{11fff}'
        | '\u{1e900}'..='\u{1e95f}')
}

/// Skips what follows ESC: a control sequence, a string (OSC and others, up to BEL or ST), or a single character.
fn skip_escape(characters: &mut Peekable<Chars<'_>>) {
    match characters.next() {
        Some('[') => skip_control_sequence(characters),
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // An unterminated string ends with its line, so that it cannot swallow the rest of the text.
            while let Some(character) = characters.next_if(|&character| character != '\n') {
                let ends = match character {
                    '\u{7}' | '\u{9c}' => true,
                    '\u{1b}' => characters.next_if_eq(&'\\').is_some(),
                    _ => false,
                };
                if ends {
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Skips a control sequence: parameters and intermediates up to the final byte `@` to `~`.
fn skip_control_sequence(characters: &mut Peekable<Chars<'_>>) {
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
