//! The names of all tools, to be found in any spelling: letters and digits alone, or by the stems of their words.

use super::directory::Keyed;
use super::lines::Lines;
use super::postings::Card;
use super::words::{self, Word};

#[derive(Debug, Default)]
pub(super) struct Roll {
    by_spelling: Keyed<Vec<u32>>,
    by_stems: Keyed<Vec<u32>>,
    /// What is compared before a name itself is, by the length of the name.
    shapes: Vec<Shape>,
    /// Every tool's name with its source, letters and digits alone.
    names: Lines,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    tool: u32,
    length: u32,
    letters: u64,
    whole: bool,
}

impl Roll {
    /// The cards of all tools, in order.
    pub(super) fn call<'a>(cards: impl Iterator<Item = (u32, &'a Card)>) -> Roll {
        let mut roll = Roll::default();
        for (tool, card) in cards {
            roll.enter(tool, &card.own, false);
            if card.full != card.own {
                roll.enter(tool, &card.full, true);
            }
            if let Some(cut) = &card.cut {
                roll.by_spelling.entry(words::key(cut)).or_default().push(tool);
                let source = card.full.strip_suffix(&*card.own).unwrap_or_default();
                if let Some(own) = cut.strip_prefix(source).filter(|own| **own != **cut) {
                    roll.by_spelling.entry(words::key(own)).or_default().push(tool);
                }
            }
            roll.by_stems.entry(card.stems).or_default().push(tool);
            roll.names.push(&card.full);
        }
        roll.shapes.sort_by_key(|shape| shape.length);
        roll
    }

    fn enter(&mut self, tool: u32, name: &str, whole: bool) {
        self.by_spelling.entry(words::key(name)).or_default().push(tool);
        let (length, letters) = (name.chars().count() as u32, words::letters(name));
        self.shapes.push(Shape { tool, length, letters, whole });
    }

    /// Tools that are called so, letters and digits alone.
    pub(super) fn spelled(&self, squashed: &str) -> &[u32] {
        // Names of marks alone are all alike.
        let found = self.by_spelling.get(&words::key(squashed)).filter(|_| !squashed.is_empty());
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose own names consist of the same words, in whatever form.
    pub(super) fn worded(&self, text: &str) -> &[u32] {
        let stems = stems(text);
        let found = self.by_stems.get(&stems).filter(|_| stems != words::key(""));
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools with this inside of their names.
    pub(super) fn around(&self, squashed: &str) -> impl Iterator<Item = u32> {
        self.names.having(squashed).into_iter().map(|tool| tool as u32)
    }

    /// Tools whose names may differ by so many letters and no more; whether it is the name with the source or without.
    pub(super) fn like(&self, squashed: &str, most: usize) -> impl Iterator<Item = (u32, bool)> {
        let (length, letters) = (squashed.chars().count(), words::letters(squashed));
        let start = self.shapes.partition_point(|shape| (shape.length as usize) + most < length);
        let near = self.shapes[start..].iter().take_while(move |shape| shape.length as usize <= length + most);
        let alike = near.filter(move |shape| words::may_be_slip(shape.letters, letters, most));
        alike.map(|shape| (shape.tool, shape.whole))
    }
}

/// Names the words of a text in their order, whatever their form.
pub(super) fn stems(text: &str) -> u64 {
    let mut joined = String::new();
    words::each(text, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| joined.push_str(&words::stem(part)));
    });
    words::key(&joined)
}
