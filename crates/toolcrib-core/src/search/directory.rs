//! Where each term of a whole catalogue is found, and how rare it is: the postings of all segments, laid one after the
//! other by term, for a search through two thousand sources must not go to each of them for each word.
//! Made by the first search in a catalogue, from what its segments have worked out already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::Query;
use super::postings::{Card, Posting};
use super::roll::Roll;
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
    /// For every tool of every place, whether agents may be offered it.
    offered: Vec<bool>,
    /// For every tool, the number of its place.
    place_of: Vec<u32>,
    terms: Keyed<Spread>,
    /// By term, then by tool.
    postings: Vec<Posting>,
    /// The places whose title or tags have a term.
    labels: Keyed<Vec<u32>>,
    roll: Roll,
    /// Every term's text in order, made when a search needs it.
    vocabulary: OnceLock<Vec<Box<str>>>,
}

/// One segment, and the number of its first tool.
#[derive(Debug)]
struct Place {
    part: Arc<Part>,
    base: u32,
}

/// Where a term stands in `postings`, in how many tools, and how rare that makes it.
#[derive(Debug, Default, Clone)]
struct Spread {
    postings: Range<u32>,
    tools: u32,
    rarity: f32,
}

pub(super) type Keyed<T> = HashMap<u64, T, BuildHasherDefault<AsIs>>;

impl Directory {
    /// `parts` come with what their catalogue leaves out of them.
    pub(crate) fn build<'a>(parts: impl Iterator<Item = (&'a Arc<Part>, &'a [usize])>) -> Directory {
        let mut directory = Directory::default();
        for (part, masked) in parts {
            let base = directory.offered.len() as u32;
            for (position, entry) in part.segment.entries().iter().enumerate() {
                let tool = ToolRef { part, entry };
                directory.offered.push(tool.is_offered() && masked.binary_search(&position).is_err());
            }
            directory.place_of.resize(directory.offered.len(), directory.places.len() as u32);
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
            let tools = places.iter().map(|place| self.places[*place as usize].part.segment.entries().len() as u32);
            self.terms.entry(*key).or_default().tools += tools.sum::<u32>();
        }
    }

    fn spread_terms(&mut self) {
        for place in &self.places {
            let postings = place.part.segment.postings();
            for (term, text) in postings.terms.iter().enumerate() {
                self.terms.entry(text.key).or_default().postings.end += postings.of(term as u32).len() as u32;
            }
        }
        let all = self.offered.len() as f32;
        let mut start = 0;
        for spread in self.terms.values_mut() {
            let length = spread.postings.end;
            spread.postings = start..start;
            start += length;
            spread.tools += length;
            spread.rarity = rarity(all, spread.tools as f32);
        }
        self.postings = vec![Posting { tool: 0, impact: 0.0 }; start as usize];
        for Place { part, base } in &self.places {
            let postings = part.segment.postings();
            for (term, text) in postings.terms.iter().enumerate() {
                let Some(spread) = self.terms.get_mut(&text.key) else { continue };
                let own = postings.of(term as u32);
                let end = spread.postings.end as usize;
                for (to, from) in self.postings[end..end + own.len()].iter_mut().zip(own) {
                    *to = Posting { tool: base + from.tool, impact: from.impact };
                }
                spread.postings.end += own.len() as u32;
            }
        }
    }

    /// How many tools there are, offered or not.
    pub(super) fn len(&self) -> usize {
        self.offered.len()
    }

    pub(super) fn is_offered(&self, tool: u32) -> bool {
        self.offered.get(tool as usize).copied().unwrap_or(false)
    }

    /// Whether a tool is offered and of the source and tag that a query is about.
    pub(super) fn wanted<'a>(&'a self, query: &'a Query) -> impl Fn(u32) -> bool + 'a {
        let unfiltered = query.source.is_none() && query.tag.is_none();
        let fits = move |place: &Place| {
            query.source.as_ref().is_none_or(|source| source == place.part.segment.source())
                && query.tag.as_ref().is_none_or(|tag| place.part.manner.tags.contains(tag))
        };
        move |tool| self.is_offered(tool) && (unfiltered || self.place(tool).is_some_and(|(_, place)| fits(place)))
    }

    /// In how many tools a term stands.
    pub(super) fn frequency(&self, key: u64) -> u32 {
        self.terms.get(&key).map_or(0, |spread| spread.tools)
    }

    /// How much a term tells tools apart.
    pub(super) fn rarity(&self, key: u64) -> f32 {
        self.terms.get(&key).map_or_else(|| rarity(self.offered.len() as f32, 0.0), |spread| spread.rarity)
    }

    /// Calls `take` with every tool that has the term, and what the term is worth there.
    pub(super) fn each(&self, key: u64, mut take: impl FnMut(u32, f32)) {
        for Posting { tool, impact } in self.postings(key) {
            take(*tool, *impact);
        }
        for number in self.labels.get(&key).into_iter().flatten() {
            let Place { part, base } = &self.places[*number as usize];
            (*base..base + part.segment.entries().len() as u32).for_each(|tool| take(tool, LABEL));
        }
    }

    /// The tools that have a term, in order.
    pub(super) fn postings(&self, key: u64) -> &[Posting] {
        let spread = self.terms.get(&key);
        let range = spread.map_or(0..0, |spread| spread.postings.start as usize..spread.postings.end as usize);
        self.postings.get(range).unwrap_or_default()
    }

    pub(super) fn roll(&self) -> &Roll {
        &self.roll
    }

    /// Every term's text, in order.
    pub(super) fn vocabulary(&self) -> &[Box<str>] {
        self.vocabulary.get_or_init(|| {
            let postings = self.places.iter().map(|place| place.part.segment.postings());
            let mut texts: Vec<&str> = postings.flat_map(|postings| &postings.terms).map(|term| &*term.text).collect();
            texts.sort_unstable();
            texts.dedup();
            texts.into_iter().map(Into::into).collect()
        })
    }

    /// Every tool with its card, offered or not.
    pub(super) fn cards(&self) -> impl Iterator<Item = (u32, &Card)> {
        self.places.iter().flat_map(|place| {
            let cards = &place.part.segment.postings().cards;
            cards.iter().enumerate().map(|(position, card)| (place.base + position as u32, card))
        })
    }

    /// A tool's card, and the number of its source.
    pub(super) fn card(&self, tool: u32) -> Option<(u32, &Card)> {
        let (number, place) = self.place(tool)?;
        Some((number as u32, place.part.segment.postings().cards.get((tool - place.base) as usize)?))
    }

    pub(super) fn tool(&self, tool: u32) -> Option<ToolRef<'_>> {
        let (_, Place { part, base }) = self.place(tool)?;
        let entry = part.segment.entries().get((tool - base) as usize)?;
        Some(ToolRef { part, entry })
    }

    fn place(&self, tool: u32) -> Option<(usize, &Place)> {
        let number = *self.place_of.get(tool as usize)? as usize;
        Some((number, self.places.get(number)?))
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
