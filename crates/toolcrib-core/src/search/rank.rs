//! Scoring every tool that shares a word with the query, and taking the best: first by words alone, then a closer look at
//! the best of those.

use std::cmp::Ordering;

use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::resolved_query::{ResolvedQuery, ResolvedTerm};
use super::{Query, duplicates, fuzzy, name_match, rerank};

/// At least so many tools get the closer look.
const MIN_CANDIDATES: usize = 150;
/// Several times as many, so that few columns have two of the best.
const SCORE_COLUMNS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ScoredTool {
    pub(super) score: f32,
    pub(super) tool: u32,
}

/// One line of the answer.
#[derive(Debug, PartialEq)]
pub(super) struct RankedHit {
    pub(super) scored: ScoredTool,
    /// The same tool at other sources.
    pub(super) duplicates: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Ranking {
    pub(super) hits: Vec<RankedHit>,
    pub(super) total: usize,
}

pub(super) fn rank_tools(directory: &SearchIndex, query: &Query, mix: impl FnOnce(&str, &mut [f32])) -> Ranking {
    let question = ParsedQuery::parse(&query.text);
    let asked = ResolvedQuery::new(directory, &question);
    let mut scores = score_terms(directory, &asked);
    mix(question.text, &mut scores);
    fuzzy::add_fuzzy_scores(directory, &question, &mut scores);
    let named = name_match::match_names(directory, &question);
    for &tool in named.keys() {
        // A name that was asked for is found even when none of its words is.
        scores[tool as usize] = scores[tool as usize].max(f32::MIN_POSITIVE);
    }
    directory.clear_excluded_scores(query, &mut scores);

    let total = scores.iter().filter(|score| **score > 0.0).count();
    let limit = if query.limit == 0 { total } else { query.limit };
    let keep = MIN_CANDIDATES.max(limit.saturating_mul(2)).min(total);
    let mut best = select_best(&scores, keep);
    if let Some(last) = best.iter().copied().max_by(compare_scores) {
        let named = named.keys().map(|tool| ScoredTool { score: scores[*tool as usize], tool: *tool });
        best.extend(named.filter(|named| named.score > 0.0 && compare_scores(&last, named) == Ordering::Less));
    }
    rerank::rerank(directory, &asked, &mut best);
    name_match::boost_named(&named, &mut best);
    let lines = duplicates::collapse_duplicates(directory, best, &named, limit);
    Ranking { hits: lines, total }
}

/// BM25F: what each word is worth for a tool, times how rare it is.
fn score_terms(directory: &SearchIndex, asked: &ResolvedQuery<'_>) -> Vec<f32> {
    let mut scores = vec![0.0_f32; directory.len()];
    for ResolvedTerm { stats: spread, weight } in asked.terms.iter().chain(&asked.related) {
        directory.for_each_posting(spread, |tool, impact| scores[tool as usize] += weight * impact);
    }
    scores
}

/// The best so many tools that have a score, in no order. They are dealt out to columns: at least so many tools reach
/// what so many columns have, and only columns that have it are looked through.
fn select_best(scores: &[f32], keep: usize) -> Vec<ScoredTool> {
    let mut columns = [0.0_f32; SCORE_COLUMNS];
    for row in scores.chunks(SCORE_COLUMNS) {
        for (highest, score) in columns.iter_mut().zip(row) {
            *highest = if score > highest { *score } else { *highest };
        }
    }
    let reached = match keep {
        1..=SCORE_COLUMNS => *columns.clone().select_nth_unstable_by(keep - 1, |one, other| other.total_cmp(one)).1,
        _ => 0.0,
    };
    let floor = reached.max(f32::MIN_POSITIVE);
    let mut best: Vec<ScoredTool> = Vec::with_capacity(2 * keep);
    for (column, _) in columns.iter().enumerate().filter(|(_, highest)| **highest >= floor) {
        let tools = (column..scores.len()).step_by(SCORE_COLUMNS);
        let scored = tools.map(|tool| ScoredTool { score: scores[tool], tool: tool as u32 });
        best.extend(scored.filter(|scored| scored.score >= floor));
    }
    if keep < best.len() {
        best.select_nth_unstable_by(keep, compare_scores);
        best.truncate(keep);
    }
    best
}

/// The better score, then the name that stands first.
pub(super) fn compare_scores(one: &ScoredTool, other: &ScoredTool) -> Ordering {
    other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(scores: &[f32], keep: usize) {
        let mut expected: Vec<ScoredTool> =
            scores.iter().enumerate().map(|(tool, &score)| ScoredTool { score, tool: tool as u32 }).collect();
        expected.retain(|scored| scored.score > 0.0);
        expected.sort_by(compare_scores);
        let keep = keep.min(expected.len());
        expected.truncate(keep);
        let mut found = select_best(scores, keep);
        found.sort_by(compare_scores);
        assert_eq!(found, expected, "{keep} of {}", scores.len());
    }

    #[test]
    fn the_best_are_the_best_around_the_number_of_columns() {
        for tools in [0, 1, SCORE_COLUMNS - 1, SCORE_COLUMNS, SCORE_COLUMNS + 1, 5 * SCORE_COLUMNS] {
            let few_values: Vec<f32> = (0..tools).map(|tool| (tool * 7919 % 13) as f32).collect();
            for keep in [0, 1, 150, SCORE_COLUMNS, SCORE_COLUMNS + 1, tools] {
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
