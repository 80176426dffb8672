//! Text as words that can be compared: split at every boundary a name may have, lower-cased, stemmed.
//! Scripts without spaces become pairs of characters.

use rust_stemmers::{Algorithm, Stemmer};

/// A word longer than this is no word: a key, a hash, a page without spaces.
const MAX_WORD_LEN: usize = 48;

/// One word as it stands in a text. `GitHub` is one whole and two parts; `issues` is one whole without parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    pub(super) whole: String,
    pub(super) parts: Vec<String>,
}

/// Calls `take` with each word of a text, in order, lower-cased and not yet stemmed.
pub(super) fn for_each_word(text: &str, mut take: impl FnMut(Word)) {
    let mut run = String::new();
    for character in text.chars() {
        if character.is_alphanumeric() {
            run.push(character);
        } else if !run.is_empty() {
            split_run(&run, &mut take);
            run.clear();
        }
    }
    if !run.is_empty() {
        split_run(&run, &mut take);
    }
}

/// The letters and digits of a text alone, lower-cased: `create_issue`, `createIssue` and `Create issue` are one.
pub(super) fn normalize_name(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// What a word has in common with its other forms.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return word.to_owned();
    }
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

/// The term of a word: what names it and its other forms.
pub(super) fn term_key(word: &str) -> u64 {
    hash_key(&stem(word))
}

/// A number that names a term: sixty-four bits, so that two terms of one catalogue never share theirs in practice.
pub(super) fn hash_key(term: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    term.bytes().fold(OFFSET, |key, byte| (key ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Which letters and digits occur in a text.
pub(super) fn letter_mask(text: &str) -> u64 {
    text.chars().fold(0, |letters, character| letters | 1 << (character as u32 % 64))
}

/// Whether texts with these letters may differ by so many slips and no more: each takes one letter at most, and adds one.
pub(super) fn may_be_typo(one: u64, other: u64, most: usize) -> bool {
    let most = most as u32;
    (one & !other).count_ones() <= most && (other & !one).count_ones() <= most
}

/// A run of letters and digits: pieces of one script, then the parts of each.
fn split_run(run: &str, take: &mut impl FnMut(Word)) {
    let characters: Vec<char> = run.chars().collect();
    let mut start = 0;
    while start < characters.len() {
        let unspaced = is_unspaced(characters[start]);
        let length = characters[start..].iter().take_while(|character| is_unspaced(**character) == unspaced).count();
        let piece = &characters[start..start + length];
        if unspaced {
            push_pairs(piece, take)
        } else {
            push_parts(piece, take)
        }
        start += length;
    }
}

fn push_pairs(piece: &[char], take: &mut impl FnMut(Word)) {
    let mut word = |characters: &[char]| take(Word { whole: characters.iter().collect(), parts: Vec::new() });
    match piece {
        [_] => word(piece),
        _ => piece.windows(2).for_each(&mut word),
    }
}

fn push_parts(piece: &[char], take: &mut impl FnMut(Word)) {
    let lower = |characters: &[char]| characters.iter().copied().flat_map(char::to_lowercase).collect::<String>();
    let mut parts = Vec::new();
    let mut start = 0;
    for at in 1..piece.len() {
        if is_boundary(piece, at) {
            parts.push(lower(&piece[start..at]));
            start = at;
        }
    }
    let whole = lower(piece);
    if start > 0 {
        parts.push(lower(&piece[start..]));
        parts.retain(|part| part.len() <= MAX_WORD_LEN);
    }
    if whole.len() <= MAX_WORD_LEN {
        take(Word { whole, parts });
    } else {
        parts.into_iter().for_each(|part| take(Word { whole: part, parts: Vec::new() }));
    }
}

/// `get|User`, `HTTP|Server`, `page|2`, `2|fa`.
fn is_boundary(piece: &[char], at: usize) -> bool {
    let (before, here) = (piece[at - 1], piece[at]);
    if before.is_numeric() != here.is_numeric() {
        return true;
    }
    let begins_word = piece.get(at + 1).is_some_and(|next| next.is_lowercase());
    here.is_uppercase() && (before.is_lowercase() || begins_word)
}

/// Scripts that put no spaces between words.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        for_each_word(text, |word| {
            let parts = if word.parts.is_empty() { String::new() } else { format!("={}", word.parts.join("+")) };
            found.push(format!("{}{parts}", word.whole));
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn names_are_split_at_every_boundary() {
        check("create_issue", &["create", "issue"]);
        check("createIssue", &["createissue=create+issue"]);
        check("GitHub-API v2", &["github=git+hub", "api", "v2=v+2"]);
        check("HTTPServer.parse/x", &["httpserver=http+server", "parse", "x"]);
        check("k8s", &["k8s=k+8+s"]);
        check("", &[]);
        check(" \u{0}…\n", &[]);
    }

    #[test]
    fn unspaced_scripts_become_pairs() {
        check("搜索关键词", &["搜索", "索关", "关键", "键词"]);
        check("词", &["词"]);
        check("用Google搜索", &["用", "google", "搜索"]);
        check("поиск Файлов", &["поиск", "файлов"]);
    }

    #[test]
    fn what_is_too_long_is_no_word() {
        check(&"x".repeat(49), &[]);
        check(&format!("{}Tail", "x".repeat(60)), &["tail"]);
    }

    #[test]
    fn forms_of_one_word_are_one() {
        for (word, same) in [("issues", "issue"), ("searching", "search"), ("repositories", "repository")] {
            assert_eq!(stem(word), stem(same));
        }
        assert_eq!(stem("k8s"), "k8s");
        assert_eq!(stem("日本"), "日本");
    }

    #[test]
    fn every_spelling_of_a_name_is_one() {
        for text in ["create_issue", "createIssue", "Create issue", "create-issue!"] {
            assert_eq!(normalize_name(text), "createissue");
        }
    }
}
