//! How well hits answer a query, as far as words can tell. If all hits are weak, the response says so: an agent should
//! not call a tool for running commands because a query about a cat has a word with it in common.

use super::index::SearchIndex;
use super::name_match::NameMatch;
use super::parsed_query::ParsedQuery;
use super::rank::RankedHit;
use super::resolved_query::ResolvedQuery;

/// Share of the most that a hit can score by the heaviest words of the query, below which it is weak. Calibrated on
/// labelled queries against questions that no tool answers.
const MIN_SHARE: f32 = 0.2;
/// Number of the heaviest words of a query that a hit is compared with; a long task has many more than any tool
/// contains.
const COMPARED_TERMS: usize = 3;
/// Number of words in common that make a hit strong.
const MIN_COMMON_TERMS: usize = 2;
/// Share below which a hit is weak that has only one word in common, in its name.
const MIN_SHARE_IN_NAME: f32 = 0.15;
/// Share below which a hit is weak however many words it has in common.
const MIN_SHARE_OF_MANY: f32 = 0.1;

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
        let mut common = 0;
        let mut is_in_name = false;
        for term in &resolved.terms {
            let impact = index.impact(term.stats, tool);
            score += term.weight * impact;
            if impact > 0.0 && term.weight > 0.0 && !term.is_minor {
                common += 1;
                // A corrected word is a guess: `plants` is near `plans`.
                is_in_name |=
                    !term.is_correction && index.forward_index().name_terms(tool).contains(&term.stats.number);
            }
        }
        let share = if best_possible > 0.0 { score / best_possible } else { 0.0 };
        let min_share = if common >= MIN_COMMON_TERMS.min(content_terms.max(1)) {
            MIN_SHARE_OF_MANY
        } else if is_in_name {
            MIN_SHARE_IN_NAME
        } else {
            MIN_SHARE
        };
        share >= min_share
    };
    !hits.any(|(hit, name_match)| name_match.is_some() || is_strong(hit.scored.tool))
}
