//! Scoring every tool that shares a word with the query, and taking the best: first by words alone, then a closer look at
//! the best of those.

use std::cmp::Ordering;

use super::directory::Directory;
use super::question::Question;
use super::{Query, closer, duplicates, inside, names};

/// At least so many tools get the closer look.
const CANDIDATES: usize = 150;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scored {
    pub(super) score: f32,
    pub(super) tool: u32,
}

/// One line of the answer.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) scored: Scored,
    /// The same tool at other sources.
    pub(super) also: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Ranking {
    pub(super) lines: Vec<Line>,
    pub(super) total: usize,
}

pub(super) fn ranked(directory: &Directory, query: &Query, mix: impl FnOnce(&str, &mut [f32])) -> Ranking {
    let question = Question::read(&query.text);
    let wanted = directory.wanted(query);
    let mut scores = by_words(directory, &question);
    mix(question.text, &mut scores);
    inside::score(directory, &question, &mut scores);
    let named = names::named(directory, &question);
    for &tool in named.keys() {
        // A name that was asked for is found even when none of its words is.
        scores[tool as usize] = scores[tool as usize].max(f32::MIN_POSITIVE);
    }

    let matching = scores.iter().enumerate().filter(|(tool, score)| **score > 0.0 && wanted(*tool as u32));
    let mut best: Vec<Scored> = matching.map(|(tool, &score)| Scored { score, tool: tool as u32 }).collect();
    let total = best.len();
    let limit = if query.limit == 0 { total } else { query.limit };
    let keep = CANDIDATES.max(limit.saturating_mul(2)).min(total);
    if keep < total {
        best.select_nth_unstable_by(keep, better);
        let left_out = best.split_off(keep);
        let left_out = left_out.into_iter().filter(|scored| named.contains_key(&scored.tool));
        best.extend(left_out);
    }
    closer::look(directory, &question, &mut best);
    names::first(&named, &mut best);
    let lines = duplicates::collapsed(directory, best, &named, limit);
    Ranking { lines, total }
}

/// BM25F: what each word is worth for a tool, times how rare it is.
fn by_words(directory: &Directory, question: &Question<'_>) -> Vec<f32> {
    let mut scores = vec![0.0_f32; directory.len()];
    let mut add = |key: u64, weight: f32| directory.each(key, |tool, impact| scores[tool as usize] += weight * impact);
    let rarities: Vec<f32> = question.terms.iter().map(|term| directory.rarity(term.key)).collect();
    for (term, rarity) in question.terms.iter().zip(&rarities) {
        add(term.key, term.weight * rarity);
    }
    for related in &question.related {
        // Standing for a word, it is no rarer than that.
        let rarity = directory.rarity(related.key).min(rarities[related.to]);
        add(related.key, related.weight * rarity);
    }
    scores
}

/// The better score, then the name that stands first.
pub(super) fn better(one: &Scored, other: &Scored) -> Ordering {
    other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool))
}
