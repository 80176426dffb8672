//! A name that was asked for comes first: in any spelling, in the middle of a sentence, and with a slip of the finger.

use std::collections::HashMap;

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::rank::{ScoredTool, compare_scores};
use super::tokenize;

/// Shorter names are too near to each other to be guessed.
const MIN_GUESSED_LEN: usize = 5;
const MAX_GUESSED_LEN: usize = 64;
/// From this length on, two slips are forgiven.
const MIN_TWO_TYPOS_LEN: usize = 9;
/// A longer query is a sentence, not a name.
const MAX_NAME_WORDS: usize = 6;
/// Maximum number of words of a query that are looked up as names.
const MAX_IDENTIFIERS: usize = 48;
/// What being named adds to a score: more than words can.
const NAME_MATCH_SCORE: f32 = 1000.0;

/// How well a tool's name meets the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameMatch {
    /// In other forms of its words: perhaps no more than words.
    SameStems,
    /// With a slip of the finger.
    Typo,
    /// In another spelling.
    Normalized,
    /// To the letter.
    Exact,
}

impl NameMatch {
    /// Whether it was surely this name that was asked for, so that copies of the tool may not stand for it.
    pub(super) fn is_certain(self) -> bool {
        match self {
            NameMatch::Exact | NameMatch::Normalized | NameMatch::Typo => true,
            NameMatch::SameStems => false,
        }
    }
}

/// The tools whose names were asked for.
pub(super) fn match_names(directory: &SearchIndex, question: &ParsedQuery<'_>) -> HashMap<u32, NameMatch> {
    let mut named: HashMap<u32, NameMatch> = HashMap::new();
    let mut add = |tools: &[u32], text: &str, how: NameMatch| {
        for tool in tools.iter().filter(|tool| directory.is_searchable(**tool)) {
            let to_the_letter =
                directory.tool(*tool).is_some_and(|tool| tool.name().as_str() == text || tool.original_name() == text);
            let how = if to_the_letter { NameMatch::Exact } else { how };
            named.entry(*tool).and_modify(|known| *known = how.max(*known)).or_insert(how);
        }
    };
    let squashed = tokenize::normalize_name(question.text);
    add(directory.name_index().find_normalized(&squashed), question.text.trim(), NameMatch::Normalized);
    let identifiers = question.text.split_whitespace().filter(|word| is_identifier(word)).map(trim_punctuation);
    // Thousands of tools may go by one spelling, and a query may repeat it a thousand times.
    for word in identifiers.take(MAX_IDENTIFIERS) {
        add(directory.name_index().find_normalized(&tokenize::normalize_name(word)), word, NameMatch::Normalized);
    }
    if question.words.len() <= MAX_NAME_WORDS {
        add(directory.name_index().find_by_stems(question.text), question.text, NameMatch::SameStems);
    }
    if named.is_empty() {
        named.extend(typo_matches(directory, question, &squashed));
    }
    named
}

/// Puts named tools before all others.
pub(super) fn boost_named(named: &HashMap<u32, NameMatch>, best: &mut [ScoredTool]) {
    if named.is_empty() {
        return;
    }
    for scored in best.iter_mut() {
        match named.get(&scored.tool) {
            Some(NameMatch::Exact) => scored.score += 3.0 * NAME_MATCH_SCORE,
            Some(NameMatch::Normalized) => scored.score += 2.0 * NAME_MATCH_SCORE,
            Some(NameMatch::Typo | NameMatch::SameStems) => scored.score += NAME_MATCH_SCORE,
            None => {}
        }
    }
    best.sort_by(compare_scores);
}

/// Written as names are: `create_issue`, `github/create_issue`, `create-issue`, `createIssue`.
fn is_identifier(word: &str) -> bool {
    let inner = trim_punctuation(word);
    let mut neighbours = inner.chars().zip(inner.chars().skip(1));
    inner.contains(['_', '/', ':', '-', '.'])
        || neighbours.any(|(one, other)| one.is_lowercase() && other.is_uppercase())
}

/// A word without the marks around it.
fn trim_punctuation(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_alphanumeric())
}

/// The names that differ from the query by a slip or two. Only where a word is unknown: `get_user` is no slip of
/// `set_user`.
fn typo_matches(directory: &SearchIndex, question: &ParsedQuery<'_>, squashed: &str) -> HashMap<u32, NameMatch> {
    let length = squashed.chars().count();
    let unknown = question.terms.iter().any(|term| directory.document_frequency(term.key) == 0);
    if !(MIN_GUESSED_LEN..=MAX_GUESSED_LEN).contains(&length) || question.words.len() > MAX_NAME_WORDS || !unknown {
        return HashMap::new();
    }
    let most = if length < MIN_TWO_TYPOS_LEN { 1 } else { 2 };
    let mut nearest: HashMap<u32, NameMatch> = HashMap::new();
    let mut least = most;
    for (tool, whole) in directory.name_index().find_within_distance(squashed, most) {
        let Some(card) = directory.card(tool) else { continue };
        let name = if whole { &card.normalized_full_name } else { &card.normalized_name };
        let distance = strsim::osa_distance(squashed, name);
        if distance > least || !directory.is_searchable(tool) {
            continue;
        }
        if distance < least {
            nearest.clear();
            least = distance;
        }
        nearest.insert(tool, NameMatch::Typo);
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
