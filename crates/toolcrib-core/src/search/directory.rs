//! Where each term and each name of a whole catalogue is found: which segments have it, and how rare it is.
//! Made by the first search in a catalogue; the postings themselves stay with their segments.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::postings::{Card, Posting};
use super::words;
use crate::catalog::{Part, ToolRef};

#[derive(Debug, Default)]
pub(crate) struct Directory {
    places: Vec<Place>,
    /// For every tool of every place, whether agents may be offered it.
    offered: Vec<bool>,
    terms: Keyed<Spread>,
    lists: Vec<(u32, u32)>,
    names: Keyed<Vec<u32>>,
}

/// One segment, and the number of its first tool.
#[derive(Debug)]
struct Place {
    part: Arc<Part>,
    base: u32,
}

/// Where a term stands in `lists`, and in how many tools.
#[derive(Debug, Default, Clone)]
struct Spread {
    lists: Range<u32>,
    tools: u32,
}

type Keyed<T> = HashMap<u64, T, BuildHasherDefault<AsIs>>;

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
            directory.places.push(Place { part: part.clone(), base });
        }
        directory.spread_terms();
        directory.enter_names();
        directory
    }

    fn spread_terms(&mut self) {
        for place in &self.places {
            let postings = place.part.segment.postings();
            for (term, text) in postings.terms.iter().enumerate() {
                let spread = self.terms.entry(text.key).or_default();
                spread.lists.end += 1;
                spread.tools += postings.of(term as u32).len() as u32;
            }
        }
        let mut start = 0;
        for spread in self.terms.values_mut() {
            let length = spread.lists.end;
            spread.lists = start..start;
            start += length;
        }
        self.lists = vec![(0, 0); start as usize];
        for (number, place) in self.places.iter().enumerate() {
            for (term, text) in place.part.segment.postings().terms.iter().enumerate() {
                if let Some(spread) = self.terms.get_mut(&text.key) {
                    self.lists[spread.lists.end as usize] = (number as u32, term as u32);
                    spread.lists.end += 1;
                }
            }
        }
    }

    fn enter_names(&mut self) {
        for place in &self.places {
            for (position, card) in place.part.segment.postings().cards.iter().enumerate() {
                let tool = place.base + position as u32;
                self.names.entry(words::key(&card.own)).or_default().push(tool);
                if card.full != card.own {
                    self.names.entry(words::key(&card.full)).or_default().push(tool);
                }
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

    /// In how many tools a term stands.
    pub(super) fn frequency(&self, key: u64) -> u32 {
        self.terms.get(&key).map_or(0, |spread| spread.tools)
    }

    /// Calls `take` with every tool that has the term, and what the term is worth there.
    pub(super) fn each(&self, key: u64, mut take: impl FnMut(u32, f32)) {
        let Some(spread) = self.terms.get(&key) else { return };
        for &(number, term) in &self.lists[spread.lists.start as usize..spread.lists.end as usize] {
            let place = &self.places[number as usize];
            for Posting { tool, impact } in place.part.segment.postings().of(term) {
                take(place.base + tool, *impact);
            }
        }
    }

    /// Tools that are called so, letters and digits alone.
    pub(super) fn named(&self, squashed: &str) -> &[u32] {
        self.names.get(&words::key(squashed)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Every tool with its card, offered or not.
    pub(super) fn cards(&self) -> impl Iterator<Item = (u32, &Card)> {
        self.places.iter().flat_map(|place| {
            let cards = &place.part.segment.postings().cards;
            cards.iter().enumerate().map(|(position, card)| (place.base + position as u32, card))
        })
    }

    pub(super) fn tool(&self, tool: u32) -> Option<(ToolRef<'_>, &Card)> {
        let number = self.places.partition_point(|place| place.base <= tool).checked_sub(1)?;
        let Place { part, base } = self.places.get(number)?;
        let position = (tool - base) as usize;
        let entry = part.segment.entries().get(position)?;
        Some((ToolRef { part, entry }, part.segment.postings().cards.get(position)?))
    }
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(crate) struct AsIs(u64);

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
