//! The same tool at several sources takes one line: the best of them, and where else it can be had.

use std::collections::HashMap;

use super::index::{SearchIndex, TermMap};
use super::name_match::NameMatch;
use super::rank::{RankedHit, ScoredTool};

/// How much of two tools' texts must be the same, from 0 to 1.
const MIN_SIMILARITY: f32 = 0.8;
/// With fewer words between them, two tools may well be about different things: `search`, `list projects`.
const MIN_COMPARED_TERMS: usize = 6;

/// The lines of an answer, at most `limit`. A tool whose very name was asked for keeps its own. Tools of one name are
/// compared with each other, and their words only where they are of different sources.
pub(super) fn collapse_duplicates(
    directory: &SearchIndex,
    best: Vec<ScoredTool>,
    named: &HashMap<u32, NameMatch>,
    limit: usize,
) -> Vec<RankedHit> {
    let mut lines: Vec<RankedHit> = Vec::new();
    let mut words = TermSets { directory, by_tool: HashMap::new() };
    let mut by_name: TermMap<Vec<usize>> = TermMap::default();
    for scored in best {
        let alike = by_name.entry(directory.forward_index().name_key(scored.tool)).or_default();
        let asked_for = named.get(&scored.tool).is_some_and(|named| named.is_certain());
        let same = alike
            .iter()
            .copied()
            .find(|&line| !asked_for && words.are_duplicates(lines[line].scored.tool, scored.tool));
        match same {
            Some(line) => lines[line].duplicates.push(scored.tool),
            // Beyond the last line, only copies of what is shown are of interest.
            None if lines.len() >= limit => continue,
            None => {
                alike.push(lines.len());
                lines.push(RankedHit { scored, duplicates: Vec::new() });
            }
        }
    }
    lines
}

/// The words of tools that were compared, each once, in order.
struct TermSets<'a> {
    directory: &'a SearchIndex,
    by_tool: HashMap<u32, Vec<u32>>,
}

impl TermSets<'_> {
    fn are_duplicates(&mut self, one: u32, other: u32) -> bool {
        if self.directory.segment_of(one) == self.directory.segment_of(other) {
            return false;
        }
        for tool in [one, other] {
            self.by_tool.entry(tool).or_insert_with(|| {
                let mut words = self.directory.forward_index().sequence(tool).to_vec();
                words.sort_unstable();
                words.dedup();
                words
            });
        }
        term_similarity(&self.by_tool[&one], &self.by_tool[&other]) >= MIN_SIMILARITY
    }
}

/// The share of words that two texts have in common.
fn term_similarity(one: &[u32], other: &[u32]) -> f32 {
    let common = one.iter().filter(|word| other.binary_search(word).is_ok()).count();
    let all = one.len() + other.len() - common;
    if all < MIN_COMPARED_TERMS { 0.0 } else { common as f32 / all as f32 }
}
