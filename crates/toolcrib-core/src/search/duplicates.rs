//! The same tool at several sources takes one line: the best of them, and where else it can be had.

use std::collections::HashMap;

use super::directory::{Directory, Keyed};
use super::names::Named;
use super::rank::{Line, Scored};

/// How much of two tools' texts must be the same, from 0 to 1.
const SAME: f32 = 0.8;
/// With fewer words between them, two tools may well be about different things: `search`, `list projects`.
const TELLING: usize = 6;

/// The lines of an answer, at most `limit`. A tool whose very name was asked for keeps its own. Tools of one name are
/// compared with each other, and their words only where they are of different sources.
pub(super) fn collapsed(
    directory: &Directory,
    best: Vec<Scored>,
    named: &HashMap<u32, Named>,
    limit: usize,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut words = Distinct { directory, by_tool: HashMap::new() };
    let mut by_name: Keyed<Vec<usize>> = Keyed::default();
    for scored in best {
        let alike = by_name.entry(directory.texts().own(scored.tool)).or_default();
        let asked_for = named.get(&scored.tool).is_some_and(|named| named.surely());
        let same =
            alike.iter().copied().find(|&line| !asked_for && words.are_same(lines[line].scored.tool, scored.tool));
        match same {
            Some(line) => lines[line].also.push(scored.tool),
            // Beyond the last line, only copies of what is shown are of interest.
            None if lines.len() >= limit => continue,
            None => {
                alike.push(lines.len());
                lines.push(Line { scored, also: Vec::new() });
            }
        }
    }
    lines
}

/// The words of tools that were compared, each once, in order.
struct Distinct<'a> {
    directory: &'a Directory,
    by_tool: HashMap<u32, Vec<u32>>,
}

impl Distinct<'_> {
    fn are_same(&mut self, one: u32, other: u32) -> bool {
        if self.directory.place_of(one) == self.directory.place_of(other) {
            return false;
        }
        for tool in [one, other] {
            self.by_tool.entry(tool).or_insert_with(|| {
                let mut words = self.directory.texts().sequence(tool).to_vec();
                words.sort_unstable();
                words.dedup();
                words
            });
        }
        likeness(&self.by_tool[&one], &self.by_tool[&other]) >= SAME
    }
}

/// The share of words that two texts have in common.
fn likeness(one: &[u32], other: &[u32]) -> f32 {
    let common = one.iter().filter(|word| other.binary_search(word).is_ok()).count();
    let all = one.len() + other.len() - common;
    if all < TELLING { 0.0 } else { common as f32 / all as f32 }
}
