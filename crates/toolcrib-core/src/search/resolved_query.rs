//! A query as one catalogue knows it: every term is looked up once, with what it counts there. Terms that no tool has
//! are left out.

use super::index::{SearchIndex, TermStats};
use super::parsed_query::{ParsedQuery, QueryTerm};

#[derive(Debug)]
pub(super) struct ResolvedQuery<'a> {
    pub(super) terms: Vec<ResolvedTerm<'a>>,
    /// Those that nobody wrote.
    pub(super) related: Vec<ResolvedTerm<'a>>,
    /// Terms that stood side by side.
    pub(super) pairs: Vec<(&'a TermStats, &'a TermStats)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ResolvedTerm<'a> {
    pub(super) stats: &'a TermStats,
    /// What it counts, with how rare it is.
    pub(super) weight: f32,
}

impl<'a> ResolvedQuery<'a> {
    pub(super) fn new(directory: &'a SearchIndex, question: &ParsedQuery<'_>) -> ResolvedQuery<'a> {
        let spreads: Vec<Option<&TermStats>> = question.terms.iter().map(|term| directory.term(term.key)).collect();
        let known = |(term, spread): (&QueryTerm, &Option<&'a TermStats>)| {
            let spread = (*spread)?;
            Some(ResolvedTerm { stats: spread, weight: term.weight * spread.rarity })
        };
        let terms: Vec<ResolvedTerm<'a>> = question.terms.iter().zip(&spreads).filter_map(known).collect();
        let related = question.related.iter().filter_map(|related| {
            let spread = directory.term(related.key)?;
            // Standing for a word, it is no rarer than that.
            let rarity = spreads[related.term_index].map_or(spread.rarity, |to| spread.rarity.min(to.rarity));
            Some(ResolvedTerm { stats: spread, weight: related.weight * rarity })
        });
        let find = |key: u64| terms.iter().map(|term| term.stats).find(|spread| spread.key == key);
        let pairs = question.pairs.iter().filter_map(|(one, other)| Some((find(*one)?, find(*other)?)));
        ResolvedQuery { related: related.collect(), pairs: pairs.collect(), terms }
    }
}
