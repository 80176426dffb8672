//! Approximate term matching: words inside longer words and names, and words within a small edit distance. Both score
//! far below exact term matches. Typos are only guessed for words that no tool contains, so that a guess does not
//! compete with the word itself.

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::tokenize;

/// Share of a term's score when the query word is only a substring of the term. Enough to find `auth` in `oauth`, too
/// little to compete with a whole word.
const SUBSTRING_WEIGHT: f32 = 0.05;
/// Minimum length of an ASCII word for substring matching.
const MIN_SUBSTRING_LEN: usize = 2;
/// Share of a term's score when it differs from the query word by a typo.
const TYPO_WEIGHT: f32 = 0.5;
/// Minimum length of a stem for typo matching; shorter words are too close to each other.
const MIN_TYPO_LEN: usize = 5;
/// Minimum length of a stem for an edit distance of 2.
const MIN_TWO_TYPOS_LEN: usize = 9;
/// Maximum number of query words for typo matching. In longer queries, unknown words are mostly names of people and
/// places, and matching them to similar terms would mislead.
const MAX_FUZZY_WORDS: usize = 6;

/// Adds substring matches for a query of one word, and typo matches for words that no tool contains.
pub(super) fn add_fuzzy_scores(index: &SearchIndex, parsed: &ParsedQuery<'_>, scores: &mut [f32]) {
    if let [word] = &parsed.words[..] {
        add_substring_matches(index, word, scores);
    }
    if parsed.words.len() <= MAX_FUZZY_WORDS {
        let unknown = parsed.words.iter().filter(|word| index.document_frequency(tokenize::term_key(word)) == 0);
        unknown.for_each(|word| add_typo_matches(index, word, scores));
    }
}

/// Scores the terms and tool names that contain `word`.
fn add_substring_matches(index: &SearchIndex, word: &str, scores: &mut [f32]) {
    // A single ASCII letter is in nearly every term, but a single CJK character may be a word.
    if word.is_ascii() && word.len() < MIN_SUBSTRING_LEN {
        return;
    }
    for key in index.term_texts().find_containing(word, &tokenize::stem(word)) {
        add_term_score(index, key, SUBSTRING_WEIGHT, scores);
    }
    for tool in index.name_index().find_containing(word) {
        scores[tool as usize] += SUBSTRING_WEIGHT;
    }
}

/// Scores the terms within an edit distance of 1, or 2 for long words.
fn add_typo_matches(index: &SearchIndex, word: &str, scores: &mut [f32]) {
    let stem = tokenize::stem(word);
    let length = stem.chars().count();
    // Words with digits are versions and ids, whose neighbours mean something else.
    if length < MIN_TYPO_LEN || stem.bytes().any(|byte| byte.is_ascii_digit()) {
        return;
    }
    let max_distance = if length < MIN_TWO_TYPOS_LEN { 1 } else { 2 };
    // Only terms with the same first letter are compared: typos rarely affect it.
    for key in index.term_texts().find_within_distance(&stem, max_distance) {
        add_term_score(index, key, TYPO_WEIGHT, scores);
    }
}

/// Adds the score of a term, reduced to `share`, to all tools that contain it.
fn add_term_score(index: &SearchIndex, key: u64, share: f32, scores: &mut [f32]) {
    let Some(stats) = index.term(key) else { return };
    let weight = share * stats.rarity;
    index.for_each_posting(stats, |tool, impact| scores[tool as usize] += weight * impact);
}
