//! Collapses the same tool at several sources into one hit that lists the other sources. A server may be configured
//! twice, or several servers offer the same tool; copies would push all other tools out of a short result.

use std::collections::HashMap;

use super::index::{SearchIndex, TermMap};
use super::name_match::NameMatch;
use super::rank::{RankedHit, ScoredTool};

/// Minimum share of common terms (Jaccard similarity) for two tools of the same name to count as duplicates.
const MIN_SIMILARITY: f32 = 0.8;
/// Minimum number of distinct terms for the comparison: very short texts such as `search` or `list projects` can be
/// equal for tools with different purposes.
const MIN_COMPARED_TERMS: usize = 6;

/// Returns at most `limit` hits. A tool whose name the query contains keeps a hit of its own. Only tools with the same
/// name and of different sources are compared.
pub(super) fn collapse_duplicates(
    index: &SearchIndex,
    best: Vec<ScoredTool>,
    named: &HashMap<u32, NameMatch>,
    limit: usize,
) -> Vec<RankedHit> {
    let mut hits: Vec<RankedHit> = Vec::new();
    let mut term_sets = TermSets { index, by_tool: HashMap::new() };
    let mut by_name: TermMap<Vec<usize>> = TermMap::default();
    for scored in best {
        let same_name = by_name.entry(index.forward_index().name_key(scored.tool)).or_default();
        // A query that names the tool means this source.
        let is_name_match = named.get(&scored.tool).is_some_and(|name_match| name_match.is_certain());
        let duplicate_of = same_name
            .iter()
            .copied()
            .find(|&hit| !is_name_match && term_sets.are_duplicates(hits[hit].scored.tool, scored.tool));
        match duplicate_of {
            Some(hit) => hits[hit].duplicates.push(scored.tool),
            // Past the limit, tools only matter as duplicates of hits already listed.
            None if hits.len() >= limit => continue,
            None => {
                same_name.push(hits.len());
                hits.push(RankedHit { scored, duplicates: Vec::new() });
            }
        }
    }
    hits
}

/// Sorted, distinct terms of the tools compared so far.
struct TermSets<'a> {
    index: &'a SearchIndex,
    by_tool: HashMap<u32, Vec<u32>>,
}

impl TermSets<'_> {
    /// Compares two tools by their text; tools of one source are never duplicates of each other.
    fn are_duplicates(&mut self, a: u32, b: u32) -> bool {
        if self.index.segment_of(a) == self.index.segment_of(b) {
            return false;
        }
        for tool in [a, b] {
            self.by_tool.entry(tool).or_insert_with(|| {
                let mut terms = self.index.forward_index().sequence(tool).to_vec();
                terms.sort_unstable();
                terms.dedup();
                terms
            });
        }
        term_similarity(&self.by_tool[&a], &self.by_tool[&b]) >= MIN_SIMILARITY
    }
}

/// Jaccard similarity of two sorted term lists, or 0 for texts that are too short to compare.
fn term_similarity(a: &[u32], b: &[u32]) -> f32 {
    let common = a.iter().filter(|word| b.binary_search(word).is_ok()).count();
    let union = a.len() + b.len() - common;
    if union < MIN_COMPARED_TERMS { 0.0 } else { common as f32 / union as f32 }
}
