//! Where each term of a whole catalogue is found, and how rare it is: the postings of all segments, laid one after the
//! other by term, for a search through two thousand sources must not go to each of them for each word.
//! Made by the first search in a catalogue, from what its segments have worked out already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::Query;
use super::postings::{Card, Posting, Term};
use super::roll::Roll;
use super::spellings::Spellings;
use super::texts::Texts;
use super::words::{self, Word};
use crate::catalog::{Part, ToolRef};

/// What a word of a source's title or tags is worth for its tools. A configuration may change them while the list stays,
/// so that they are no part of the postings.
const LABEL: f32 = 0.3;
/// How far rarity counts: less than in full, for what is rarest in a task is often the name of a person or a file.
const RARITY: f32 = 0.8;

#[derive(Debug, Default)]
pub(crate) struct Directory {
    places: Vec<Place>,
    /// For every tool, the number of its place.
    place_of: Vec<u32>,
    /// The tools that no search finds, in order.
    withheld: Vec<u32>,
    terms: Keyed<Spread>,
    /// By term, then by tool.
    postings: Vec<Posting>,
    /// The places whose title or tags have a term.
    labels: Keyed<Vec<u32>>,
    texts: Texts,
    roll: Roll,
    /// Made when a search needs it.
    spellings: OnceLock<Spellings>,
}

/// One segment, and the number of its first tool.
#[derive(Debug)]
struct Place {
    part: Arc<Part>,
    base: u32,
}

/// A term over all sources: where it stands in `postings`, in how many tools, and how rare that makes it.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub(super) key: u64,
    /// What it goes by in [`Texts`].
    pub(super) number: u32,
    /// How much it tells tools apart.
    pub(super) rarity: f32,
    tools: u32,
    postings: Range<u32>,
}

pub(super) type Keyed<T> = HashMap<u64, T, BuildHasherDefault<AsIs>>;

impl Directory {
    /// `parts` come with what their catalogue leaves out of them.
    pub(crate) fn build<'a>(parts: impl Iterator<Item = (&'a Arc<Part>, &'a [usize])>) -> Directory {
        let mut directory = Directory::default();
        for (part, masked) in parts {
            let base = directory.place_of.len() as u32;
            let entries = part.segment.entries();
            for (position, entry) in entries.iter().enumerate() {
                let findable = ToolRef { part, entry }.is_findable() && masked.binary_search(&position).is_err();
                if !findable {
                    directory.withheld.push(base + position as u32);
                }
            }
            directory.place_of.resize(directory.place_of.len() + entries.len(), directory.places.len() as u32);
            directory.places.push(Place { part: part.clone(), base });
        }
        directory.read_labels();
        directory.spread_terms();
        directory.roll = Roll::call(directory.cards());
        directory
    }

    fn read_labels(&mut self) {
        for (number, Place { part, .. }) in self.places.iter().enumerate() {
            for text in part.manner.tags.iter().chain(&part.manner.title) {
                words::each(text, |Word { whole, parts }| {
                    for word in parts.iter().chain([&whole]) {
                        let places = self.labels.entry(words::term(word)).or_default();
                        if places.last() != Some(&(number as u32)) {
                            places.push(number as u32);
                        }
                    }
                });
            }
        }
        for (key, places) in &self.labels {
            let tools = places.iter().map(|place| self.places[*place as usize].tools().len() as u32);
            let number = self.terms.len() as u32;
            self.terms.insert(*key, Spread { key: *key, number, tools: tools.sum(), ..Spread::default() });
        }
    }

    fn spread_terms(&mut self) {
        // For each place, the numbers of its terms in this catalogue.
        let mut numbers: Vec<Vec<u32>> = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let postings = place.part.segment.postings();
            let number = |(term, known): (usize, &Term)| {
                let next = self.terms.len() as u32;
                let spread =
                    self.terms.entry(known.key).or_insert_with(|| Spread { number: next, ..Spread::default() });
                spread.key = known.key;
                spread.postings.end += postings.of(term as u32).len() as u32;
                spread.number
            };
            numbers.push(postings.terms.iter().enumerate().map(number).collect());
        }
        let all = self.place_of.len() as f32;
        let (mut free, mut rarities) = (vec![0; self.terms.len()], vec![0.0; self.terms.len()]);
        let mut start = 0;
        for spread in self.terms.values_mut() {
            let length = spread.postings.end;
            spread.postings = start..start + length;
            spread.tools += length;
            spread.rarity = rarity(all, spread.tools as f32);
            free[spread.number as usize] = start as usize;
            rarities[spread.number as usize] = spread.rarity;
            start += length;
        }
        self.postings = vec![Posting { tool: 0, impact: 0.0 }; start as usize];
        for (Place { part, base }, numbers) in self.places.iter().zip(&numbers) {
            let postings = part.segment.postings();
            for (term, number) in numbers.iter().enumerate() {
                let free = &mut free[*number as usize];
                for Posting { tool, impact } in postings.of(term as u32) {
                    self.postings[*free] = Posting { tool: base + tool, impact: *impact };
                    *free += 1;
                }
            }
            self.texts.add(postings, numbers, &rarities);
        }
    }

    /// How many tools there are, findable or not.
    pub(super) fn len(&self) -> usize {
        self.place_of.len()
    }

    pub(super) fn is_findable(&self, tool: u32) -> bool {
        self.withheld.binary_search(&tool).is_err()
    }

    /// Takes every score from the tools that cannot be found, or are not of the source and tag that a query is about.
    pub(super) fn withhold(&self, query: &Query, scores: &mut [f32]) {
        self.withheld.iter().for_each(|tool| scores[*tool as usize] = 0.0);
        if query.source.is_none() && query.tag.is_none() {
            return;
        }
        for place in &self.places {
            let fits = query.source.as_ref().is_none_or(|source| source == place.part.segment.source())
                && query.tag.as_ref().is_none_or(|tag| place.part.manner.tags.contains(tag));
            if !fits {
                scores[place.tools()].fill(0.0);
            }
        }
    }

    /// A term, if any tool has it.
    pub(super) fn spread(&self, key: u64) -> Option<&Spread> {
        self.terms.get(&key)
    }

    /// In how many tools a term stands.
    pub(super) fn frequency(&self, key: u64) -> u32 {
        self.spread(key).map_or(0, |spread| spread.tools)
    }

    /// Calls `take` with every tool that has the term, and what the term is worth there.
    pub(super) fn each(&self, spread: &Spread, mut take: impl FnMut(u32, f32)) {
        for Posting { tool, impact } in self.postings(spread) {
            take(*tool, *impact);
        }
        for number in self.labels.get(&spread.key).into_iter().flatten() {
            self.places[*number as usize].tools().for_each(|tool| take(tool as u32, LABEL));
        }
    }

    /// The tools that have a term, in order.
    pub(super) fn postings(&self, spread: &Spread) -> &[Posting] {
        let range = spread.postings.start as usize..spread.postings.end as usize;
        self.postings.get(range).unwrap_or_default()
    }

    pub(super) fn texts(&self) -> &Texts {
        &self.texts
    }

    pub(super) fn roll(&self) -> &Roll {
        &self.roll
    }

    pub(super) fn spellings(&self) -> &Spellings {
        self.spellings.get_or_init(|| {
            let postings = self.places.iter().map(|place| place.part.segment.postings());
            Spellings::of(postings.flat_map(|postings| &postings.terms).map(|term| (term.key, &*term.text)))
        })
    }

    /// Every tool with its card, findable or not.
    pub(super) fn cards(&self) -> impl Iterator<Item = (u32, &Card)> {
        self.places.iter().flat_map(|place| {
            let cards = &place.part.segment.postings().cards;
            cards.iter().enumerate().map(|(position, card)| (place.base + position as u32, card))
        })
    }

    pub(super) fn card(&self, tool: u32) -> Option<&Card> {
        let Place { part, base } = self.place(tool)?;
        part.segment.postings().cards.get((tool - base) as usize)
    }

    pub(super) fn tool(&self, tool: u32) -> Option<ToolRef<'_>> {
        let Place { part, base } = self.place(tool)?;
        let entry = part.segment.entries().get((tool - base) as usize)?;
        Some(ToolRef { part, entry })
    }

    /// How many sources there are.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// The number of a tool's source.
    pub(super) fn place_of(&self, tool: u32) -> u32 {
        self.place_of.get(tool as usize).copied().unwrap_or_default()
    }

    fn place(&self, tool: u32) -> Option<&Place> {
        self.places.get(*self.place_of.get(tool as usize)? as usize)
    }
}

impl Place {
    fn tools(&self) -> Range<usize> {
        self.base as usize..self.base as usize + self.part.segment.entries().len()
    }
}

fn rarity(all: f32, having: f32) -> f32 {
    // A label may make a word count twice for a tool.
    let having = having.min(all);
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln().powf(RARITY)
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
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
