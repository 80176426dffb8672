//! How well hits answer a query, as far as words can tell. If all hits are weak, the response says so: an agent should
//! not call a tool for running commands because a query about a cat has a word with it in common.

use super::index::SearchIndex;
use super::name_match::NameMatch;
use super::parsed_query::ParsedQuery;
use super::rank::RankedHit;
use super::resolved_query::ResolvedQuery;

/// Shares of the most that a hit can score by the heaviest words of the query, below which it is weak. Calibrated on
/// labelled queries against questions that no tool answers.
const LONG_QUERY: MinShares = MinShares { in_name: 0.15, elsewhere: 0.2 };
/// The same for queries of at most [`MAX_SHORT_TERMS`] words: one word of two says less than one of many does, for the
/// other one is the subject of the query (`feed the cat`). Unless the hit has a related word for it.
const SHORT_QUERY: MinShares = MinShares { in_name: 0.25, elsewhere: 0.33 };
/// Maximum number of words of a short query, without those that frame it, numbers and paths.
const MAX_SHORT_TERMS: usize = 2;
/// Number of the heaviest words of a query that a hit is compared with; a long task has many more than any tool
/// contains.
const COMPARED_TERMS: usize = 3;
/// Number of words in common that make a hit strong.
const MIN_COMMON_TERMS: usize = 2;
/// Share below which a hit is weak however many words it has in common.
const MIN_SHARE_OF_MANY: f32 = 0.1;

/// Limits for hits that have at most one word in common with the query.
struct MinShares {
    /// If that word is in the name of the tool.
    in_name: f32,
    elsewhere: f32,
}

/// Whether none of the hits answers the query well.
pub(super) fn are_weak<'h>(
    index: &SearchIndex,
    parsed: &ParsedQuery<'_>,
    resolved: &ResolvedQuery<'_>,
    mut hits: impl Iterator<Item = (&'h RankedHit, Option<NameMatch>)>,
) -> bool {
    let mut weights: Vec<f32> = parsed
        .terms
        .iter()
        .map(|term| term.weight * index.term(term.key).map_or_else(|| index.max_rarity(), |stats| stats.rarity))
        .collect();
    weights.sort_unstable_by(|a, b| b.total_cmp(a));
    let best_possible: f32 = weights.iter().take(COMPARED_TERMS).sum();
    // Words that only frame a request, numbers and paths are no evidence.
    let content_terms = parsed.terms.iter().filter(|term| term.weight >= 1.0).count();
    let is_strong = |tool: u32| {
        let mut score = 0.0;
        let mut is_in_name = false;
        // By position in the query: terms that the tool has, and these with those that it has after correction.
        let mut common = vec![false; parsed.terms.len()];
        let mut common_or_corrected = common.clone();
        for term in &resolved.terms {
            let impact = index.impact(term.stats, tool);
            score += term.weight * impact;
            if impact > 0.0 && term.weight > 0.0 && !term.is_minor {
                common_or_corrected[term.query_term] = true;
                if !term.is_correction {
                    common[term.query_term] = true;
                    is_in_name |= index.forward_index().name_terms(tool).contains(&term.stats.number);
                }
            }
        }
        // `rename a document` is about files.
        let mut explained = common_or_corrected.clone();
        for related in resolved.related.iter().filter(|related| index.impact(related.stats, tool) > 0.0) {
            explained[related.query_term] |= parsed.terms[related.query_term].weight >= 1.0;
        }
        // A corrected word is a guess (`planks` is near `plans`), unless all other words are common too.
        let count = |terms: &[bool]| terms.iter().filter(|is_common| **is_common).count();
        let corrected = count(&common_or_corrected);
        let is_short = content_terms <= MAX_SHORT_TERMS && count(&explained) < content_terms;
        let min_shares = if is_short { SHORT_QUERY } else { LONG_QUERY };
        let common = if corrected == content_terms { corrected } else { count(&common) };
        let share = if best_possible > 0.0 { score / best_possible } else { 0.0 };
        let min_share = if common >= MIN_COMMON_TERMS.min(content_terms.max(1)) {
            MIN_SHARE_OF_MANY
        } else if is_in_name {
            min_shares.in_name
        } else {
            min_shares.elsewhere
        };
        share >= min_share
    };
    !hits.any(|(hit, name_match)| name_match.is_some() || is_strong(hit.scored.tool))
}
