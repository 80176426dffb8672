//! Tokenizer: splits text at every boundary that identifiers have, lower-cases and stems words. Scripts without spaces
//! become pairs of characters (bigrams).
//!
//! ```text
//! create_issue  -> create, issue             GitHub-API v2 -> github (git, hub), api, v2 (v, 2)
//! HTTPServer    -> httpserver (http, server) 搜索关键词     -> 搜索, 索关, 关键, 键词
//! ```
//!
//! Queries and tools use the same function, so both sides always agree.

use rust_stemmers::{Algorithm, Stemmer};

/// Maximum length of a word in bytes; longer ones are keys, hashes or text without spaces and are skipped.
const MAX_WORD_LEN: usize = 48;

/// One word of a text. `GitHub` has the parts `git` and `hub`; a simple word such as `issues` has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    /// Lower case, not stemmed.
    pub(super) whole: String,
    /// Parts of a compound identifier, lower case.
    pub(super) parts: Vec<String>,
}

/// Calls `take` with each word of a text, in order.
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

/// Reduces a name to lower-case letters and digits: `create_issue`, `createIssue` and `Create issue` become equal.
pub(super) fn normalize_name(text: &str) -> String {
    text.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Normalised id of a source without the words that only say what it is, as people write it: `mcp_atlassian` becomes
/// `atlassian`. `None` without such words, or with nothing else.
pub(super) fn short_source_name(id: &str) -> Option<String> {
    let is_telling = |word: &&str| !["mcp", "server"].contains(word);
    let short: String = id.split(|letter: char| !letter.is_alphanumeric()).filter(is_telling).collect();
    (!short.is_empty() && short != normalize_name(id)).then_some(short)
}

/// English stem of a word (Porter 2). Words with digits or non-ASCII letters stay as they are. Stems need not be words:
/// `repositories` becomes `repositori`.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return word.to_owned();
    }
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

/// Key of the term that a word belongs to: the hash of its stem.
pub(super) fn term_key(word: &str) -> u64 {
    hash_key(&stem(word))
}

/// FNV-1a hash of a term. 64 bits make collisions within one catalogue improbable.
pub(super) fn hash_key(term: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    term.bytes().fold(OFFSET, |key, byte| (key ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Bit set of the characters of a text, modulo 64.
pub(super) fn letter_mask(text: &str) -> u64 {
    text.chars().fold(0, |mask, character| mask | 1 << (character as u32 % 64))
}

/// Whether texts with these letter masks can be within an edit distance: each edit removes at most one letter and adds
/// at most one. May be true for texts that are farther apart.
pub(super) fn may_be_typo(a: u64, b: u64, max_distance: usize) -> bool {
    let max_distance = max_distance as u32;
    (a & !b).count_ones() <= max_distance && (b & !a).count_ones() <= max_distance
}

/// Splits a run of letters and digits into pieces of one script, and these into words.
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

/// Bigrams of a script without spaces; a single character is a word of its own.
fn push_pairs(piece: &[char], take: &mut impl FnMut(Word)) {
    let mut word = |characters: &[char]| take(Word { whole: characters.iter().collect(), parts: Vec::new() });
    match piece {
        [_] => word(piece),
        _ => piece.windows(2).for_each(&mut word),
    }
}

/// One word with its parts, or the parts alone if the whole is too long.
fn push_parts(piece: &[char], take: &mut impl FnMut(Word)) {
    let lower = |characters: &[char]| characters.iter().copied().flat_map(char::to_lowercase).collect::<String>();
    let mut parts = Vec::new();
    let mut start = 0;
    for position in 1..piece.len() {
        if is_boundary(piece, position) {
            parts.push(lower(&piece[start..position]));
            start = position;
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

/// Whether a new part begins at a position: `get|User`, `HTTP|Server`, `page|2`, `2|fa`.
fn is_boundary(piece: &[char], position: usize) -> bool {
    let previous = piece[position - 1];
    let current = piece[position];
    if previous.is_numeric() != current.is_numeric() {
        return true;
    }
    // `HTTPServer`: the last capital of a run begins the next word.
    let begins_word = piece.get(position + 1).is_some_and(|next| next.is_lowercase());
    current.is_uppercase() && (previous.is_lowercase() || begins_word)
}

/// Whether a character belongs to a script that puts no spaces between words: Thai, Lao, Burmese, Khmer, Japanese,
/// Chinese, Korean.
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
    fn identifiers_are_split_at_every_boundary() {
        check("create_issue", &["create", "issue"]);
        check("createIssue", &["createissue=create+issue"]);
        check("GitHub-API v2", &["github=git+hub", "api", "v2=v+2"]);
        check("HTTPServer.parse/x", &["httpserver=http+server", "parse", "x"]);
        check("k8s", &["k8s=k+8+s"]);
        check("", &[]);
        check(" \u{0}…\n", &[]);
    }

    #[test]
    fn scripts_without_spaces_become_bigrams() {
        check("搜索关键词", &["搜索", "索关", "关键", "键词"]);
        check("词", &["词"]);
        check("用Google搜索", &["用", "google", "搜索"]);
        check("поиск Файлов", &["поиск", "файлов"]);
    }

    #[test]
    fn words_beyond_the_maximum_length_are_skipped() {
        check(&"x".repeat(49), &[]);
        check(&format!("{}Tail", "x".repeat(60)), &["tail"]);
    }

    #[test]
    fn inflections_have_the_same_stem() {
        for (word, same) in [("issues", "issue"), ("searching", "search"), ("repositories", "repository")] {
            assert_eq!(stem(word), stem(same));
        }
        assert_eq!(stem("k8s"), "k8s");
        assert_eq!(stem("日本"), "日本");
    }

    #[test]
    fn every_spelling_of_a_name_normalises_to_the_same_text() {
        for text in ["create_issue", "createIssue", "Create issue", "create-issue!"] {
            assert_eq!(normalize_name(text), "createissue");
        }
    }
}
