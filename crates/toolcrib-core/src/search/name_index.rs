//! The names of all tools, to be found in any spelling: letters and digits alone, or by the stems of their words.

use super::index::TermMap;
use super::postings::ToolCard;
use super::text_block::TextBlock;
use super::tokenize::{self, Word};

#[derive(Debug, Default)]
pub(super) struct NameIndex {
    by_normalized_name: TermMap<Vec<u32>>,
    by_stems: TermMap<Vec<u32>>,
    /// What is compared before a name itself is, by the length of the name.
    name_shapes: Vec<NameShape>,
    /// Every tool's name with its source, letters and digits alone.
    full_names: TextBlock,
}

#[derive(Debug, Clone, Copy)]
struct NameShape {
    tool: u32,
    length: u32,
    letter_mask: u64,
    is_full_name: bool,
}

impl NameIndex {
    /// The cards of all tools, in order.
    pub(super) fn build<'a>(cards: impl Iterator<Item = (u32, &'a ToolCard)>) -> NameIndex {
        let mut roll = NameIndex::default();
        for (tool, card) in cards {
            roll.add_name(tool, &card.normalized_name, false);
            if card.normalized_full_name != card.normalized_name {
                roll.add_name(tool, &card.normalized_full_name, true);
            }
            if let Some(cut) = &card.normalized_cut_name {
                roll.by_normalized_name.entry(tokenize::hash_key(cut)).or_default().push(tool);
                let source = card.normalized_full_name.strip_suffix(&*card.normalized_name).unwrap_or_default();
                if let Some(own) = cut.strip_prefix(source).filter(|own| **own != **cut) {
                    roll.by_normalized_name.entry(tokenize::hash_key(own)).or_default().push(tool);
                }
            }
            roll.by_stems.entry(card.stems_key).or_default().push(tool);
            roll.full_names.push(&card.normalized_full_name);
        }
        roll.name_shapes.sort_by_key(|shape| shape.length);
        roll
    }

    fn add_name(&mut self, tool: u32, name: &str, whole: bool) {
        self.by_normalized_name.entry(tokenize::hash_key(name)).or_default().push(tool);
        let (length, letters) = (name.chars().count() as u32, tokenize::letter_mask(name));
        self.name_shapes.push(NameShape { tool, length, letter_mask: letters, is_full_name: whole });
    }

    /// Tools that are called so, letters and digits alone.
    pub(super) fn find_normalized(&self, squashed: &str) -> &[u32] {
        // Names of marks alone are all alike.
        let found = self.by_normalized_name.get(&tokenize::hash_key(squashed)).filter(|_| !squashed.is_empty());
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose own names consist of the same words, in whatever form.
    pub(super) fn find_by_stems(&self, text: &str) -> &[u32] {
        let stems = stems_key(text);
        let found = self.by_stems.get(&stems).filter(|_| stems != tokenize::hash_key(""));
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools with this inside of their names.
    pub(super) fn find_containing(&self, squashed: &str) -> impl Iterator<Item = u32> {
        self.full_names.containing(squashed).into_iter().map(|tool| tool as u32)
    }

    /// Tools whose names may differ by so many letters and no more; whether it is the name with the source or without.
    pub(super) fn find_within_distance(&self, squashed: &str, most: usize) -> impl Iterator<Item = (u32, bool)> {
        let (length, letters) = (squashed.chars().count(), tokenize::letter_mask(squashed));
        let start = self.name_shapes.partition_point(|shape| (shape.length as usize) + most < length);
        let near = self.name_shapes[start..].iter().take_while(move |shape| shape.length as usize <= length + most);
        let alike = near.filter(move |shape| tokenize::may_be_typo(shape.letter_mask, letters, most));
        alike.map(|shape| (shape.tool, shape.is_full_name))
    }
}

/// Names the words of a text in their order, whatever their form.
pub(super) fn stems_key(text: &str) -> u64 {
    let mut joined = String::new();
    tokenize::for_each_word(text, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| joined.push_str(&tokenize::stem(part)));
    });
    tokenize::hash_key(&joined)
}
