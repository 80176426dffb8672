//! A parsed query resolved against the index of one catalogue: each term is looked up once and weighted by its rarity
//! there. Terms that occur in no tool are dropped. Lives for one search; borrows the statistics from the index.

use super::fuzzy;
use super::index::{SearchIndex, TermStats};
use super::parsed_query::{ParsedQuery, QueryTerm};
use super::query_text;
use super::tokenize;

/// Terms of a query with their statistics in one catalogue.
#[derive(Debug)]
pub(super) struct ResolvedQuery<'a> {
    pub(super) terms: Vec<ResolvedTerm<'a>>,
    /// Synonyms and related terms that the query does not contain itself.
    pub(super) related: Vec<ResolvedTerm<'a>>,
    /// Terms that are adjacent in the query, ignoring stop words.
    pub(super) pairs: Vec<(&'a TermStats, &'a TermStats)>,
}

/// A query term that occurs in the catalogue.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolvedTerm<'a> {
    pub(super) stats: &'a TermStats,
    /// Weight of the term in the query, multiplied by its rarity in the catalogue.
    pub(super) weight: f32,
    /// Whether it weighs less than an ordinary word of the query: a framing word, a number, a part of a path.
    pub(super) is_minor: bool,
    /// See [`QueryTerm::is_in_path`].
    pub(super) is_in_path: bool,
    /// Whether it replaces a misspelled word of the query.
    pub(super) is_correction: bool,
    /// Position in [`ParsedQuery::terms`] of the term that it is, or that it replaces.
    pub(super) query_term: usize,
}

impl<'a> ResolvedQuery<'a> {
    /// Looks up all terms of `parsed` in `index`.
    pub(super) fn new(index: &'a SearchIndex, parsed: &ParsedQuery<'_>) -> ResolvedQuery<'a> {
        let collisions = stem_collisions(index, parsed);
        let find_term = |key: u64| index.term(key).filter(|_| !collisions.contains(&key));
        let stats_by_term: Vec<Option<&TermStats>> = parsed.terms.iter().map(|term| find_term(term.key)).collect();
        let resolve = |(query_term, (term, stats)): (usize, (&QueryTerm, &Option<&'a TermStats>))| {
            let stats = (*stats)?;
            Some(ResolvedTerm {
                stats,
                weight: term.weight * stats.rarity,
                is_minor: term.weight < 1.0,
                is_in_path: term.is_in_path,
                is_correction: false,
                query_term,
            })
        };
        let terms: Vec<ResolvedTerm<'a>> =
            parsed.terms.iter().zip(&stats_by_term).enumerate().filter_map(resolve).collect();
        let related =
            parsed.related.iter().filter(|related| !collisions.contains(&parsed.terms[related.term_index].key));
        let related = related.filter_map(|related| {
            let stats = index.term(related.key)?;
            // A related term replaces a query term, so it must not count as rarer than that term.
            let rarity = stats_by_term[related.term_index].map_or(stats.rarity, |term| stats.rarity.min(term.rarity));
            Some(ResolvedTerm {
                stats,
                weight: related.weight * rarity,
                is_minor: true,
                is_in_path: false,
                is_correction: false,
                query_term: related.term_index,
            })
        });
        let find = |key: u64| terms.iter().map(|term| term.stats).find(|stats| stats.key == key);
        let pairs = parsed.pairs.iter().filter_map(|(first, second)| Some((find(*first)?, find(*second)?)));
        ResolvedQuery { related: related.collect(), pairs: pairs.collect(), terms }
    }
}

/// Keys of terms that the query has only because a word of another language has the stem of an English one: `Termin` and
/// `terminal`. Short words are no part of the list of words, and are hardly ever stemmed.
fn stem_collisions(index: &SearchIndex, parsed: &ParsedQuery<'_>) -> Vec<u64> {
    let foreign = parsed.words.iter().filter(|word| query_text::is_foreign_word(word) && fuzzy::is_long_enough(word));
    foreign.filter(|word| !index.word_texts().contains(word)).map(|word| tokenize::term_key(word)).collect()
}
