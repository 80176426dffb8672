//! Inverted index of one segment: its terms and their scores for each tool. Built by the first search from the segment
//! alone; the rarity of a term over all sources belongs to the [`SearchIndex`](super::SearchIndex).
//!
//! A posting stores the final BM25F impact instead of counts: lengths are compared with constants, so it does not
//! depend on other sources and is never computed again.

use std::collections::HashMap;

use serde_json::Value;
use toolcrib_core::execution::ExecutionMode;
use toolcrib_core::tool::Tool;

use super::document::{self, DocumentField, FieldScoring};
use super::fuzzy;
use super::name_index;
use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;
use crate::outline;
use crate::{Segment, SegmentEntry};

/// Term frequency saturation (`k1` in BM25F): how quickly further occurrences of a term add less. An impact stays below
/// 1.
const SATURATION: f32 = 1.4;
/// Maximum number of terms per tool in [`ToolCard::sequence`]. The beginning of a description says what a tool does;
/// the rest is notes and examples.
const MAX_SEQUENCE_LEN: usize = 96;

/// Verbs at the beginning of a name that say that a tool only reads.
const READING_VERBS: [&str; 16] = [
    "get", "list", "search", "find", "read", "show", "query", "fetch", "count", "describe", "view", "lookup", "check",
    "browse", "inspect", "retrieve",
];

/// Terms, postings and cards of the tools of one segment.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    pub(super) terms: Vec<PostingTerm>,
    /// Words as written, for the correction of slips; without short ones.
    pub(super) words: Vec<WordForm>,
    /// Sorted by term, then by tool; see [`Postings::for_term`].
    postings: Vec<Posting>,
    /// By the position of the tool in the segment.
    pub(super) cards: Vec<ToolCard>,
}

/// A distinct term of the segment.
#[derive(Debug)]
pub(super) struct PostingTerm {
    /// Stemmed text.
    pub(super) text: Box<str>,
    /// Hash of the text, equal in all segments.
    pub(super) key: u64,
    /// End of the term's range in the postings; the range starts where that of the term before ends.
    postings_end: u32,
}

/// A distinct word of the segment, as written.
#[derive(Debug)]
pub(super) struct WordForm {
    pub(super) text: Box<str>,
    /// Position of its term.
    pub(super) term: u32,
    /// Sorted positions of the tools with the word; empty if all tools of the segment share it.
    pub(super) tools: Box<[u32]>,
}

/// Occurrence of a term in a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    /// Position in the segment, or tool number in the index of the catalogue.
    pub(super) tool: u32,
    /// BM25F score of the term for this tool without rarity, between 0 and 1.
    pub(super) impact: f32,
}

/// Per-tool data for hits, name matching and reranking.
#[derive(Debug, Default)]
pub(super) struct ToolCard {
    pub(super) signature: String,
    pub(super) summary: String,
    /// The source's name for the tool, letters and digits only.
    pub(super) normalized_name: Box<str>,
    /// The same with the source prefix.
    pub(super) normalized_full_name: Box<str>,
    /// The same with the short name of the source, if it has one; see [`tokenize::short_source_name`].
    pub(super) normalized_short_name: Option<Box<str>>,
    /// The name in the catalogue, where it was shortened.
    pub(super) normalized_cut_name: Option<Box<str>>,
    /// Hash of the stemmed words of the name, see [`name_index::stems_key`].
    pub(super) stems_key: u64,
    /// Distinct terms of the name, as positions in `terms`.
    pub(super) name_terms: Box<[u32]>,
    /// Terms of name and description in text order without stop words, as positions in `terms`.
    pub(super) sequence: Box<[u32]>,
    /// Whether it says that it only reads: by its annotations, its HTTP method or the verb in its name.
    pub(super) is_read_only: bool,
}

impl Postings {
    /// Indexes all tools of a segment.
    pub(crate) fn build(segment: &Segment) -> Postings {
        // Texts shared by all tools of the source are tokenized once.
        let mut lexicon = Lexicon::default();
        let mut shared = FieldTerms::default();
        lexicon.add_text(segment.source().as_str(), &mut shared[DocumentField::Source as usize]);
        let about = segment.packed().about.as_deref().unwrap_or_default();
        lexicon.add_text(about, &mut shared[DocumentField::About as usize]);
        let mut entries: Vec<(u32, Posting)> = Vec::new();
        let mut cards = Vec::with_capacity(segment.entries().len());
        let mut weights: HashMap<u32, f32> = HashMap::new();
        for (position, entry) in segment.entries().iter().enumerate() {
            lexicon.current_tool = Some(position as u32);
            // A stored tool that cannot be parsed is still found by its name.
            let tool = segment.tool(entry).ok();
            let schema = tool.as_ref().and_then(|tool| serde_json::from_str(tool.listing.input_schema.get()).ok());
            let schema: Value = schema.unwrap_or_default();
            let mut fields = shared.clone();
            match &tool {
                Some(tool) => {
                    document::for_each_text(tool, &schema, |field, text| {
                        lexicon.add_text(text, &mut fields[field as usize])
                    });
                }
                None => lexicon.add_text(segment.original_name(entry), &mut fields[DocumentField::Name as usize]),
            }
            for (field, field_terms) in DocumentField::ALL.into_iter().zip(&fields) {
                // BM25F: sum the weighted, length-normalised occurrences over all fields, then saturate.
                let FieldScoring { weight, typical_length, length_penalty: penalty } = field.scoring();
                let length = field_terms.len() as f32 / typical_length;
                let weight_each = weight / (1.0 - penalty + penalty * length);
                field_terms.iter().for_each(|term| *weights.entry(*term).or_default() += weight_each);
            }
            for (term, weight) in weights.drain() {
                entries.push((term, Posting { tool: position as u32, impact: weight / (SATURATION + weight) }));
            }
            cards.push(build_card(segment, entry, tool.as_ref(), &schema, &mut lexicon));
        }
        // The weights come out of a hash map in any order; sorting makes the index deterministic.
        entries.sort_unstable_by_key(|(term, posting)| (*term, posting.tool));
        let words = lexicon.by_word.into_iter().filter(|(word, _)| can_be_corrected(word));
        let words = words.map(|(text, word)| {
            let tools = if word.is_shared { Box::default() } else { word.tools.into() };
            WordForm { text, term: word.term, tools }
        });
        let words = words.collect();
        let mut terms = lexicon.terms;
        // `postings_end` counts the postings of each term first and then becomes their running sum.
        entries.iter().for_each(|(term, _)| terms[*term as usize].postings_end += 1);
        let mut end = 0;
        for term in &mut terms {
            end += term.postings_end;
            term.postings_end = end;
        }
        Postings { terms, words, postings: entries.into_iter().map(|(_, posting)| posting).collect(), cards }
    }

    /// Returns the postings of a term by its position in `terms`.
    pub(super) fn for_term(&self, term: u32) -> &[Posting] {
        let end = |term: usize| self.terms.get(term).map_or(0, |term| term.postings_end as usize);
        let start = if term == 0 { 0 } else { end(term as usize - 1) };
        self.postings.get(start..end(term as usize)).unwrap_or_default()
    }
}

/// Prepares the card of one tool, adding its terms to the lexicon.
fn build_card(
    segment: &Segment,
    entry: &SegmentEntry,
    tool: Option<&Tool>,
    schema: &Value,
    lexicon: &mut Lexicon,
) -> ToolCard {
    let original_name = segment.original_name(entry);
    let mut name_terms: Vec<u32> = Vec::new();
    tokenize::for_each_word(original_name, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        name_terms.extend(parts.iter().map(|part| lexicon.intern(part)));
    });
    let description = tool.map(|tool| tool.listing.description.as_str()).unwrap_or_default();
    let mut sequence = name_terms.clone();
    tokenize::for_each_word(description, |Word { whole, .. }| {
        if sequence.len() < MAX_SEQUENCE_LEN && !vocabulary().is_stop_word(&whole) {
            sequence.push(lexicon.intern(&whole));
        }
    });
    // The order by key is the same in every segment, so that floating-point sums over the terms are too.
    name_terms.sort_unstable_by_key(|term| lexicon.terms[*term as usize].key);
    name_terms.dedup();
    let normalized_full_name = tokenize::normalize_name(&format!("{}{original_name}", segment.prefix()));
    // OpenAPI sources have hundreds of tools with long signatures, so their hits list required arguments only.
    let format_signature = if tool.is_some_and(|tool| tool.execution_spec.is_some()) {
        outline::short_signature
    } else {
        outline::call_signature
    };
    ToolCard {
        signature: format_signature(entry.name.as_str(), schema),
        summary: outline::first_sentence(description),
        normalized_name: tokenize::normalize_name(original_name).into(),
        normalized_cut_name: Some(tokenize::normalize_name(entry.name.as_str()))
            .filter(|cut_name| *cut_name != normalized_full_name)
            .map(Into::into),
        normalized_short_name: tokenize::short_source_name(segment.source().as_str())
            .filter(|_| !segment.prefix().is_empty())
            .map(|source| format!("{source}{}", tokenize::normalize_name(original_name)).into()),
        normalized_full_name: normalized_full_name.into(),
        stems_key: name_index::stems_key(original_name),
        name_terms: name_terms.into(),
        sequence: sequence.into(),
        is_read_only: tool.is_some_and(is_read_only),
    }
}

/// Whether a tool says that it only reads. A claim of the source: good enough to order tools of equal score.
fn is_read_only(tool: &Tool) -> bool {
    if tool.hints().read_only_hint {
        return true;
    }
    match tool.parse_execution_spec().map(|spec| spec.execution) {
        Some(ExecutionMode::SyncHttp(operation) | ExecutionMode::AsyncPoll { operation, .. }) => {
            matches!(operation.method.as_str(), "GET" | "HEAD")
        }
        Some(ExecutionMode::McpCall | ExecutionMode::Workflow { .. }) | None => {
            let mut first_word = None;
            tokenize::for_each_word(&tool.name, |Word { whole, parts }| {
                first_word.get_or_insert(parts.into_iter().next().unwrap_or(whole));
            });
            first_word.is_some_and(|word| READING_VERBS.contains(&word.as_str()))
        }
    }
}

/// Whether a misspelled word of a query can be meant to be this one.
fn can_be_corrected(word: &str) -> bool {
    fuzzy::is_long_enough(word) && !word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Terms of one tool by field, in text order, repetitions included.
type FieldTerms = [Vec<u32>; DocumentField::ALL.len()];

/// Interns terms. Remembers the stem of each word, because words repeat and stemming is slow.
#[derive(Default)]
struct Lexicon {
    terms: Vec<PostingTerm>,
    /// Position in `terms` by stem.
    by_stem: HashMap<Box<str>, u32>,
    by_word: HashMap<Box<str>, LexiconWord>,
    /// The tool whose texts are read; `None` for texts that all tools share.
    current_tool: Option<u32>,
}

/// A word with its term and its tools.
struct LexiconWord {
    /// Position in `terms`.
    term: u32,
    /// Tools with the word, in order.
    tools: Vec<u32>,
    /// Whether all tools share it.
    is_shared: bool,
}

impl Lexicon {
    /// Appends the terms of a text: whole words, and the parts of compound words.
    fn add_text(&mut self, text: &str, terms: &mut Vec<u32>) {
        tokenize::for_each_word(text, |Word { whole, parts }| {
            terms.push(self.intern(&whole));
            terms.extend(parts.iter().map(|part| self.intern(part)));
        });
    }

    /// Returns the position of a word's term, adding the term if it is new.
    fn intern(&mut self, word: &str) -> u32 {
        if let Some(known) = self.by_word.get_mut(word) {
            if known.tools.last().copied() != self.current_tool {
                known.tools.extend(self.current_tool);
            }
            return known.term;
        }
        let stem: Box<str> = tokenize::stem(word).into();
        let term = *self.by_stem.entry(stem).or_insert_with_key(|stem| {
            self.terms.push(PostingTerm { text: stem.clone(), key: tokenize::hash_key(stem), postings_end: 0 });
            self.terms.len() as u32 - 1
        });
        let tools = self.current_tool.into_iter().collect();
        self.by_word.insert(word.into(), LexiconWord { term, tools, is_shared: self.current_tool.is_none() });
        term
    }
}
