//! Approximate term matching: words inside longer words and names, and words with a slip of the keyboard. Both score
//! below exact term matches. Slips are only corrected for words that no tool contains, so that a guess does not compete
//! with the word itself.

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::query_text;
use super::resolved_query::{ResolvedQuery, ResolvedTerm};
use super::tokenize;
use super::vocabulary::vocabulary;

/// Share of a term's score when the query word is only a substring of the term. Enough to find `auth` in `oauth`, too
/// little to compete with a whole word.
const SUBSTRING_WEIGHT: f32 = 0.05;
/// Minimum length of an ASCII word for substring matching.
const MIN_SUBSTRING_LEN: usize = 2;
/// Share of a term's score when it differs from the query word by a slip.
const TYPO_WEIGHT: f32 = 0.5;
/// Minimum length of a word for the correction of slips; shorter words are too close to each other.
const MIN_TYPO_LEN: usize = 4;
/// Minimum length of a word for the correction of any slip, see [`is_slip_of_short_word`].
const MIN_ANY_TYPO_LEN: usize = 5;
/// Minimum length of a word for an edit distance of 2.
const MIN_TWO_TYPOS_LEN: usize = 9;
/// Maximum number of query words for the correction of slips. In longer queries, unknown words are mostly names of
/// people and places, and matching them to similar terms would mislead.
const MAX_FUZZY_WORDS: usize = 6;

/// Adds the terms that words without any match were meant to be. Words are compared as they are written, for the stem of
/// a misspelled word can be far from that of the right one (`calender` becomes `calend`, `calendar` stays). Words of
/// another language are left alone, and so are those of the vocabulary and of paths: they are no slips.
pub(super) fn correct_words<'a>(index: &'a SearchIndex, parsed: &ParsedQuery<'_>, resolved: &mut ResolvedQuery<'a>) {
    if parsed.words.len() > MAX_FUZZY_WORDS || parsed.is_foreign {
        return;
    }
    for word in &parsed.words {
        let key = tokenize::term_key(word);
        let Some(query_term) = parsed.terms.iter().position(|term| term.key == key && !term.is_in_path) else {
            continue;
        };
        let is_meant = index.document_frequency(key) > 0 || vocabulary().contains(key);
        if is_meant || query_text::is_foreign_word(word) || query_text::has_accent(word) {
            continue;
        }
        for key in nearest_terms(index, word) {
            let Some(stats) = index.term(key) else { continue };
            if resolved.terms.iter().all(|term| term.stats.key != key) {
                resolved.terms.push(ResolvedTerm {
                    stats,
                    weight: TYPO_WEIGHT * stats.rarity,
                    is_minor: false,
                    is_in_path: false,
                    is_correction: true,
                    query_term,
                });
            }
        }
    }
}

/// Adds substring matches for a query of one word.
pub(super) fn add_substring_scores(index: &SearchIndex, parsed: &ParsedQuery<'_>, scores: &mut [f32]) {
    let [word] = &parsed.words[..] else { return };
    // A single ASCII letter is in nearly every term, but a single CJK character may be a word.
    if word.is_ascii() && word.len() < MIN_SUBSTRING_LEN {
        return;
    }
    for key in index.term_texts().find_containing(word, &tokenize::stem(word)) {
        let Some(stats) = index.term(key) else { continue };
        let weight = SUBSTRING_WEIGHT * stats.rarity;
        index.for_each_posting(stats, |tool, impact| scores[tool as usize] += weight * impact);
    }
    for tool in index.name_index().find_containing(word) {
        scores[tool as usize] += SUBSTRING_WEIGHT;
    }
}

/// Keys of the terms with a word nearest to this one: within an edit distance of 1, or 2 for long words.
fn nearest_terms(index: &SearchIndex, word: &str) -> Vec<u64> {
    // Words with digits are versions and ids, whose neighbours mean something else.
    if !is_long_enough(word) || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let length = word.chars().count();
    let max_distance = if length < MIN_TWO_TYPOS_LEN { 1 } else { 2 };
    // Only words with the same first letter are compared: slips rarely affect it.
    let mut found = index.word_texts().find_within_distance(word, max_distance);
    found.retain(|near| length >= MIN_ANY_TYPO_LEN || is_slip_of_short_word(word, near.text));
    let nearest = found.iter().map(|near| near.distance).min();
    found.retain(|near| Some(near.distance) == nearest);
    let mut keys: Vec<u64> = found.into_iter().map(|near| near.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Whether a word is long enough for the correction of slips.
pub(super) fn is_long_enough(word: &str) -> bool {
    word.chars().count() >= MIN_TYPO_LEN
}

/// Whether a short word lacks a letter of another one (`isue`) or swaps two (`fiel`). With another letter it is rather
/// a word of its own: `cake` is no `case`.
fn is_slip_of_short_word(word: &str, meant: &str) -> bool {
    let lacks_letter = meant.chars().count() == word.chars().count() + 1;
    lacks_letter || tokenize::letter_mask(word) == tokenize::letter_mask(meant)
}
