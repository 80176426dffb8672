//! The words of one source's tools, and how much each counts for which tool. Built by the first search, from the segment
//! alone: how rare a word is over all sources is asked of the [`Directory`](super::directory::Directory).

use std::collections::HashMap;

use super::document::{self, Field};
use super::words::{self, Word};
use crate::catalog::Segment;
use crate::outline;

/// How quickly more of the same word counts less.
const SATURATION: f32 = 1.2;
/// How much a long text is held against its words, from 0 to 1.
const LENGTH_PENALTY: f32 = 0.6;

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

/// What a hit shows of a tool, and how its name is recognised.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) signature: String,
    pub(super) summary: String,
    /// The tool's own name and the one with its source, letters and digits alone.
    pub(super) own: Box<str>,
    pub(super) full: Box<str>,
}

impl Postings {
    pub(crate) fn build(segment: &Segment) -> Postings {
        let mut lexicon = Lexicon::default();
        let mut shared: [Vec<u32>; Field::COUNT] = Default::default();
        lexicon.read(segment.source().as_str(), &mut shared[Field::Source as usize]);
        let mut entries: Vec<(u32, Posting)> = Vec::new();
        let mut cards = Vec::with_capacity(segment.entries().len());
        let mut weights: HashMap<u32, f32> = HashMap::new();
        for (position, entry) in segment.entries().iter().enumerate() {
            // A stored tool that cannot be read is found by its name alone.
            let tool = segment.tool(entry).ok();
            let mut fields = shared.clone();
            match &tool {
                Some(tool) => document::texts(tool, |field, text| lexicon.read(text, &mut fields[field as usize])),
                None => lexicon.read(segment.original(entry), &mut fields[Field::Name as usize]),
            }
            for (field, words) in FIELDS.into_iter().zip(&fields) {
                let length = words.len() as f32 / field.usual_length();
                let each = field.weight() / (1.0 - LENGTH_PENALTY + LENGTH_PENALTY * length);
                words.iter().for_each(|word| *weights.entry(*word).or_default() += each);
            }
            for (word, weight) in weights.drain() {
                entries.push((word, Posting { tool: position as u32, impact: weight / (SATURATION + weight) }));
            }
            let (signature, summary) = match &tool {
                Some(tool) => {
                    let schema = serde_json::from_str(tool.face.input_schema.get()).unwrap_or_default();
                    let signature = outline::call_form(entry.name.as_str(), &schema);
                    (signature, outline::first_sentence(&tool.face.description))
                }
                None => (entry.name.to_string(), String::new()),
            };
            let own = words::squashed(segment.original(entry)).into();
            cards.push(Card { signature, summary, own, full: words::squashed(entry.name.as_str()).into() });
        }
        entries.sort_unstable_by_key(|(word, posting)| (*word, posting.tool));
        let with_key = |text: Box<str>| Term { key: words::key(&text), text, end: 0 };
        let mut terms: Vec<Term> = lexicon.terms.into_iter().map(with_key).collect();
        for (end, (word, _)) in entries.iter().enumerate() {
            terms[*word as usize].end = end as u32 + 1;
        }
        Postings { terms, postings: entries.into_iter().map(|(_, posting)| posting).collect(), cards }
    }

    pub(super) fn of(&self, term: u32) -> &[Posting] {
        let end = |term: usize| self.terms.get(term).map_or(0, |term| term.end as usize);
        let start = if term == 0 { 0 } else { end(term as usize - 1) };
        self.postings.get(start..end(term as usize)).unwrap_or_default()
    }
}

const FIELDS: [Field; Field::COUNT] = [
    Field::Name,
    Field::Description,
    Field::Source,
    Field::About,
    Field::ArgumentName,
    Field::ArgumentDescription,
    Field::Choice,
];

/// Every word once. The same word is met again and again, so that what it stems to is remembered.
#[derive(Default)]
struct Lexicon {
    terms: Vec<Box<str>>,
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
            self.terms.push(stem.clone());
            self.terms.len() as u32 - 1
        });
        self.by_word.insert(word.into(), term);
        term
    }
}
