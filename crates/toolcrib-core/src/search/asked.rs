//! A query as one catalogue knows it: every term is looked up once, with what it counts there. Terms that no tool has
//! are left out.

use super::directory::{Directory, Spread};
use super::question::{Question, Term};

#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) terms: Vec<Known<'a>>,
    /// Those that nobody wrote.
    pub(super) related: Vec<Known<'a>>,
    /// Terms that stood side by side.
    pub(super) pairs: Vec<(&'a Spread, &'a Spread)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) spread: &'a Spread,
    /// What it counts, with how rare it is.
    pub(super) weight: f32,
}

impl<'a> Asked<'a> {
    pub(super) fn new(directory: &'a Directory, question: &Question<'_>) -> Asked<'a> {
        let spreads: Vec<Option<&Spread>> = question.terms.iter().map(|term| directory.spread(term.key)).collect();
        let known = |(term, spread): (&Term, &Option<&'a Spread>)| {
            let spread = (*spread)?;
            Some(Known { spread, weight: term.weight * spread.rarity })
        };
        let terms: Vec<Known<'a>> = question.terms.iter().zip(&spreads).filter_map(known).collect();
        let related = question.related.iter().filter_map(|related| {
            let spread = directory.spread(related.key)?;
            // Standing for a word, it is no rarer than that.
            let rarity = spreads[related.to].map_or(spread.rarity, |to| spread.rarity.min(to.rarity));
            Some(Known { spread, weight: related.weight * rarity })
        });
        let find = |key: u64| terms.iter().map(|term| term.spread).find(|spread| spread.key == key);
        let pairs = question.pairs.iter().filter_map(|(one, other)| Some((find(*one)?, find(*other)?)));
        Asked { related: related.collect(), pairs: pairs.collect(), terms }
    }
}
