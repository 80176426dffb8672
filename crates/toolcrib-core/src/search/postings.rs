//! The words of one source's tools, and how much each counts for which tool. Built by the first search, from the segment
//! alone: how rare a word is over all sources is asked of the [`Directory`](super::directory::Directory).

use std::collections::HashMap;

use serde_json::Value;

use super::document::{self, Field};
use super::roll;
use super::vocabulary::vocabulary;
use super::words::{self, Word};
use crate::catalog::{Entry, Segment};
use crate::outline;
use crate::tool::Tool;

/// How quickly more of the same word counts less.
const SATURATION: f32 = 1.4;
/// So many words of a tool are kept in their order.
const LONGEST_SEQUENCE: usize = 96;

#[derive(Debug, Default)]
pub(crate) struct Postings {
    pub(super) terms: Vec<Term>,
    /// By term, then by tool.
    postings: Vec<Posting>,
    /// By the position of the tool in its segment.
    pub(super) cards: Vec<Card>,
}

#[derive(Debug)]
pub(super) struct Term {
    pub(super) text: Box<str>,
    /// Names the term in every segment alike.
    pub(super) key: u64,
    end: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// Between 0 and 1: what the word is worth for this tool.
    pub(super) impact: f32,
}

/// What a hit shows of a tool, how its name is recognised, and what a second look at it needs.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) signature: String,
    pub(super) summary: String,
    /// The tool's own name and the one with its source, letters and digits alone.
    pub(super) own: Box<str>,
    pub(super) full: Box<str>,
    /// The name that agents see, where it had to be cut.
    pub(super) cut: Option<Box<str>>,
    /// Its own name by the stems of its words.
    pub(super) stems: u64,
    /// The terms of its own name, each once, by their position in `terms`.
    pub(super) name: Box<[u32]>,
    /// Name and description in their order, without words that say nothing; likewise.
    pub(super) sequence: Box<[u32]>,
}

impl Postings {
    pub(crate) fn build(segment: &Segment) -> Postings {
        let mut lexicon = Lexicon::default();
        let mut shared = Fields::default();
        lexicon.read(segment.source().as_str(), &mut shared[Field::Source as usize]);
        let about = segment.packed().about.as_deref().unwrap_or_default();
        lexicon.read(about, &mut shared[Field::About as usize]);
        let mut entries: Vec<(u32, Posting)> = Vec::new();
        let mut cards = Vec::with_capacity(segment.entries().len());
        let mut weights: HashMap<u32, f32> = HashMap::new();
        for (position, entry) in segment.entries().iter().enumerate() {
            // A stored tool that cannot be read is found by its name alone.
            let tool = segment.tool(entry).ok();
            let schema = tool.as_ref().and_then(|tool| serde_json::from_str(tool.face.input_schema.get()).ok());
            let schema: Value = schema.unwrap_or_default();
            let mut fields = shared.clone();
            match &tool {
                Some(tool) => {
                    document::texts(tool, &schema, |field, text| lexicon.read(text, &mut fields[field as usize]));
                }
                None => lexicon.read(segment.original(entry), &mut fields[Field::Name as usize]),
            }
            for (field, words) in Field::ALL.into_iter().zip(&fields) {
                let (penalty, length) = (field.length_penalty(), words.len() as f32 / field.usual_length());
                let each = field.weight() / (1.0 - penalty + penalty * length);
                words.iter().for_each(|word| *weights.entry(*word).or_default() += each);
            }
            for (word, weight) in weights.drain() {
                entries.push((word, Posting { tool: position as u32, impact: weight / (SATURATION + weight) }));
            }
            cards.push(card(segment, entry, tool.as_ref(), &schema, &mut lexicon));
        }
        entries.sort_unstable_by_key(|(word, posting)| (*word, posting.tool));
        let mut terms = lexicon.terms;
        entries.iter().for_each(|(word, _)| terms[*word as usize].end += 1);
        let mut end = 0;
        for term in &mut terms {
            end += term.end;
            term.end = end;
        }
        Postings { terms, postings: entries.into_iter().map(|(_, posting)| posting).collect(), cards }
    }

    pub(super) fn of(&self, term: u32) -> &[Posting] {
        let end = |term: usize| self.terms.get(term).map_or(0, |term| term.end as usize);
        let start = if term == 0 { 0 } else { end(term as usize - 1) };
        self.postings.get(start..end(term as usize)).unwrap_or_default()
    }
}

fn card(segment: &Segment, entry: &Entry, tool: Option<&Tool>, schema: &Value, lexicon: &mut Lexicon) -> Card {
    let original = segment.original(entry);
    let mut name: Vec<u32> = Vec::new();
    words::each(original, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        name.extend(parts.iter().map(|part| lexicon.term(part)));
    });
    let description = tool.map(|tool| tool.face.description.as_str()).unwrap_or_default();
    let mut sequence = name.clone();
    words::each(description, |Word { whole, .. }| {
        if sequence.len() < LONGEST_SEQUENCE && !vocabulary().is_silent(&whole) {
            sequence.push(lexicon.term(&whole));
        }
    });
    // Everywhere in one order, so that what is added up comes out the same.
    name.sort_unstable_by_key(|term| lexicon.terms[*term as usize].key);
    name.dedup();
    let full = words::squashed(&format!("{}{original}", segment.prefix()));
    let form = if tool.is_some_and(|tool| tool.backing.is_some()) { outline::short_form } else { outline::call_form };
    Card {
        signature: form(entry.name.as_str(), schema),
        summary: outline::first_sentence(description),
        own: words::squashed(original).into(),
        cut: Some(words::squashed(entry.name.as_str())).filter(|cut| *cut != full).map(Into::into),
        full: full.into(),
        stems: roll::stems(original),
        name: name.into(),
        sequence: sequence.into(),
    }
}

type Fields = [Vec<u32>; Field::ALL.len()];

/// Every word once. The same word is met again and again, so that what it stems to is remembered.
#[derive(Default)]
struct Lexicon {
    terms: Vec<Term>,
    by_stem: HashMap<Box<str>, u32>,
    by_word: HashMap<Box<str>, u32>,
}

impl Lexicon {
    fn read(&mut self, text: &str, into: &mut Vec<u32>) {
        words::each(text, |Word { whole, parts }| {
            into.push(self.term(&whole));
            into.extend(parts.iter().map(|part| self.term(part)));
        });
    }

    fn term(&mut self, word: &str) -> u32 {
        if let Some(&term) = self.by_word.get(word) {
            return term;
        }
        let stem: Box<str> = words::stem(word).into();
        let term = *self.by_stem.entry(stem).or_insert_with_key(|stem| {
            self.terms.push(Term { text: stem.clone(), key: words::key(stem), end: 0 });
            self.terms.len() as u32 - 1
        });
        self.by_word.insert(word.into(), term);
        term
    }
}
