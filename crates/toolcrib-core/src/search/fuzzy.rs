//! Weaker ways to meet a word: inside of longer words and names, or with a slip of the finger. What is found so ranks
//! below what has the word itself.

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::tokenize;

/// What a word counts that only holds the one asked for.
const SUBSTRING_WEIGHT: f32 = 0.05;
const MIN_SUBSTRING_LEN: usize = 2;
/// What a word counts that differs by a slip.
const TYPO_WEIGHT: f32 = 0.5;
const MIN_TYPO_LEN: usize = 5;
const MIN_TWO_TYPOS_LEN: usize = 9;
/// Names of people and places are unknown words too; in a long query, that is what most are.
const MAX_FUZZY_WORDS: usize = 6;

pub(super) fn add_fuzzy_scores(directory: &SearchIndex, question: &ParsedQuery<'_>, scores: &mut [f32]) {
    if let [word] = &question.words[..] {
        add_substring_matches(directory, word, scores);
    }
    if question.words.len() <= MAX_FUZZY_WORDS {
        let unknown = question.words.iter().filter(|word| directory.document_frequency(tokenize::term_key(word)) == 0);
        unknown.for_each(|word| add_typo_matches(directory, word, scores));
    }
}

fn add_substring_matches(directory: &SearchIndex, word: &str, scores: &mut [f32]) {
    // A single letter says nothing, but a single sign may be a word.
    if word.is_ascii() && word.len() < MIN_SUBSTRING_LEN {
        return;
    }
    for key in directory.term_texts().find_containing(word, &tokenize::stem(word)) {
        add_term_score(directory, key, SUBSTRING_WEIGHT, scores);
    }
    for tool in directory.name_index().find_containing(word) {
        scores[tool as usize] += SUBSTRING_WEIGHT;
    }
}

fn add_typo_matches(directory: &SearchIndex, word: &str, scores: &mut [f32]) {
    let stem = tokenize::stem(word);
    let length = stem.chars().count();
    if length < MIN_TYPO_LEN || stem.bytes().any(|byte| byte.is_ascii_digit()) {
        return;
    }
    let most = if length < MIN_TWO_TYPOS_LEN { 1 } else { 2 };
    // Slips rarely fall on the first letter.
    for key in directory.term_texts().find_within_distance(&stem, most) {
        add_term_score(directory, key, TYPO_WEIGHT, scores);
    }
}

fn add_term_score(directory: &SearchIndex, key: u64, share: f32, scores: &mut [f32]) {
    let Some(spread) = directory.term(key) else { return };
    let weight = share * spread.rarity;
    directory.for_each_posting(spread, |tool, impact| scores[tool as usize] += weight * impact);
}
