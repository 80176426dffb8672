//! The words of one source's tools, and how much each counts for which tool. Built by the first search, from the segment
//! alone: how rare a word is over all sources is asked of the [`Directory`](super::directory::Directory).

use std::collections::HashMap;

use serde_json::Value;

use super::document::{self, DocumentField};
use super::name_index;
use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;
use crate::catalog::{Segment, SegmentEntry};
use crate::outline;
use crate::tool::Tool;

/// How quickly more of the same word counts less.
const SATURATION: f32 = 1.4;
/// So many words of a tool are kept in their order.
const MAX_SEQUENCE_LEN: usize = 96;

#[derive(Debug, Default)]
pub(crate) struct Postings {
    pub(super) terms: Vec<PostingTerm>,
    /// By term, then by tool.
    postings: Vec<Posting>,
    /// By the position of the tool in its segment.
    pub(super) cards: Vec<ToolCard>,
}

#[derive(Debug)]
pub(super) struct PostingTerm {
    pub(super) text: Box<str>,
    /// Names the term in every segment alike.
    pub(super) key: u64,
    postings_end: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// Between 0 and 1: what the word is worth for this tool.
    pub(super) impact: f32,
}

/// What a hit shows of a tool, how its name is recognised, and what a second look at it needs.
#[derive(Debug, Default)]
pub(super) struct ToolCard {
    pub(super) signature: String,
    pub(super) summary: String,
    /// The tool's own name and the one with its source, letters and digits alone.
    pub(super) normalized_name: Box<str>,
    pub(super) normalized_full_name: Box<str>,
    /// The name that agents see, where it had to be cut.
    pub(super) normalized_cut_name: Option<Box<str>>,
    /// Its own name by the stems of its words.
    pub(super) stems_key: u64,
    /// The terms of its own name, each once, by their position in `terms`.
    pub(super) name_terms: Box<[u32]>,
    /// Name and description in their order, without words that say nothing; likewise.
    pub(super) sequence: Box<[u32]>,
}

impl Postings {
    pub(crate) fn build(segment: &Segment) -> Postings {
        let mut lexicon = Lexicon::default();
        let mut shared = FieldTerms::default();
        lexicon.add_text(segment.source().as_str(), &mut shared[DocumentField::Source as usize]);
        let about = segment.packed().about.as_deref().unwrap_or_default();
        lexicon.add_text(about, &mut shared[DocumentField::About as usize]);
        let mut entries: Vec<(u32, Posting)> = Vec::new();
        let mut cards = Vec::with_capacity(segment.entries().len());
        let mut weights: HashMap<u32, f32> = HashMap::new();
        for (position, entry) in segment.entries().iter().enumerate() {
            // A stored tool that cannot be read is found by its name alone.
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
            for (field, words) in DocumentField::ALL.into_iter().zip(&fields) {
                let (penalty, length) = (field.length_penalty(), words.len() as f32 / field.typical_length());
                let each = field.weight() / (1.0 - penalty + penalty * length);
                words.iter().for_each(|word| *weights.entry(*word).or_default() += each);
            }
            for (word, weight) in weights.drain() {
                entries.push((word, Posting { tool: position as u32, impact: weight / (SATURATION + weight) }));
            }
            cards.push(build_card(segment, entry, tool.as_ref(), &schema, &mut lexicon));
        }
        entries.sort_unstable_by_key(|(word, posting)| (*word, posting.tool));
        let mut terms = lexicon.terms;
        entries.iter().for_each(|(word, _)| terms[*word as usize].postings_end += 1);
        let mut end = 0;
        for term in &mut terms {
            end += term.postings_end;
            term.postings_end = end;
        }
        Postings { terms, postings: entries.into_iter().map(|(_, posting)| posting).collect(), cards }
    }

    pub(super) fn for_term(&self, term: u32) -> &[Posting] {
        let end = |term: usize| self.terms.get(term).map_or(0, |term| term.postings_end as usize);
        let start = if term == 0 { 0 } else { end(term as usize - 1) };
        self.postings.get(start..end(term as usize)).unwrap_or_default()
    }
}

fn build_card(
    segment: &Segment,
    entry: &SegmentEntry,
    tool: Option<&Tool>,
    schema: &Value,
    lexicon: &mut Lexicon,
) -> ToolCard {
    let original = segment.original_name(entry);
    let mut name: Vec<u32> = Vec::new();
    tokenize::for_each_word(original, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        name.extend(parts.iter().map(|part| lexicon.intern(part)));
    });
    let description = tool.map(|tool| tool.listing.description.as_str()).unwrap_or_default();
    let mut sequence = name.clone();
    tokenize::for_each_word(description, |Word { whole, .. }| {
        if sequence.len() < MAX_SEQUENCE_LEN && !vocabulary().is_stop_word(&whole) {
            sequence.push(lexicon.intern(&whole));
        }
    });
    // Everywhere in one order, so that what is added up comes out the same.
    name.sort_unstable_by_key(|term| lexicon.terms[*term as usize].key);
    name.dedup();
    let full = tokenize::normalize_name(&format!("{}{original}", segment.prefix()));
    let form = if tool.is_some_and(|tool| tool.execution_spec.is_some()) {
        outline::short_signature
    } else {
        outline::call_signature
    };
    ToolCard {
        signature: form(entry.name.as_str(), schema),
        summary: outline::first_sentence(description),
        normalized_name: tokenize::normalize_name(original).into(),
        normalized_cut_name: Some(tokenize::normalize_name(entry.name.as_str()))
            .filter(|cut| *cut != full)
            .map(Into::into),
        normalized_full_name: full.into(),
        stems_key: name_index::stems_key(original),
        name_terms: name.into(),
        sequence: sequence.into(),
    }
}

type FieldTerms = [Vec<u32>; DocumentField::ALL.len()];

/// Every word once. The same word is met again and again, so that what it stems to is remembered.
#[derive(Default)]
struct Lexicon {
    terms: Vec<PostingTerm>,
    by_stem: HashMap<Box<str>, u32>,
    by_word: HashMap<Box<str>, u32>,
}

impl Lexicon {
    fn add_text(&mut self, text: &str, into: &mut Vec<u32>) {
        tokenize::for_each_word(text, |Word { whole, parts }| {
            into.push(self.intern(&whole));
            into.extend(parts.iter().map(|part| self.intern(part)));
        });
    }

    fn intern(&mut self, word: &str) -> u32 {
        if let Some(&term) = self.by_word.get(word) {
            return term;
        }
        let stem: Box<str> = tokenize::stem(word).into();
        let term = *self.by_stem.entry(stem).or_insert_with_key(|stem| {
            self.terms.push(PostingTerm { text: stem.clone(), key: tokenize::hash_key(stem), postings_end: 0 });
            self.terms.len() as u32 - 1
        });
        self.by_word.insert(word.into(), term);
        term
    }
}
