//! The texts of all terms of a catalogue, to be searched as texts: for what stands inside of them, and for what differs
//! from a word by a slip of the finger.

use super::index::TermMap;
use super::text_block::TextBlock;
use super::tokenize;

/// In the order of the texts.
#[derive(Debug, Default)]
pub(super) struct TermTexts {
    texts: TextBlock,
    shapes: Vec<TermShape>,
}

#[derive(Debug, Clone, Copy)]
struct TermShape {
    key: u64,
    /// What is compared before a text itself is.
    length: u32,
    letter_mask: u64,
}

impl TermTexts {
    /// A term may come more than once.
    pub(super) fn build<'a>(terms: impl Iterator<Item = (u64, &'a str)>) -> TermTexts {
        let texts: TermMap<&str> = terms.collect();
        let mut terms: Vec<(&str, u64)> = texts.into_iter().map(|(key, text)| (text, key)).collect();
        terms.sort_unstable();
        let mut spellings = TermTexts::default();
        for (text, key) in terms {
            spellings.texts.push(text);
            spellings.shapes.push(TermShape {
                key,
                length: text.chars().count() as u32,
                letter_mask: tokenize::letter_mask(text),
            });
        }
        spellings
    }

    /// The keys of the terms that have a word or its stem inside, but for the stem itself.
    pub(super) fn find_containing(&self, word: &str, stem: &str) -> Vec<u64> {
        let mut found = self.texts.containing(stem);
        if !word.contains(stem) {
            found.extend(self.texts.containing(word));
            found.sort_unstable();
            found.dedup();
        }
        found.retain(|position| self.texts.get(*position) != stem);
        found.into_iter().map(|position| self.shapes[position].key).collect()
    }

    /// The keys of the terms that begin with the same letter and differ by so many letters and no more.
    pub(super) fn find_within_distance(&self, stem: &str, most: usize) -> Vec<u64> {
        let (length, letters) = (stem.chars().count() as u32, tokenize::letter_mask(stem));
        let first = stem.chars().next().unwrap_or_default();
        let start = self.texts.partition_point(|text| !text.starts_with(first) && text < stem);
        let mut found = Vec::new();
        for (position, mark) in self.shapes.iter().enumerate().skip(start) {
            let text = self.texts.get(position);
            if !text.starts_with(first) {
                break;
            }
            if mark.length.abs_diff(length) as usize <= most
                && tokenize::may_be_typo(mark.letter_mask, letters, most)
                && strsim::osa_distance(text, stem) <= most
            {
                found.push(mark.key);
            }
        }
        found
    }
}
