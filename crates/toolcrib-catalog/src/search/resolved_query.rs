//! A parsed query resolved against the index of one catalogue: each term is looked up once and weighted by its rarity
//! there. Terms that occur in no tool are dropped. Lives for one search; borrows the statistics from the index.

use super::index::{SearchIndex, TermStats};
use super::parsed_query::{ParsedQuery, QueryTerm};

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
    /// Whether it replaces a misspelled word of the query.
    pub(super) is_correction: bool,
    /// Position among the terms of the query of the one that a related term replaces; 0 for the terms themselves.
    pub(super) replaced_term: usize,
}

impl<'a> ResolvedQuery<'a> {
    /// Looks up all terms of `parsed` in `index`.
    pub(super) fn new(index: &'a SearchIndex, parsed: &ParsedQuery<'_>) -> ResolvedQuery<'a> {
        let stats_by_term: Vec<Option<&TermStats>> = parsed.terms.iter().map(|term| index.term(term.key)).collect();
        let resolve = |(term, stats): (&QueryTerm, &Option<&'a TermStats>)| {
            let stats = (*stats)?;
            Some(ResolvedTerm {
                stats,
                weight: term.weight * stats.rarity,
                is_minor: term.weight < 1.0,
                is_correction: false,
                replaced_term: 0,
            })
        };
        let terms: Vec<ResolvedTerm<'a>> = parsed.terms.iter().zip(&stats_by_term).filter_map(resolve).collect();
        let related = parsed.related.iter().filter_map(|related| {
            let stats = index.term(related.key)?;
            // A related term replaces a query term, so it must not count as rarer than that term.
            let rarity = stats_by_term[related.term_index].map_or(stats.rarity, |term| stats.rarity.min(term.rarity));
            Some(ResolvedTerm {
                stats,
                weight: related.weight * rarity,
                is_minor: true,
                is_correction: false,
                replaced_term: related.term_index,
            })
        });
        let find = |key: u64| terms.iter().map(|term| term.stats).find(|stats| stats.key == key);
        let pairs = parsed.pairs.iter().filter_map(|(first, second)| Some((find(*first)?, find(*second)?)));
        ResolvedQuery { related: related.collect(), pairs: pairs.collect(), terms }
    }
}
