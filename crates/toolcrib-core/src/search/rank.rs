//! Scoring every tool that shares a word with the query, and taking the best: first by words alone, then a closer look at
//! the best of those.

use std::cmp::Ordering;

use super::asked::{Asked, Known};
use super::directory::Directory;
use super::question::Question;
use super::{Query, closer, duplicates, inside, names};

/// At least so many tools get the closer look.
const CANDIDATES: usize = 150;
/// Several times as many, so that few columns have two of the best.
const COLUMNS: usize = 1024;

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
    let asked = Asked::new(directory, &question);
    let mut scores = by_words(directory, &asked);
    mix(question.text, &mut scores);
    inside::score(directory, &question, &mut scores);
    let named = names::named(directory, &question);
    for &tool in named.keys() {
        // A name that was asked for is found even when none of its words is.
        scores[tool as usize] = scores[tool as usize].max(f32::MIN_POSITIVE);
    }
    directory.withhold(query, &mut scores);

    let total = scores.iter().filter(|score| **score > 0.0).count();
    let limit = if query.limit == 0 { total } else { query.limit };
    let keep = CANDIDATES.max(limit.saturating_mul(2)).min(total);
    let mut best = best(&scores, keep);
    if let Some(last) = best.iter().copied().max_by(better) {
        let named = named.keys().map(|tool| Scored { score: scores[*tool as usize], tool: *tool });
        best.extend(named.filter(|named| named.score > 0.0 && better(&last, named) == Ordering::Less));
    }
    closer::look(directory, &asked, &mut best);
    names::first(&named, &mut best);
    let lines = duplicates::collapsed(directory, best, &named, limit);
    Ranking { lines, total }
}

/// BM25F: what each word is worth for a tool, times how rare it is.
fn by_words(directory: &Directory, asked: &Asked<'_>) -> Vec<f32> {
    let mut scores = vec![0.0_f32; directory.len()];
    for Known { spread, weight } in asked.terms.iter().chain(&asked.related) {
        directory.each(spread, |tool, impact| scores[tool as usize] += weight * impact);
    }
    scores
}

/// The best so many tools that have a score, in no order. They are dealt out to columns: at least so many tools reach
/// what so many columns have, and only columns that have it are looked through.
fn best(scores: &[f32], keep: usize) -> Vec<Scored> {
    let mut columns = [0.0_f32; COLUMNS];
    for row in scores.chunks(COLUMNS) {
        for (highest, score) in columns.iter_mut().zip(row) {
            *highest = if score > highest { *score } else { *highest };
        }
    }
    let reached = match keep {
        1..=COLUMNS => *columns.clone().select_nth_unstable_by(keep - 1, |one, other| other.total_cmp(one)).1,
        _ => 0.0,
    };
    let floor = reached.max(f32::MIN_POSITIVE);
    let mut best: Vec<Scored> = Vec::with_capacity(2 * keep);
    for (column, _) in columns.iter().enumerate().filter(|(_, highest)| **highest >= floor) {
        let tools = (column..scores.len()).step_by(COLUMNS);
        let scored = tools.map(|tool| Scored { score: scores[tool], tool: tool as u32 });
        best.extend(scored.filter(|scored| scored.score >= floor));
    }
    if keep < best.len() {
        best.select_nth_unstable_by(keep, better);
        best.truncate(keep);
    }
    best
}

/// The better score, then the name that stands first.
pub(super) fn better(one: &Scored, other: &Scored) -> Ordering {
    other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(scores: &[f32], keep: usize) {
        let mut expected: Vec<Scored> =
            scores.iter().enumerate().map(|(tool, &score)| Scored { score, tool: tool as u32 }).collect();
        expected.retain(|scored| scored.score > 0.0);
        expected.sort_by(better);
        let keep = keep.min(expected.len());
        expected.truncate(keep);
        let mut found = best(scores, keep);
        found.sort_by(better);
        assert_eq!(found, expected, "{keep} of {}", scores.len());
    }

    #[test]
    fn the_best_are_the_best_around_the_number_of_columns() {
        for tools in [0, 1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS] {
            let few_values: Vec<f32> = (0..tools).map(|tool| (tool * 7919 % 13) as f32).collect();
            for keep in [0, 1, 150, COLUMNS, COLUMNS + 1, tools] {
                check(&few_values, keep);
            }
        }
    }

    proptest! {
        #[test]
        fn the_best_are_those_a_sort_gives(seeds in prop::collection::vec(0_u8..40, 0..4000), keep in 0_usize..2000) {
            check(&seeds.iter().map(|seed| f32::from(*seed) / 4.0).collect::<Vec<_>>(), keep);
        }
    }
}
