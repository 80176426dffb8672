//! The names of all tools, to be found in any spelling: letters and digits alone, or by the stems of their words.

use super::directory::Keyed;
use super::postings::Card;
use super::words::{self, Word};

#[derive(Debug, Default)]
pub(super) struct Roll {
    by_spelling: Keyed<Vec<u32>>,
    by_stems: Keyed<Vec<u32>>,
    /// What is compared before a name itself is.
    shapes: Vec<Shape>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    tool: u32,
    length: u32,
    /// Which letters and digits occur.
    letters: u64,
    whole: bool,
}

impl Roll {
    pub(super) fn call<'a>(cards: impl Iterator<Item = (u32, &'a Card)>) -> Roll {
        let mut roll = Roll::default();
        for (tool, card) in cards {
            roll.enter(tool, &card.own, false);
            if card.full != card.own {
                roll.enter(tool, &card.full, true);
            }
            if let Some(cut) = &card.cut {
                roll.by_spelling.entry(words::key(cut)).or_default().push(tool);
            }
            roll.by_stems.entry(card.stems).or_default().push(tool);
        }
        roll
    }

    fn enter(&mut self, tool: u32, name: &str, whole: bool) {
        self.by_spelling.entry(words::key(name)).or_default().push(tool);
        self.shapes.push(Shape { tool, length: name.chars().count() as u32, letters: letters(name), whole });
    }

    /// Tools that are called so, letters and digits alone.
    pub(super) fn spelled(&self, squashed: &str) -> &[u32] {
        self.by_spelling.get(&words::key(squashed)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose own names consist of the same words, in whatever form.
    pub(super) fn worded(&self, text: &str) -> &[u32] {
        self.by_stems.get(&stems(text)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose names may differ by so many letters and no more; whether it is the name with the source or without.
    pub(super) fn like(&self, squashed: &str, most: u32) -> impl Iterator<Item = (u32, bool)> {
        let (length, wanted) = (squashed.chars().count() as u32, letters(squashed));
        let near = move |shape: &&Shape| {
            shape.length.abs_diff(length) <= most && (shape.letters ^ wanted).count_ones() <= 2 * most
        };
        self.shapes.iter().filter(near).map(|shape| (shape.tool, shape.whole))
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

fn letters(name: &str) -> u64 {
    name.chars().fold(0, |letters, character| letters | 1 << (character as u32 % 64))
}
