//! Scoring every tool that shares a word with the query, and taking the best.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::directory::Directory;
use super::words::{self, Word};
use super::{Hit, Query};

/// A query is read so far. More words say less, and an agent may paste a book.
const LONGEST_QUERY: usize = 4096;
const MOST_TERMS: usize = 64;
/// A word that is repeated counts so often.
const MOST_REPEATS: f32 = 2.0;
/// Above any sum of words: a name that was asked for.
const NAMED: f32 = 1000.0;

#[derive(Debug, PartialEq)]
struct Scored {
    score: f32,
    tool: u32,
}

pub(super) fn ranked(directory: &Directory, query: &Query) -> (Vec<Hit>, usize) {
    let text = beginning(&query.text, LONGEST_QUERY);
    let mut scores = vec![0.0_f32; directory.len()];
    for (key, weight) in terms(directory, text) {
        directory.each(key, |tool, impact| scores[tool as usize] += weight * impact);
    }
    for tool in directory.named(&words::squashed(text)) {
        scores[*tool as usize] += NAMED;
    }
    let wanted = |tool: u32| {
        directory.is_offered(tool)
            && directory.tool(tool).is_some_and(|(tool, _)| {
                query.source.as_ref().is_none_or(|source| source == tool.source())
                    && query.tag.as_ref().is_none_or(|tag| tool.part.manner.tags.contains(tag))
            })
    };
    let matching = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0);
    let scored = matching.map(|(tool, score)| Scored { score, tool: tool as u32 });
    let mut best: BinaryHeap<Scored> = scored.filter(|scored| wanted(scored.tool)).collect();
    let total = best.len();
    let limit = if query.limit == 0 { total } else { query.limit };
    let hits = std::iter::from_fn(|| best.pop()).filter_map(|scored| hit(directory, &scored)).take(limit).collect();
    (hits, total)
}

/// The query's terms, each with what it counts.
fn terms(directory: &Directory, text: &str) -> Vec<(u64, f32)> {
    let mut counted: Vec<(u64, f32)> = Vec::new();
    let mut add = |word: &str| {
        let key = words::key(&words::stem(word));
        match counted.iter().position(|(known, _)| *known == key) {
            Some(position) => counted[position].1 = (counted[position].1 + 1.0).min(MOST_REPEATS),
            None if counted.len() < MOST_TERMS => counted.push((key, 1.0)),
            None => {}
        }
    };
    words::each(text, |Word { whole, parts }| {
        add(&whole);
        parts.iter().for_each(|part| add(part));
    });
    let all = directory.len() as f32;
    for (key, count) in &mut counted {
        let having = directory.frequency(*key) as f32;
        *count *= (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
    }
    counted
}

fn hit(directory: &Directory, Scored { score, tool }: &Scored) -> Option<Hit> {
    let (tool, card) = directory.tool(*tool)?;
    Some(Hit {
        name: tool.name().clone(),
        score: *score,
        signature: card.signature.clone(),
        summary: card.summary.clone(),
        also: Vec::new(),
    })
}

/// At most so many bytes, cut between characters.
fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Eq for Scored {}

impl Ord for Scored {
    /// The better score, then the name that stands first.
    fn cmp(&self, other: &Scored) -> Ordering {
        self.score.total_cmp(&other.score).then(other.tool.cmp(&self.tool))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Scored) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
