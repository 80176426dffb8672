//! The same tool at several sources takes one line: the best of them, and where else it can be had.

use std::collections::HashMap;

use super::directory::{Directory, Keyed};
use super::names::Named;
use super::rank::{Line, Scored};

/// How much of two tools' texts must be the same, from 0 to 1.
const SAME: f32 = 0.8;
/// With fewer words between them, two tools may well be about different things: `search`, `list projects`.
const TELLING: usize = 6;

/// The lines of an answer, at most `limit`. A tool whose name was asked for keeps its own.
pub(super) fn collapsed(
    directory: &Directory,
    best: Vec<Scored>,
    named: &HashMap<u32, Named>,
    limit: usize,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut by_name: Keyed<Vec<usize>> = Keyed::default();
    for scored in best {
        let alike = by_name.entry(directory.texts().own(scored.tool)).or_default();
        let asked_for = named.contains_key(&scored.tool);
        let same =
            alike.iter().copied().find(|&line| !asked_for && is_same(directory, lines[line].scored.tool, scored.tool));
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

fn is_same(directory: &Directory, one: u32, other: u32) -> bool {
    directory.place_of(one) != directory.place_of(other)
        && likeness(directory.texts().sequence(one), directory.texts().sequence(other)) >= SAME
}

/// The share of words that two texts have in common.
fn likeness(one: &[u32], other: &[u32]) -> f32 {
    let sorted = |words: &[u32]| {
        let mut terms = words.to_vec();
        terms.sort_unstable();
        terms.dedup();
        terms
    };
    let (one, other) = (sorted(one), sorted(other));
    let common = one.iter().filter(|term| other.binary_search(term).is_ok()).count();
    let all = one.len() + other.len() - common;
    if all < TELLING { 0.0 } else { common as f32 / all as f32 }
}
