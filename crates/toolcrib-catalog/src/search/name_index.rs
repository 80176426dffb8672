//! Index of all tool names of a catalogue by normalised spelling, by stems, by substring and by edit distance. A tool
//! that a query names must be found, in whatever spelling.

use super::index::TermMap;
use super::postings::ToolCard;
use super::text_block::TextBlock;
use super::tokenize::{self, Word};

/// Tool numbers by name.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    /// By hash of the normalised name, with and without the source prefix.
    by_normalized_name: TermMap<Vec<u32>>,
    /// By hash of the stemmed words of the name without prefix.
    by_stems: TermMap<Vec<u32>>,
    /// Sorted by length; narrows the candidates for edit distance. Up to two entries per tool, with and without prefix.
    name_shapes: Vec<NameShape>,
    /// Normalised names with source prefix, at the position of the tool number.
    full_names: TextBlock,
}

/// Length and letters of a name: a cheap lower bound for its edit distance to another name.
#[derive(Debug, Clone, Copy)]
struct NameShape {
    tool: u32,
    /// In characters.
    length: u32,
    /// See [`tokenize::letter_mask`].
    letter_mask: u64,
    /// Whether the name includes the source prefix.
    is_full_name: bool,
}

impl NameIndex {
    /// Builds the index from the cards of all tools, in order of their numbers.
    pub(super) fn build<'a>(cards: impl Iterator<Item = (u32, &'a ToolCard)>) -> NameIndex {
        let mut index = NameIndex::default();
        for (tool, card) in cards {
            index.add_name(tool, &card.normalized_name, false);
            if card.normalized_full_name != card.normalized_name {
                index.add_name(tool, &card.normalized_full_name, true);
            }
            if let Some(short_name) = &card.normalized_short_name {
                index.by_normalized_name.entry(tokenize::hash_key(short_name)).or_default().push(tool);
            }
            // A shortened name is known to agents, so it is found too, with and without its prefix.
            if let Some(cut_name) = &card.normalized_cut_name {
                index.by_normalized_name.entry(tokenize::hash_key(cut_name)).or_default().push(tool);
                let source = card.normalized_full_name.strip_suffix(&*card.normalized_name).unwrap_or_default();
                if let Some(name) = cut_name.strip_prefix(source).filter(|name| **name != **cut_name) {
                    index.by_normalized_name.entry(tokenize::hash_key(name)).or_default().push(tool);
                }
            }
            index.by_stems.entry(card.stems_key).or_default().push(tool);
            index.full_names.push(&card.normalized_full_name);
        }
        // By length, so that candidates for a distance are one contiguous range.
        index.name_shapes.sort_by_key(|shape| shape.length);
        index
    }

    /// Adds one normalised name of a tool.
    fn add_name(&mut self, tool: u32, name: &str, is_full_name: bool) {
        self.by_normalized_name.entry(tokenize::hash_key(name)).or_default().push(tool);
        let length = name.chars().count() as u32;
        let letter_mask = tokenize::letter_mask(name);
        self.name_shapes.push(NameShape { tool, length, letter_mask, is_full_name });
    }

    /// Tools with this normalised name.
    pub(super) fn find_normalized(&self, normalized: &str) -> &[u32] {
        // All names without letters and digits are empty when normalised; they match nothing.
        let found = self.by_normalized_name.get(&tokenize::hash_key(normalized)).filter(|_| !normalized.is_empty());
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose name without prefix consists of the same stemmed words in the same order.
    pub(super) fn find_by_stems(&self, text: &str) -> &[u32] {
        let stems = stems_key(text);
        let found = self.by_stems.get(&stems).filter(|_| stems != tokenize::hash_key(""));
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// Tools whose normalised full name contains the text.
    pub(super) fn find_containing(&self, normalized: &str) -> impl Iterator<Item = u32> {
        self.full_names.containing(normalized).into_iter().map(|tool| tool as u32)
    }

    /// Candidates within an edit distance, judged by length and letters; callers compute the exact distance. The flag
    /// tells whether the name includes the source prefix.
    pub(super) fn find_within_distance(
        &self,
        normalized: &str,
        max_distance: usize,
    ) -> impl Iterator<Item = (u32, bool)> {
        let length = normalized.chars().count();
        let letter_mask = tokenize::letter_mask(normalized);
        let start = self.name_shapes.partition_point(|shape| (shape.length as usize) + max_distance < length);
        let near =
            self.name_shapes[start..].iter().take_while(move |shape| shape.length as usize <= length + max_distance);
        let similar = near.filter(move |shape| tokenize::may_be_typo(shape.letter_mask, letter_mask, max_distance));
        similar.map(|shape| (shape.tool, shape.is_full_name))
    }
}

/// Hash of the stemmed words of a text, in order.
pub(super) fn stems_key(text: &str) -> u64 {
    let mut joined = String::new();
    tokenize::for_each_word(text, |Word { whole, parts }| {
        let parts = if parts.is_empty() { vec![whole] } else { parts };
        parts.iter().for_each(|part| joined.push_str(&tokenize::stem(part)));
    });
    tokenize::hash_key(&joined)
}
