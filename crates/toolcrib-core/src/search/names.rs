//! A name that was asked for comes first: in any spelling, in the middle of a sentence, and with a slip of the finger.

use std::collections::HashMap;

use super::directory::Directory;
use super::question::Question;
use super::rank::{Scored, better};
use super::words;

/// Shorter names are too near to each other to be guessed.
const SHORTEST_GUESSED: usize = 5;
const LONGEST_GUESSED: usize = 64;
/// From this length on, two slips are forgiven.
const LONG: usize = 9;
/// A longer query is a sentence, not a name.
const MOST_WORDS: usize = 6;
/// Maximum number of words of a query that are looked up as names.
const MAX_IDENTIFIERS: usize = 48;
/// What being named adds to a score: more than words can.
const NAMED: f32 = 1000.0;

/// How well a tool's name meets the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    /// In other forms of its words: perhaps no more than words.
    Worded,
    /// With a slip of the finger.
    Nearly,
    /// In another spelling.
    Spelled,
    /// To the letter.
    Exactly,
}

impl Named {
    /// Whether it was surely this name that was asked for, so that copies of the tool may not stand for it.
    pub(super) fn surely(self) -> bool {
        match self {
            Named::Exactly | Named::Spelled | Named::Nearly => true,
            Named::Worded => false,
        }
    }
}

/// The tools whose names were asked for.
pub(super) fn named(directory: &Directory, question: &Question<'_>) -> HashMap<u32, Named> {
    let mut named: HashMap<u32, Named> = HashMap::new();
    let mut add = |tools: &[u32], text: &str, how: Named| {
        for tool in tools.iter().filter(|tool| directory.is_findable(**tool)) {
            let to_the_letter =
                directory.tool(*tool).is_some_and(|tool| tool.name().as_str() == text || tool.original() == text);
            let how = if to_the_letter { Named::Exactly } else { how };
            named.entry(*tool).and_modify(|known| *known = how.max(*known)).or_insert(how);
        }
    };
    let squashed = words::squashed(question.text);
    add(directory.roll().spelled(&squashed), question.text.trim(), Named::Spelled);
    let identifiers = question.text.split_whitespace().filter(|word| is_identifier(word)).map(bare);
    // Thousands of tools may go by one spelling, and a query may repeat it a thousand times.
    for word in identifiers.take(MAX_IDENTIFIERS) {
        add(directory.roll().spelled(&words::squashed(word)), word, Named::Spelled);
    }
    if question.words.len() <= MOST_WORDS {
        add(directory.roll().worded(question.text), question.text, Named::Worded);
    }
    if named.is_empty() {
        named.extend(slips(directory, question, &squashed));
    }
    named
}

/// Puts named tools before all others.
pub(super) fn first(named: &HashMap<u32, Named>, best: &mut [Scored]) {
    if named.is_empty() {
        return;
    }
    for scored in best.iter_mut() {
        match named.get(&scored.tool) {
            Some(Named::Exactly) => scored.score += 3.0 * NAMED,
            Some(Named::Spelled) => scored.score += 2.0 * NAMED,
            Some(Named::Nearly | Named::Worded) => scored.score += NAMED,
            None => {}
        }
    }
    best.sort_by(better);
}

/// Written as names are: `create_issue`, `github/create_issue`, `create-issue`, `createIssue`.
fn is_identifier(word: &str) -> bool {
    let inner = bare(word);
    let mut neighbours = inner.chars().zip(inner.chars().skip(1));
    inner.contains(['_', '/', ':', '-', '.'])
        || neighbours.any(|(one, other)| one.is_lowercase() && other.is_uppercase())
}

/// A word without the marks around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_alphanumeric())
}

/// The names that differ from the query by a slip or two. Only where a word is unknown: `get_user` is no slip of
/// `set_user`.
fn slips(directory: &Directory, question: &Question<'_>, squashed: &str) -> HashMap<u32, Named> {
    let length = squashed.chars().count();
    let unknown = question.terms.iter().any(|term| directory.frequency(term.key) == 0);
    if !(SHORTEST_GUESSED..=LONGEST_GUESSED).contains(&length) || question.words.len() > MOST_WORDS || !unknown {
        return HashMap::new();
    }
    let most = if length < LONG { 1 } else { 2 };
    let mut nearest: HashMap<u32, Named> = HashMap::new();
    let mut least = most;
    for (tool, whole) in directory.roll().like(squashed, most) {
        let Some(card) = directory.card(tool) else { continue };
        let name = if whole { &card.full } else { &card.own };
        let distance = strsim::osa_distance(squashed, name);
        if distance > least || !directory.is_findable(tool) {
            continue;
        }
        if distance < least {
            nearest.clear();
            least = distance;
        }
        nearest.insert(tool, Named::Nearly);
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_written_like_a_name() {
        for word in ["create_issue", "`github__create_issue`", "github/create", "createIssue,", "a:b", "get-user."] {
            assert!(is_identifier(word), "{word}");
        }
        for word in ["issue", "Issue", "ISSUE", "end.", "(so)", "_", "-"] {
            assert!(!is_identifier(word), "{word}");
        }
    }
}
