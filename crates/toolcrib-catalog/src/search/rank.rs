//! Ranks the tools of a catalogue for a query: scores all tools by terms and names, selects the best candidates,
//! reranks them and collapses duplicates.
//!
//! The first pass touches every tool and must be cheap: one addition per posting of a query term. The second pass
//! (`rerank`) is more expensive per tool and sees only the best [`MIN_CANDIDATES`] tools, or twice the limit if that is
//! more, and the tools matched by name.

use std::cmp::Ordering;

use super::embeddings::{EmbeddingModel, QuerySimilarity};
use super::index::SearchIndex;
use super::parsed_query::ParsedQuery;
use super::query_text::StatedSource;
use super::resolved_query::{ResolvedQuery, ResolvedTerm};
use super::{Query, duplicates, fuzzy, name_match, rerank, strength};

/// Minimum number of tools that the reranking pass considers.
const MIN_CANDIDATES: usize = 150;
/// Score increase, as a share of the score, for tools of a source that the query may state: `in github`.
const STATED_SOURCE_WEIGHT: f32 = 0.3;
/// The same for a source that the query states beyond doubt: `from the slack server`.
const EXPLICIT_SOURCE_WEIGHT: f32 = 2.0;
/// Number of columns in [`select_best`]. Several times [`MIN_CANDIDATES`], so that few columns hold two of the best.
const SCORE_COLUMNS: usize = 1024;

/// A tool number with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ScoredTool {
    pub(super) score: f32,
    pub(super) tool: u32,
}

/// A hit before it is formatted.
#[derive(Debug, PartialEq)]
pub(super) struct RankedHit {
    pub(super) scored: ScoredTool,
    /// The same tool at other sources.
    pub(super) duplicates: Vec<u32>,
}

/// Result of [`rank_tools`].
#[derive(Debug, Default)]
pub(super) struct Ranking {
    pub(super) hits: Vec<RankedHit>,
    /// Number of tools that words of the query explain, without those that only a related word does. Includes tools
    /// beyond the limit.
    pub(super) total: usize,
    /// Whether none of the hits answers the query well.
    pub(super) is_weak: bool,
}

/// Ranks all searchable tools; with a model, semantic similarity is added to the term scores.
pub(super) fn rank_tools(index: &SearchIndex, query: &Query, model: Option<&EmbeddingModel>) -> Ranking {
    // Score every tool.
    let parsed = ParsedQuery::parse(&query.text);
    let mut resolved = ResolvedQuery::new(index, &parsed);
    fuzzy::correct_words(index, &parsed, &mut resolved);
    let mut scores = vec![0.0_f32; index.len()];
    add_term_scores(index, &resolved.terms, &mut scores);
    fuzzy::add_substring_scores(index, &parsed, &mut scores);
    let related_only = RelatedOnly::add_scores(index, &resolved.related, &mut scores);
    let similarity = model.map(|model| QuerySimilarity::measure(index, model, parsed.text)).unwrap_or_default();
    similarity.add_scores(&mut scores);
    boost_stated_sources(index, &parsed, &mut scores);
    let named = name_match::match_names(index, &parsed);
    for &tool in named.keys() {
        // A tool matched by name is a result even if none of its terms matches.
        scores[tool as usize] = scores[tool as usize].max(f32::MIN_POSITIVE);
    }
    index.clear_excluded_scores(query, &mut scores);

    // Select candidates: twice the limit, as duplicates will be collapsed. Tools matched by name are always among them.
    let found = scores.iter().filter(|score| **score > 0.0).count();
    let is_counted = |tool: u32| !related_only.contains(tool) || named.contains_key(&tool);
    // Tools matched by name are few, so that they are added again instead of looked up for every tool.
    let is_found = |tool: &&u32| scores[**tool as usize] > 0.0;
    let named_count = named.keys().filter(is_found).filter(|tool| related_only.contains(**tool)).count();
    let total = found - related_only.count(&scores) + named_count;
    let limit = if query.limit == 0 { found } else { query.limit };
    let keep = MIN_CANDIDATES.max(limit.saturating_mul(2)).min(found);
    let mut best = select_best(&scores, keep);
    if let Some(last) = best.iter().copied().max_by(compare_scores) {
        let named = named.keys().map(|tool| ScoredTool { score: scores[*tool as usize], tool: *tool });
        best.extend(named.filter(|named| named.score > 0.0 && compare_scores(&last, named) == Ordering::Less));
    }
    // Refine their order.
    let comes_last =
        |tool: u32| related_only.is_single(tool) && !similarity.supports(tool) && !named.contains_key(&tool);
    rerank::rerank(index, &parsed, &resolved, &comes_last, &mut best);
    name_match::boost_named(&named, &mut best);
    let hits = duplicates::collapse_duplicates(index, best, &named, limit);
    let judged = hits.iter().filter(|hit| is_counted(hit.scored.tool));
    let judged = judged.map(|hit| (hit, named.get(&hit.scored.tool).copied()));
    let is_weak = strength::are_weak(index, &parsed, &resolved, judged);
    Ranking { hits, total, is_weak }
}

/// BM25F: adds term score times rarity for each of the terms.
fn add_term_scores(index: &SearchIndex, terms: &[ResolvedTerm<'_>], scores: &mut [f32]) {
    for ResolvedTerm { stats, weight, .. } in terms {
        index.for_each_posting(stats, |tool, impact| scores[tool as usize] += weight * impact);
    }
}

/// Raises the scores of the tools of sources that the query states: `in github`, `from the slack server`.
fn boost_stated_sources(index: &SearchIndex, parsed: &ParsedQuery<'_>, scores: &mut [f32]) {
    // Of several candidates at one position the longest comes first; a source is raised once.
    let mut raised: Vec<&str> = Vec::new();
    for StatedSource { name, is_explicit } in &parsed.stated_sources {
        if raised.contains(&name.as_str()) {
            continue;
        }
        let factor = 1.0 + if *is_explicit { EXPLICIT_SOURCE_WEIGHT } else { STATED_SOURCE_WEIGHT };
        if index.scale_source_scores(name, factor, scores) {
            raised.push(name);
        }
    }
}

/// Tools that only related words of a query explain. Empty lists if the query has no related words.
#[derive(Debug, Default)]
struct RelatedOnly {
    /// Whether a tool has a word of the query itself.
    is_direct: Vec<bool>,
    /// Which word of the query a tool has related words of: [`RelatedOnly::NO_WORD`], the position of a single word, or
    /// [`RelatedOnly::SEVERAL_WORDS`].
    related_word: Vec<u8>,
}

impl RelatedOnly {
    const NO_WORD: u8 = u8::MAX;
    const SEVERAL_WORDS: u8 = u8::MAX - 1;

    /// Adds the scores of the related words to those of the words themselves.
    fn add_scores(index: &SearchIndex, related: &[ResolvedTerm<'_>], scores: &mut [f32]) -> RelatedOnly {
        if related.is_empty() {
            return RelatedOnly::default();
        }
        let is_direct = scores.iter().map(|score| *score > 0.0).collect();
        let mut related_word = vec![RelatedOnly::NO_WORD; scores.len()];
        for ResolvedTerm { stats, weight, query_term, .. } in related {
            let word = u8::try_from(*query_term).unwrap_or(u8::MAX).min(RelatedOnly::SEVERAL_WORDS - 1);
            // Many postings, in no predictable order: the choice is one of values, without a branch.
            index.for_each_posting(stats, |tool, impact| {
                scores[tool as usize] += weight * impact;
                let known = &mut related_word[tool as usize];
                let is_same = (*known == RelatedOnly::NO_WORD) | (*known == word);
                *known = if is_same { word } else { RelatedOnly::SEVERAL_WORDS };
            });
        }
        RelatedOnly { is_direct, related_word }
    }

    /// Number of tools with a positive score that have no word of the query themselves.
    fn count(&self, scores: &[f32]) -> usize {
        let tools = self.is_direct.iter().zip(&self.related_word).zip(scores);
        tools
            .filter(|((is_direct, word), score)| !**is_direct & (**word != RelatedOnly::NO_WORD) & (**score > 0.0))
            .count()
    }

    /// The related word of a tool that has no word of the query itself.
    fn related_word(&self, tool: u32) -> Option<u8> {
        let is_direct = *self.is_direct.get(tool as usize)?;
        let word = *self.related_word.get(tool as usize)?;
        (!is_direct && word != RelatedOnly::NO_WORD).then_some(word)
    }

    /// Whether a tool has no word of the query itself.
    fn contains(&self, tool: u32) -> bool {
        self.related_word(tool).is_some()
    }

    /// Whether a tool has words related to a single one of the query. Two of them support each other, so that such a
    /// tool is not put behind others; measured, that would lose more than it gains.
    fn is_single(&self, tool: u32) -> bool {
        self.related_word(tool).is_some_and(|word| word != RelatedOnly::SEVERAL_WORDS)
    }
}

/// Returns the `keep` tools with the highest positive scores, unsorted. Faster than a selection over all tools: scores
/// are distributed over columns, the `keep`-th highest column maximum is a lower bound for the result, and only columns
/// that reach it are scanned.
fn select_best(scores: &[f32], keep: usize) -> Vec<ScoredTool> {
    let mut columns = [0.0_f32; SCORE_COLUMNS];
    for row in scores.chunks(SCORE_COLUMNS) {
        for (column_best, score) in columns.iter_mut().zip(row) {
            *column_best = if score > column_best { *score } else { *column_best };
        }
    }
    // With `keep` columns at or above the threshold there are at least `keep` such tools, so none below it is needed.
    let threshold = match keep {
        1..=SCORE_COLUMNS => *columns.clone().select_nth_unstable_by(keep - 1, |a, b| b.total_cmp(a)).1,
        _ => 0.0,
    };
    let floor = threshold.max(f32::MIN_POSITIVE);
    let mut best: Vec<ScoredTool> = Vec::with_capacity(2 * keep);
    for (column, _) in columns.iter().enumerate().filter(|(_, column_best)| **column_best >= floor) {
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

/// Orders by descending score, then by tool number, i.e. by name within a source.
pub(super) fn compare_scores(a: &ScoredTool, b: &ScoredTool) -> Ordering {
    b.score.total_cmp(&a.score).then(a.tool.cmp(&b.tool))
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
    fn select_best_is_correct_around_the_number_of_columns() {
        for tools in [0, 1, SCORE_COLUMNS - 1, SCORE_COLUMNS, SCORE_COLUMNS + 1, 5 * SCORE_COLUMNS] {
            let scores: Vec<f32> = (0..tools).map(|tool| (tool * 7919 % 13) as f32).collect();
            for keep in [0, 1, 150, SCORE_COLUMNS, SCORE_COLUMNS + 1, tools] {
                check(&scores, keep);
            }
        }
    }

    proptest! {
        #[test]
        fn select_best_equals_a_full_sort(seeds in prop::collection::vec(0_u8..40, 0..4000), keep in 0_usize..2000) {
            check(&seeds.iter().map(|seed| f32::from(*seed) / 4.0).collect::<Vec<_>>(), keep);
        }
    }
}
