//! A closer look at the tools that words alone put first: do the words stand side by side, is the name accounted for,
//! does the source fit, and does the tool add something to those before it.

use super::index::{SearchIndex, TermStats};
use super::rank::{ScoredTool, compare_scores};
use super::resolved_query::{ResolvedQuery, ResolvedTerm};

/// What two words side by side add, by their mean rarity.
const ADJACENT_PAIR_WEIGHT: f32 = 0.15;
/// What a name of which every word was asked for adds, as a share of the score.
const WHOLE_NAME_WEIGHT: f32 = 0.3;
/// How far a related word accounts for one in the name.
const RELATED_NAME_SHARE: f32 = 0.3;
/// What a source adds to each of its tools, as a share of its best tool's score.
const BEST_SOURCE_WEIGHT: f32 = 0.2;
/// So many places are filled with an eye to those before, from so many candidates.
const DIVERSIFIED_RESULTS: usize = 10;
const DIVERSIFICATION_CANDIDATES: usize = 30;
/// How much a word that was answered already still counts less.
const COVERED_TERM_PENALTY: f32 = 0.3;

/// Scores anew and puts the best first.
pub(super) fn rerank(directory: &SearchIndex, asked: &ResolvedQuery<'_>, best: &mut Vec<ScoredTool>) {
    let wanted = QueryTerms::new(asked);
    let texts = directory.forward_index();
    let mut best_of = vec![0.0_f32; directory.segment_count()];
    for scored in best.iter_mut() {
        let pairs = wanted.pair_score(texts.sequence(scored.tool));
        let share = wanted.name_share(texts.name_terms(scored.tool), texts.name_rarity(scored.tool));
        scored.score = (scored.score + pairs) * (1.0 + WHOLE_NAME_WEIGHT * share);
        let best_there = &mut best_of[directory.segment_of(scored.tool) as usize];
        *best_there = best_there.max(scored.score);
    }
    // In a catalogue of one source it would say nothing.
    let mut sources = best.iter().map(|scored| directory.segment_of(scored.tool));
    let first = sources.next();
    if sources.any(|source| Some(source) != first) {
        for scored in best.iter_mut() {
            scored.score += BEST_SOURCE_WEIGHT * best_of[directory.segment_of(scored.tool) as usize];
        }
    }
    best.sort_unstable_by(compare_scores);
    diversify(directory, &asked.terms, best);
}

/// The query by the numbers of its terms, ready to be compared with many tools.
struct QueryTerms {
    /// By number: how rare a term is, and how far it accounts for one in a name.
    terms: Vec<(u32, f32, f32)>,
    term_filter: BitFilter,
    /// What pairs are worth.
    pairs: Vec<(u32, u32, f32)>,
    pair_filter: BitFilter,
}

impl QueryTerms {
    fn new(asked: &ResolvedQuery<'_>) -> QueryTerms {
        let related = asked.related.iter().map(|related| (related.stats, RELATED_NAME_SHARE));
        let terms = related.chain(asked.terms.iter().map(|term| (term.stats, 1.0)));
        let mut terms: Vec<(u32, f32, f32)> =
            terms.map(|(spread, share)| (spread.number, spread.rarity, share)).collect();
        terms.sort_unstable_by_key(|(number, ..)| *number);
        let worth = |one: &TermStats, other: &TermStats| ADJACENT_PAIR_WEIGHT * ((one.rarity + other.rarity) / 2.0);
        QueryTerms {
            term_filter: BitFilter::from_numbers(terms.iter().map(|(number, ..)| *number)),
            terms,
            pair_filter: BitFilter::from_numbers(asked.pairs.iter().map(|(first, _)| first.number)),
            pairs: asked.pairs.iter().map(|(one, other)| (one.number, other.number, worth(one, other))).collect(),
        }
    }

    /// What the pairs of the query that stand in a tool's text are worth, each counted once.
    fn pair_score(&self, sequence: &[u32]) -> f32 {
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut sum = 0.0;
        for pair in sequence.windows(2) {
            if !self.pair_filter.may_contain(pair[0]) {
                continue;
            }
            let wanted = self.pairs.iter().find(|(one, other, _)| (*one, *other) == (pair[0], pair[1]));
            if let Some(&(one, other, worth)) = wanted
                && !found.contains(&(one, other))
            {
                sum += worth;
                found.push((one, other));
            }
        }
        sum
    }

    /// How much of a tool's name was asked for, from 0 to 1, rare words before common ones.
    fn name_share(&self, name: &[u32], rarity: f32) -> f32 {
        let mut asked = 0.0;
        for term in name.iter().filter(|term| self.term_filter.may_contain(**term)) {
            if let Ok(position) = self.terms.binary_search_by_key(term, |(number, ..)| *number) {
                let (_, rarity, share) = self.terms[position];
                asked += rarity * share;
            }
        }
        if rarity > 0.0 { asked / rarity } else { 0.0 }
    }
}

/// A quick no for most numbers.
struct BitFilter([bool; 4096]);

impl BitFilter {
    fn from_numbers(numbers: impl Iterator<Item = u32>) -> BitFilter {
        let mut sieve = BitFilter([false; 4096]);
        numbers.for_each(|number| sieve.0[number as usize % 4096] = true);
        sieve
    }

    fn may_contain(&self, number: u32) -> bool {
        self.0[number as usize % 4096]
    }
}

/// A task may need several tools: what the tools before have answered counts less for those that follow.
fn diversify(directory: &SearchIndex, terms: &[ResolvedTerm<'_>], best: &mut Vec<ScoredTool>) {
    let mut rest = best.split_off(DIVERSIFICATION_CANDIDATES.min(best.len()));
    let worth = term_scores(directory, terms, best);
    let worth = |row: usize| &worth[row * terms.len()..(row + 1) * terms.len()];
    let mut left: Vec<(usize, ScoredTool)> = best.drain(..).enumerate().collect();
    let mut answered = vec![0.0_f32; terms.len()];
    while !left.is_empty() {
        let adjusted = |(row, scored): &(usize, ScoredTool)| {
            let again: f32 = worth(*row).iter().zip(&answered).map(|(worth, answered)| worth * answered).sum();
            ScoredTool { score: scored.score - COVERED_TERM_PENALTY * again, ..*scored }
        };
        if best.len() >= DIVERSIFIED_RESULTS {
            best.extend(left.iter().map(adjusted));
            break;
        }
        let nearest = left.iter().map(adjusted).enumerate().min_by(|(_, one), (_, other)| compare_scores(one, other));
        let Some((position, scored)) = nearest else { break };
        best.push(scored);
        let (row, _) = left.remove(position);
        for ((answered, worth), term) in answered.iter_mut().zip(worth(row)).zip(terms) {
            *answered = answered.max(if term.weight > 0.0 { worth / term.weight } else { 0.0 });
        }
    }
    let places = best.len().min(DIVERSIFIED_RESULTS);
    best[places..].sort_unstable_by(compare_scores);
    // Scores go down a list, here too.
    let last = best.last().map_or(f32::MAX, |scored| scored.score);
    rest.iter_mut().for_each(|scored| scored.score = scored.score.min(last));
    best.append(&mut rest);
}

/// What each term is worth for each tool, one tool after the other.
fn term_scores(directory: &SearchIndex, terms: &[ResolvedTerm<'_>], tools: &[ScoredTool]) -> Vec<f32> {
    let mut worth = vec![0.0; tools.len() * terms.len()];
    for (column, term) in terms.iter().enumerate() {
        let postings = directory.postings(term.stats);
        for (row, scored) in tools.iter().enumerate() {
            if let Ok(found) = postings.binary_search_by_key(&scored.tool, |posting| posting.tool) {
                worth[row * terms.len() + column] = postings[found].impact * term.weight;
            }
        }
    }
    worth
}
