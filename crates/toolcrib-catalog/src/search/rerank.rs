//! Second ranking pass over the best tools of the first: adds scores for adjacent terms, for names that the query
//! covers and for sources that match as a whole, then diversifies the top results.
//!
//! Reads the forward index instead of the postings, since it needs all terms of few tools. A change of the constants is
//! measured with `toolcrib eval`.

use super::index::{SearchIndex, TermStats};
use super::parsed_query::ParsedQuery;
use super::rank::{ScoredTool, compare_scores};
use super::resolved_query::{ResolvedQuery, ResolvedTerm};

/// Score of two adjacent query terms that are adjacent in a tool's text too, multiplied by their mean rarity.
const ADJACENT_PAIR_WEIGHT: f32 = 0.15;
/// Score increase, as a share of the score, for a tool name that the query covers completely.
const WHOLE_NAME_WEIGHT: f32 = 0.3;
/// Share of a name term that a related term (synonym) covers.
const RELATED_NAME_SHARE: f32 = 0.3;
/// Share of a source's best score that is added to each of its tools.
const BEST_SOURCE_WEIGHT: f32 = 0.2;
/// Score increase, as a share of the score, for a tool that only reads when the query is a question.
const READ_ONLY_WEIGHT: f32 = 0.02;
/// Number of top results that are diversified, chosen among [`DIVERSIFICATION_CANDIDATES`].
const DIVERSIFIED_RESULTS: usize = 10;
const DIVERSIFICATION_CANDIDATES: usize = 30;
/// Penalty on the score of terms that earlier results cover already, as a share of that score.
const COVERED_TERM_PENALTY: f32 = 0.3;

/// Rescores `best` in place and sorts it in descending order, those for which `comes_last` is true at the end.
pub(super) fn rerank(
    index: &SearchIndex,
    parsed: &ParsedQuery<'_>,
    resolved: &ResolvedQuery<'_>,
    comes_last: &impl Fn(u32) -> bool,
    best: &mut Vec<ScoredTool>,
) {
    let query_terms = QueryTerms::new(resolved);
    let texts = index.forward_index();
    let mut best_by_segment = vec![0.0_f32; index.segment_count()];
    for scored in best.iter_mut() {
        // Adjacent terms add to the score; a covered name multiplies it.
        let pairs = query_terms.pair_score(texts.sequence(scored.tool));
        let share = query_terms.name_share(texts.name_terms(scored.tool), texts.name_rarity(scored.tool));
        scored.score = (scored.score + pairs) * (1.0 + WHOLE_NAME_WEIGHT * share);
        // A question is answered by reading; decides between tools that match equally well.
        if parsed.is_question && index.card(scored.tool).is_some_and(|card| card.is_read_only) {
            scored.score *= 1.0 + READ_ONLY_WEIGHT;
        }
        let segment_best = &mut best_by_segment[index.segment_of(scored.tool) as usize];
        *segment_best = segment_best.max(scored.score);
    }
    // With a single source, the bonus would be the same for every tool.
    let mut sources = best.iter().map(|scored| index.segment_of(scored.tool));
    let first = sources.next();
    if sources.any(|source| Some(source) != first) {
        for scored in best.iter_mut() {
            scored.score += BEST_SOURCE_WEIGHT * best_by_segment[index.segment_of(scored.tool) as usize];
        }
    }
    best.sort_unstable_by(compare_scores);
    let (mut direct, related): (Vec<ScoredTool>, Vec<ScoredTool>) =
        best.drain(..).partition(|scored| !comes_last(scored.tool));
    diversify(index, &resolved.terms, &mut direct);
    let last = direct.last().map_or(f32::MAX, |scored| scored.score);
    best.append(&mut direct);
    // Scores must not increase down the list.
    best.extend(related.into_iter().map(|scored| ScoredTool { score: scored.score.min(last), ..scored }));
}

/// The query by term numbers, prepared for comparison with many tools.
struct QueryTerms {
    /// `(term number, rarity, share of a name term that it covers)`, sorted by number for binary search.
    terms: Vec<(u32, f32, f32)>,
    term_filter: BitFilter,
    /// `(first term, second term, score)` of adjacent query terms.
    pairs: Vec<(u32, u32, f32)>,
    pair_filter: BitFilter,
}

impl QueryTerms {
    fn new(resolved: &ResolvedQuery<'_>) -> QueryTerms {
        let related = resolved.related.iter().map(|related| (related.stats, RELATED_NAME_SHARE));
        // A path in the query does not name a tool.
        let own = resolved.terms.iter().filter(|term| !term.is_in_path).map(|term| (term.stats, 1.0));
        let terms = related.chain(own);
        let mut terms: Vec<(u32, f32, f32)> = terms.map(|(stats, share)| (stats.number, stats.rarity, share)).collect();
        terms.sort_unstable_by_key(|(number, ..)| *number);
        let pair_weight =
            |first: &TermStats, second: &TermStats| ADJACENT_PAIR_WEIGHT * ((first.rarity + second.rarity) / 2.0);
        QueryTerms {
            term_filter: BitFilter::from_numbers(terms.iter().map(|(number, ..)| *number)),
            terms,
            // Only the first term of a pair is in the filter: it decides whether the list of pairs is scanned.
            pair_filter: BitFilter::from_numbers(resolved.pairs.iter().map(|(first, _)| first.number)),
            pairs: resolved
                .pairs
                .iter()
                .map(|(first, second)| (first.number, second.number, pair_weight(first, second)))
                .collect(),
        }
    }

    /// Sums the weights of the query's adjacent pairs that are adjacent in `sequence` too; each pair counts once.
    fn pair_score(&self, sequence: &[u32]) -> f32 {
        // A repeated phrase counts once, so that long descriptions gain nothing by repetition.
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut sum = 0.0;
        for pair in sequence.windows(2) {
            if !self.pair_filter.may_contain(pair[0]) {
                continue;
            }
            let pair_match = self.pairs.iter().find(|(first, second, _)| (*first, *second) == (pair[0], pair[1]));
            if let Some(&(first, second, weight)) = pair_match
                && !found.contains(&(first, second))
            {
                sum += weight;
                found.push((first, second));
            }
        }
        sum
    }

    /// Returns the rarity-weighted share of a tool's name that the query covers, from 0 to 1.
    fn name_share(&self, name: &[u32], rarity: f32) -> f32 {
        let mut matched = 0.0;
        for term in name.iter().filter(|term| self.term_filter.may_contain(**term)) {
            if let Ok(position) = self.terms.binary_search_by_key(term, |(number, ..)| *number) {
                let (_, rarity, share) = self.terms[position];
                matched += rarity * share;
            }
        }
        if rarity > 0.0 { matched / rarity } else { 0.0 }
    }
}

/// One-hash Bloom filter: answers "not contained" without a search for most term numbers.
struct BitFilter([bool; 4096]);

impl BitFilter {
    fn from_numbers(numbers: impl Iterator<Item = u32>) -> BitFilter {
        let mut filter = BitFilter([false; 4096]);
        numbers.for_each(|number| filter.0[number as usize % 4096] = true);
        filter
    }

    fn may_contain(&self, number: u32) -> bool {
        self.0[number as usize % 4096]
    }
}

/// Reorders the top results so that together they cover more of the query: a task may need several tools, and terms
/// that earlier results cover count less for later ones (a form of maximal marginal relevance).
fn diversify(index: &SearchIndex, terms: &[ResolvedTerm<'_>], best: &mut Vec<ScoredTool>) {
    // Only the first candidates are reordered: each choice compares all of them.
    let mut rest = best.split_off(DIVERSIFICATION_CANDIDATES.min(best.len()));
    // Greedy: in each round the candidate with the best score after penalties is taken.
    let term_scores_of = term_scores(index, terms, best);
    let term_scores_of = |row: usize| &term_scores_of[row * terms.len()..(row + 1) * terms.len()];
    let mut candidates: Vec<(usize, ScoredTool)> = best.drain(..).enumerate().collect();
    let mut covered = vec![0.0_f32; terms.len()];
    // Share of each term that the results chosen so far cover, from 0 to 1.
    while !candidates.is_empty() {
        let adjusted = |(row, scored): &(usize, ScoredTool)| {
            let repeated: f32 = term_scores_of(*row)
                .iter()
                .zip(&covered)
                .map(|(term_scores_of, covered)| term_scores_of * covered)
                .sum();
            ScoredTool { score: scored.score - COVERED_TERM_PENALTY * repeated, ..*scored }
        };
        // Positions beyond the diversified ones get the final penalties, but no further selection.
        if best.len() >= DIVERSIFIED_RESULTS {
            best.extend(candidates.iter().map(adjusted));
            break;
        }
        let nearest = candidates.iter().map(adjusted).enumerate().min_by(|(_, a), (_, b)| compare_scores(a, b));
        let Some((position, scored)) = nearest else { break };
        best.push(scored);
        let (row, _) = candidates.remove(position);
        for ((covered, term_scores_of), term) in covered.iter_mut().zip(term_scores_of(row)).zip(terms) {
            *covered = covered.max(if term.weight > 0.0 { term_scores_of / term.weight } else { 0.0 });
        }
    }
    let diversified = best.len().min(DIVERSIFIED_RESULTS);
    best[diversified..].sort_unstable_by(compare_scores);
    // Scores must not increase down the list: cap those of the tools that were not reordered.
    let last = best.last().map_or(f32::MAX, |scored| scored.score);
    rest.iter_mut().for_each(|scored| scored.score = scored.score.min(last));
    best.append(&mut rest);
}

/// Returns the score of each term for each tool, as a row-major matrix with one row per tool.
fn term_scores(index: &SearchIndex, terms: &[ResolvedTerm<'_>], tools: &[ScoredTool]) -> Vec<f32> {
    let mut scores = vec![0.0; tools.len() * terms.len()];
    for (column, term) in terms.iter().enumerate() {
        let postings = index.postings(term.stats);
        for (row, scored) in tools.iter().enumerate() {
            if let Ok(found) = postings.binary_search_by_key(&scored.tool, |posting| posting.tool) {
                scores[row * terms.len() + column] = postings[found].impact * term.weight;
            }
        }
    }
    scores
}
