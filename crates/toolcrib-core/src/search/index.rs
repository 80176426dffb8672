//! Where each term of a whole catalogue is found, and how rare it is: the postings of all segments, laid one after the
//! other by term, for a search through two thousand sources must not go to each of them for each word.
//! Made by the first search in a catalogue, from what its segments have worked out already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::Query;
use super::forward_index::ForwardIndex;
use super::name_index::NameIndex;
use super::postings::{Posting, PostingTerm, ToolCard};
use super::term_text::TermTexts;
use super::tokenize::{self, Word};
use crate::catalog::{CatalogSource, ToolRef};

/// What a word of a source's title or tags is worth for its tools. A configuration may change them while the list stays,
/// so that they are no part of the postings.
const LABEL_WEIGHT: f32 = 0.3;
/// How far rarity counts: less than in full, for what is rarest in a task is often the name of a person or a file.
const RARITY_EXPONENT: f32 = 0.8;

#[derive(Debug, Default)]
pub(crate) struct SearchIndex {
    segments: Vec<SegmentRange>,
    /// For every tool, the number of its place.
    segment_of: Vec<u32>,
    /// The tools that no search finds, in order.
    unsearchable: Vec<u32>,
    terms: TermMap<TermStats>,
    /// By term, then by tool.
    postings: Vec<Posting>,
    /// The places whose title or tags have a term.
    label_segments: TermMap<Vec<u32>>,
    forward_index: ForwardIndex,
    name_index: NameIndex,
    /// Made when a search needs it.
    term_texts: OnceLock<TermTexts>,
}

/// One segment, and the number of its first tool.
#[derive(Debug)]
struct SegmentRange {
    source: Arc<CatalogSource>,
    first_tool: u32,
}

/// A term over all sources: where it stands in `postings`, in how many tools, and how rare that makes it.
#[derive(Debug, Default)]
pub(super) struct TermStats {
    pub(super) key: u64,
    /// What it goes by in [`Texts`].
    pub(super) number: u32,
    /// How much it tells tools apart.
    pub(super) rarity: f32,
    tool_count: u32,
    postings: Range<u32>,
}

pub(super) type TermMap<T> = HashMap<u64, T, BuildHasherDefault<IdentityHasher>>;

impl SearchIndex {
    /// `parts` come with what their catalogue leaves out of them.
    pub(crate) fn build<'a>(parts: impl Iterator<Item = (&'a Arc<CatalogSource>, &'a [usize])>) -> SearchIndex {
        let mut directory = SearchIndex::default();
        for (part, masked) in parts {
            let base = directory.segment_of.len() as u32;
            let entries = part.segment.entries();
            for (position, entry) in entries.iter().enumerate() {
                let findable =
                    ToolRef { catalog_source: part, entry }.is_searchable() && masked.binary_search(&position).is_err();
                if !findable {
                    directory.unsearchable.push(base + position as u32);
                }
            }
            directory.segment_of.resize(directory.segment_of.len() + entries.len(), directory.segments.len() as u32);
            directory.segments.push(SegmentRange { source: part.clone(), first_tool: base });
        }
        directory.index_labels();
        directory.index_terms();
        directory.name_index = NameIndex::build(directory.cards());
        directory
    }

    fn index_labels(&mut self) {
        for (number, SegmentRange { source: part, .. }) in self.segments.iter().enumerate() {
            for text in part.options.tags.iter().chain(&part.options.title) {
                tokenize::for_each_word(text, |Word { whole, parts }| {
                    for word in parts.iter().chain([&whole]) {
                        let places = self.label_segments.entry(tokenize::term_key(word)).or_default();
                        if places.last() != Some(&(number as u32)) {
                            places.push(number as u32);
                        }
                    }
                });
            }
        }
        for (key, places) in &self.label_segments {
            let tools = places.iter().map(|place| self.segments[*place as usize].tool_numbers().len() as u32);
            let number = self.terms.len() as u32;
            self.terms.insert(*key, TermStats { key: *key, number, tool_count: tools.sum(), ..TermStats::default() });
        }
    }

    fn index_terms(&mut self) {
        // For each place, the numbers of its terms in this catalogue.
        let mut numbers: Vec<Vec<u32>> = Vec::with_capacity(self.segments.len());
        for place in &self.segments {
            let postings = place.source.segment.postings();
            let number = |(term, known): (usize, &PostingTerm)| {
                let next = self.terms.len() as u32;
                let spread =
                    self.terms.entry(known.key).or_insert_with(|| TermStats { number: next, ..TermStats::default() });
                spread.key = known.key;
                spread.postings.end += postings.for_term(term as u32).len() as u32;
                spread.number
            };
            numbers.push(postings.terms.iter().enumerate().map(number).collect());
        }
        let all = self.segment_of.len() as f32;
        let (mut free, mut rarities) = (vec![0; self.terms.len()], vec![0.0; self.terms.len()]);
        let mut start = 0;
        for spread in self.terms.values_mut() {
            let length = spread.postings.end;
            spread.postings = start..start + length;
            spread.tool_count += length;
            spread.rarity = rarity(all, spread.tool_count as f32);
            free[spread.number as usize] = start as usize;
            rarities[spread.number as usize] = spread.rarity;
            start += length;
        }
        self.postings = vec![Posting { tool: 0, impact: 0.0 }; start as usize];
        for (SegmentRange { source: part, first_tool: base }, numbers) in self.segments.iter().zip(&numbers) {
            let postings = part.segment.postings();
            for (term, number) in numbers.iter().enumerate() {
                let free = &mut free[*number as usize];
                for Posting { tool, impact } in postings.for_term(term as u32) {
                    self.postings[*free] = Posting { tool: base + tool, impact: *impact };
                    *free += 1;
                }
            }
            self.forward_index.add_segment(postings, numbers, &rarities);
        }
    }

    /// How many tools there are, findable or not.
    pub(super) fn len(&self) -> usize {
        self.segment_of.len()
    }

    pub(super) fn is_searchable(&self, tool: u32) -> bool {
        self.unsearchable.binary_search(&tool).is_err()
    }

    /// Takes every score from the tools that cannot be found, or are not of the source and tag that a query is about.
    pub(super) fn clear_excluded_scores(&self, query: &Query, scores: &mut [f32]) {
        self.unsearchable.iter().for_each(|tool| scores[*tool as usize] = 0.0);
        if query.source.is_none() && query.tag.is_none() {
            return;
        }
        for place in &self.segments {
            let fits = query.source.as_ref().is_none_or(|source| source == place.source.segment.source())
                && query.tag.as_ref().is_none_or(|tag| place.source.options.tags.contains(tag));
            if !fits {
                scores[place.tool_numbers()].fill(0.0);
            }
        }
    }

    /// A term, if any tool has it.
    pub(super) fn term(&self, key: u64) -> Option<&TermStats> {
        self.terms.get(&key)
    }

    /// In how many tools a term stands.
    pub(super) fn document_frequency(&self, key: u64) -> u32 {
        self.term(key).map_or(0, |spread| spread.tool_count)
    }

    /// Calls `take` with every tool that has the term, and what the term is worth there.
    pub(super) fn for_each_posting(&self, spread: &TermStats, mut take: impl FnMut(u32, f32)) {
        for Posting { tool, impact } in self.postings(spread) {
            take(*tool, *impact);
        }
        for number in self.label_segments.get(&spread.key).into_iter().flatten() {
            self.segments[*number as usize].tool_numbers().for_each(|tool| take(tool as u32, LABEL_WEIGHT));
        }
    }

    /// The tools that have a term, in order.
    pub(super) fn postings(&self, spread: &TermStats) -> &[Posting] {
        let range = spread.postings.start as usize..spread.postings.end as usize;
        self.postings.get(range).unwrap_or_default()
    }

    pub(super) fn forward_index(&self) -> &ForwardIndex {
        &self.forward_index
    }

    pub(super) fn name_index(&self) -> &NameIndex {
        &self.name_index
    }

    pub(super) fn term_texts(&self) -> &TermTexts {
        self.term_texts.get_or_init(|| {
            let postings = self.segments.iter().map(|place| place.source.segment.postings());
            TermTexts::build(postings.flat_map(|postings| &postings.terms).map(|term| (term.key, &*term.text)))
        })
    }

    /// Every tool with its card, findable or not.
    pub(super) fn cards(&self) -> impl Iterator<Item = (u32, &ToolCard)> {
        self.segments.iter().flat_map(|place| {
            let cards = &place.source.segment.postings().cards;
            cards.iter().enumerate().map(|(position, card)| (place.first_tool + position as u32, card))
        })
    }

    pub(super) fn card(&self, tool: u32) -> Option<&ToolCard> {
        let SegmentRange { source: part, first_tool: base } = self.segment(tool)?;
        part.segment.postings().cards.get((tool - base) as usize)
    }

    pub(super) fn tool(&self, tool: u32) -> Option<ToolRef<'_>> {
        let SegmentRange { source: part, first_tool: base } = self.segment(tool)?;
        let entry = part.segment.entries().get((tool - base) as usize)?;
        Some(ToolRef { catalog_source: part, entry })
    }

    /// How many sources there are.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The number of a tool's source.
    pub(super) fn segment_of(&self, tool: u32) -> u32 {
        self.segment_of.get(tool as usize).copied().unwrap_or_default()
    }

    fn segment(&self, tool: u32) -> Option<&SegmentRange> {
        self.segments.get(*self.segment_of.get(tool as usize)? as usize)
    }
}

impl SegmentRange {
    fn tool_numbers(&self) -> Range<usize> {
        self.first_tool as usize..self.first_tool as usize + self.source.segment.entries().len()
    }
}

fn rarity(all: f32, having: f32) -> f32 {
    // A label may make a word count twice for a tool.
    let having = having.min(all);
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln().powf(RARITY_EXPONENT)
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
