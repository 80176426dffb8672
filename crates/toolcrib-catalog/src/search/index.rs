//! Inverted index of the tools of a view: for each term its postings over all segments and its rarity.
//! Postings of all segments are concatenated by term, so that a search over thousands of sources does not visit each
//! segment for each word. Built by the first search in a view from the per-segment [`Postings`](super::Postings).
//!
//! Tools are identified by consecutive numbers over all segments, so that scores are one plain array. Segments stay
//! unchanged when other sources change; only this concatenation is built again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use toolcrib_core::policy::Verdict;

use super::Query;
use super::embeddings::{ByModel, EmbeddingModel, SegmentPieces, SemanticIndex};
use super::forward_index::ForwardIndex;
use super::name_index::NameIndex;
use super::postings::{Posting, PostingTerm, ToolCard};
use super::term_text::TermTexts;
use super::tokenize::{self, Word};
use crate::catalog::VisibleSource;
use crate::filter::ToolFilter;
use crate::{CatalogSource, ToolRef};

/// Score of a term in a source's title or tags, for each of its tools. Labels come from the configuration, which can
/// change while the tool list stays, so they are not part of the segment's postings. All tools of a source share it, so
/// it moves whole sources and not single tools.
const LABEL_WEIGHT: f32 = 0.3;
/// Exponent that dampens inverse document frequency: the rarest words of a task are often names of people or files.
const RARITY_EXPONENT: f32 = 0.8;

/// Number of a term that no indexed tool has.
const UNNUMBERED: u32 = u32::MAX;

/// Search index of the tools of one view that can be found: hidden, denied, disabled and shadowed ones are not part of
/// it, so that their words affect no score. Tools are numbered consecutively over all segments.
#[derive(Debug, Default)]
pub(crate) struct SearchIndex {
    segments: Vec<SegmentRange>,
    /// By tool number: the position of its segment in `segments`.
    segment_of: Vec<u32>,
    terms: TermMap<TermStats>,
    /// Sorted by term, then by tool; [`TermStats`] holds the range of each term.
    postings: Vec<Posting>,
    /// By term key: positions of the segments whose title or tags contain the term.
    label_segments: TermMap<Vec<u32>>,
    forward_index: ForwardIndex,
    name_index: NameIndex,
    /// By hash of the normalised id or title: positions of the segments.
    sources_by_name: TermMap<Vec<u32>>,
    /// Stems; built by the first search that needs substring matching.
    term_texts: OnceLock<TermTexts>,
    /// Words as written; built by the first search that needs the correction of slips.
    word_texts: OnceLock<TermTexts>,
    /// Built by the first search with a model.
    semantic: ByModel<SemanticIndex>,
}

/// One source's segment, or the visible part of it, and the number of its first tool.
#[derive(Debug)]
struct SegmentRange {
    source: Arc<CatalogSource>,
    first_tool: u32,
    /// Sorted positions of the indexed tools; `None` if these are all tools of the segment.
    indexed: Option<Box<[u32]>>,
}

/// Statistics of a term over all segments.
#[derive(Debug, Default)]
pub(super) struct TermStats {
    /// Hash of the stemmed text, see [`tokenize::hash_key`].
    pub(super) key: u64,
    /// Consecutive number of the term in this index, used by [`ForwardIndex`].
    pub(super) number: u32,
    /// Dampened inverse document frequency.
    pub(super) rarity: f32,
    /// Number of tools with the term, in their text or through labels.
    tool_count: u32,
    /// Range in [`SearchIndex::postings`].
    postings: Range<u32>,
}

/// Map by term key. Keys are hashes already, so they are not hashed again.
pub(super) type TermMap<T> = HashMap<u64, T, BuildHasherDefault<IdentityHasher>>;

impl SearchIndex {
    /// Builds the index of the visible tools of these sources that models may use.
    pub(crate) fn build<'a>(sources: impl Iterator<Item = VisibleSource<'a>>) -> SearchIndex {
        let mut index = SearchIndex::default();
        for source in sources {
            let positions = source.positions().filter(|position| source.tool(*position).is_for_models());
            let positions: Box<[u32]> = positions.map(|position| position as u32).collect();
            if positions.is_empty() {
                continue;
            }
            let segment = SegmentRange {
                source: source.without_withheld_names(),
                first_tool: index.segment_of.len() as u32,
                indexed: (positions.len() < source.source.segment.entries().len()).then_some(positions),
            };
            let tool_count = index.segment_of.len() + segment.tool_numbers().len();
            index.segment_of.resize(tool_count, index.segments.len() as u32);
            index.segments.push(segment);
        }
        // Labels first, so that their terms have statistics before postings are added to them.
        index.index_labels();
        index.index_terms();
        index.index_source_names();
        index.name_index = NameIndex::build(index.cards());
        index
    }

    /// Indexes titles and tags of the sources.
    fn index_labels(&mut self) {
        for (number, SegmentRange { source, .. }) in self.segments.iter().enumerate() {
            for text in source.options.tags.iter().chain(&source.options.title) {
                tokenize::for_each_word(text, |Word { whole, parts }| {
                    for word in parts.iter().chain([&whole]) {
                        let segments = self.label_segments.entry(tokenize::term_key(word)).or_default();
                        // Segments are visited in order, so a repeated word finds its own segment at the end.
                        if segments.last() != Some(&(number as u32)) {
                            segments.push(number as u32);
                        }
                    }
                });
            }
        }
        for (key, segments) in &self.label_segments {
            let tools = segments.iter().map(|segment| self.segments[*segment as usize].tool_numbers().len() as u32);
            let number = self.terms.len() as u32;
            self.terms.insert(*key, TermStats { key: *key, number, tool_count: tools.sum(), ..TermStats::default() });
        }
    }

    /// Indexes ids and titles of the sources.
    fn index_source_names(&mut self) {
        for (number, SegmentRange { source, .. }) in self.segments.iter().enumerate() {
            let id = source.segment.source().as_str();
            let mut names = vec![tokenize::normalize_name(id)];
            names.extend(tokenize::short_source_name(id));
            names.extend(source.options.title.as_deref().map(tokenize::normalize_name));
            names.sort_unstable();
            names.dedup();
            for name in names.iter().filter(|name| !name.is_empty()) {
                self.sources_by_name.entry(tokenize::hash_key(name)).or_default().push(number as u32);
            }
        }
    }

    /// Concatenates the postings of all segments by term and fills the forward index.
    fn index_terms(&mut self) {
        // First pass: number all terms and count their postings. `numbers` maps each segment's terms to these numbers;
        // terms that only tools outside the index have get none. Three passes over the segments instead of one map of
        // growing lists: the arrays are allocated once.
        let mut numbers: Vec<Vec<u32>> = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let postings = segment.source.segment.postings();
            let unused_terms = segment.unused_terms();
            let number = |(term, posting_term): (usize, &PostingTerm)| {
                let count = segment.count_indexed(postings.for_term(term as u32));
                if count == 0 && unused_terms.get(term) == Some(&true) {
                    return UNNUMBERED;
                }
                let next = self.terms.len() as u32;
                let stats = self
                    .terms
                    .entry(posting_term.key)
                    .or_insert_with(|| TermStats { number: next, ..TermStats::default() });
                stats.key = posting_term.key;
                stats.postings.end += count;
                stats.number
            };
            numbers.push(postings.terms.iter().enumerate().map(number).collect());
        }
        // Second pass: give each term its range in `postings`, and compute its rarity.
        let tool_count = self.segment_of.len() as f32;
        let mut next_free = vec![0; self.terms.len()];
        let mut rarities = vec![0.0; self.terms.len()];
        let mut start = 0;
        for stats in self.terms.values_mut() {
            let length = stats.postings.end;
            stats.postings = start..start + length;
            stats.tool_count += length;
            stats.rarity = rarity(tool_count, stats.tool_count as f32);
            next_free[stats.number as usize] = start as usize;
            rarities[stats.number as usize] = stats.rarity;
            start += length;
        }
        // Third pass: copy the postings into the ranges. Segments come in order, so each range is sorted by tool.
        self.postings = vec![Posting { tool: 0, impact: 0.0 }; start as usize];
        for (segment, numbers) in self.segments.iter().zip(&numbers) {
            let postings = segment.source.segment.postings();
            for (term, number) in numbers.iter().enumerate().filter(|(_, number)| **number != UNNUMBERED) {
                let next_free = &mut next_free[*number as usize];
                for Posting { tool, impact } in postings.for_term(term as u32) {
                    let Some(tool) = segment.number(*tool) else { continue };
                    self.postings[*next_free] = Posting { tool, impact: *impact };
                    *next_free += 1;
                }
            }
            self.forward_index.add_tools(segment.cards().map(|(_, card)| card), numbers, &rarities);
        }
    }

    /// Number of tools in the index.
    pub(super) fn len(&self) -> usize {
        self.segment_of.len()
    }

    /// Sets the score to 0 for tools that the source or tag of the query excludes.
    pub(super) fn clear_excluded_scores(&self, query: &Query, scores: &mut [f32]) {
        if query.source.is_none() && query.tag.is_none() {
            return;
        }
        let filter = ToolFilter { source: query.source.clone(), tag: query.tag.clone(), ..ToolFilter::default() };
        // Cleared after all terms were scored, so that postings need no test.
        for (tool, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
            if !self.tool(tool as u32).is_some_and(|tool| filter.accepts(&tool)) {
                *score = 0.0;
            }
        }
    }

    /// Multiplies the scores of the tools of the sources with a name, normalised; returns whether there are any.
    pub(super) fn scale_source_scores(&self, name: &str, factor: f32, scores: &mut [f32]) -> bool {
        let Some(segments) = self.sources_by_name.get(&tokenize::hash_key(name)) else { return false };
        for number in segments {
            let tools = self.segments[*number as usize].tool_numbers();
            scores[tools].iter_mut().for_each(|score| *score *= factor);
        }
        true
    }

    /// Score of a term for a tool, without its rarity.
    pub(super) fn impact(&self, stats: &TermStats, tool: u32) -> f32 {
        let postings = self.postings(stats);
        let found = postings.binary_search_by_key(&tool, |posting| posting.tool).ok();
        let text_impact = found.map_or(0.0, |position| postings[position].impact);
        let is_labelled = self
            .label_segments
            .get(&stats.key)
            .is_some_and(|segments| segments.binary_search(&self.segment_of(tool)).is_ok());
        if is_labelled { text_impact + LABEL_WEIGHT } else { text_impact }
    }

    /// Rarity of a term that no tool has.
    pub(super) fn max_rarity(&self) -> f32 {
        rarity(self.segment_of.len() as f32, 0.0)
    }

    /// Returns the statistics of a term, or `None` if no tool has it.
    pub(super) fn term(&self, key: u64) -> Option<&TermStats> {
        self.terms.get(&key)
    }

    /// Number of tools that contain a term.
    pub(super) fn document_frequency(&self, key: u64) -> u32 {
        self.term(key).map_or(0, |stats| stats.tool_count)
    }

    /// Calls `take` with the number of each tool that has the term, and the term's score there.
    pub(super) fn for_each_posting(&self, stats: &TermStats, mut take: impl FnMut(u32, f32)) {
        for Posting { tool, impact } in self.postings(stats) {
            take(*tool, *impact);
        }
        for number in self.label_segments.get(&stats.key).into_iter().flatten() {
            self.segments[*number as usize].tool_numbers().for_each(|tool| take(tool as u32, LABEL_WEIGHT));
        }
    }

    /// Returns the postings of a term in tool texts (without labels), sorted by tool.
    pub(super) fn postings(&self, stats: &TermStats) -> &[Posting] {
        let range = stats.postings.start as usize..stats.postings.end as usize;
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
            let terms = self.segments.iter().flat_map(|segment| {
                let terms = segment.source.segment.postings().terms.iter().enumerate();
                terms.filter(|(term, _)| segment.has_term(*term as u32)).map(|(_, term)| (term.key, &*term.text))
            });
            TermTexts::build(terms)
        })
    }

    pub(super) fn word_texts(&self) -> &TermTexts {
        self.word_texts.get_or_init(|| {
            let words = self.segments.iter().flat_map(|segment| {
                let postings = segment.source.segment.postings();
                let words = postings.words.iter().filter(|word| segment.has_any(&word.tools));
                words.map(|word| (postings.terms[word.term as usize].key, &*word.text))
            });
            TermTexts::build(words)
        })
    }

    /// Returns what similarity needs to know of all tools; `None` after too many other models.
    pub(super) fn semantic(&self, model: &EmbeddingModel) -> Option<&SemanticIndex> {
        self.semantic.get_or_init(model, || SemanticIndex::build(self, model))
    }

    /// Calls `take` with the number of each tool, its position in its segment and the pieces of that segment.
    pub(super) fn for_each_segment_pieces(
        &self,
        model: &EmbeddingModel,
        mut take: impl FnMut(u32, usize, &SegmentPieces),
    ) {
        for segment in &self.segments {
            let Some(pieces) = segment.source.segment.pieces(model) else { continue };
            for tool in segment.tool_numbers().map(|tool| tool as u32) {
                if let Some(position) = segment.position(tool) {
                    take(tool, position, pieces);
                }
            }
        }
    }

    /// Iterates over all tools with their cards.
    pub(super) fn cards(&self) -> impl Iterator<Item = (u32, &ToolCard)> {
        self.segments.iter().flat_map(SegmentRange::cards)
    }

    pub(super) fn card(&self, tool: u32) -> Option<&ToolCard> {
        let segment = self.segment(tool)?;
        segment.source.segment.postings().cards.get(segment.position(tool)?)
    }

    pub(super) fn tool(&self, tool: u32) -> Option<ToolRef<'_>> {
        let segment = self.segment(tool)?;
        segment.tool(segment.position(tool)?)
    }

    /// Number of segments, i.e. of sources.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Position of a tool's segment.
    pub(super) fn segment_of(&self, tool: u32) -> u32 {
        self.segment_of.get(tool as usize).copied().unwrap_or_default()
    }

    fn segment(&self, tool: u32) -> Option<&SegmentRange> {
        self.segments.get(*self.segment_of.get(tool as usize)? as usize)
    }
}

impl SegmentRange {
    /// Numbers of the tools in the segment.
    fn tool_numbers(&self) -> Range<usize> {
        let count = self.indexed.as_ref().map_or(self.source.segment.entries().len(), |indexed| indexed.len());
        self.first_tool as usize..self.first_tool as usize + count
    }

    /// Position in the segment of a tool by its number.
    fn position(&self, tool: u32) -> Option<usize> {
        let index = tool.checked_sub(self.first_tool)? as usize;
        match &self.indexed {
            None => Some(index),
            Some(indexed) => indexed.get(index).map(|position| *position as usize),
        }
    }

    /// Number of a tool by its position in the segment; `None` if it is not indexed.
    fn number(&self, position: u32) -> Option<u32> {
        match &self.indexed {
            None => Some(self.first_tool + position),
            Some(indexed) => indexed.binary_search(&position).ok().map(|index| self.first_tool + index as u32),
        }
    }

    /// For each term of the segment whether no card of an indexed tool has it; empty if all tools are indexed.
    fn unused_terms(&self) -> Vec<bool> {
        let mut unused = Vec::new();
        if self.indexed.is_some() {
            unused.resize(self.source.segment.postings().terms.len(), true);
            let terms = self.cards().flat_map(|(_, card)| card.name_terms.iter().chain(&card.sequence));
            terms.for_each(|term| unused[*term as usize] = false);
        }
        unused
    }

    /// Number of postings whose tools are indexed.
    fn count_indexed(&self, postings: &[Posting]) -> u32 {
        match &self.indexed {
            None => postings.len() as u32,
            Some(_) => postings.iter().filter(|posting| self.number(posting.tool).is_some()).count() as u32,
        }
    }

    /// Whether an indexed tool has a term in its text.
    fn has_term(&self, term: u32) -> bool {
        self.count_indexed(self.source.segment.postings().for_term(term)) > 0
    }

    /// Whether one of these positions, or of all if there are none, is that of an indexed tool.
    fn has_any(&self, positions: &[u32]) -> bool {
        positions.is_empty() || positions.iter().any(|position| self.number(*position).is_some())
    }

    fn tool(&self, position: usize) -> Option<ToolRef<'_>> {
        let entry = self.source.segment.entries().get(position)?;
        // Denied tools are not in the index, and a hit does not show the verdict.
        Some(ToolRef { catalog_source: &self.source, entry, policy_verdict: Verdict::Allow })
    }

    /// Indexed tools with their cards, in order of their numbers.
    fn cards(&self) -> impl Iterator<Item = (u32, &ToolCard)> {
        let cards = &self.source.segment.postings().cards;
        self.tool_numbers().filter_map(|number| Some((number as u32, cards.get(self.position(number as u32)?)?)))
    }
}

/// Inverse document frequency as in BM25, dampened by [`RARITY_EXPONENT`].
fn rarity(tool_count: f32, occurrences: f32) -> f32 {
    // Labels are added to the text occurrences, so a term may count twice for one tool.
    let occurrences = occurrences.min(tool_count);
    (1.0 + (tool_count - occurrences + 0.5) / (occurrences + 0.5)).ln().powf(RARITY_EXPONENT)
}

/// Hasher that returns the key itself, for keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    // Required by the trait; `u64` keys use `write_u64`.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
