//! Texts of all terms of a catalogue, as stems for matching by substring and as written for matching by edit distance.
//! Built on first use: queries of several known words do not need them.

use super::text_block::TextBlock;
use super::tokenize;

/// Term texts in ascending order; a term may have several. `texts` and `shapes` have the same positions.
#[derive(Debug, Default)]
pub(super) struct TermTexts {
    texts: TextBlock,
    shapes: Vec<TermShape>,
}

/// Key of a term, with length and letters as a cheap lower bound for edit distances.
#[derive(Debug, Clone, Copy)]
struct TermShape {
    key: u64,
    /// In characters.
    length: u32,
    /// See [`tokenize::letter_mask`].
    letter_mask: u64,
}

/// A term near a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearTerm<'a> {
    pub(super) key: u64,
    pub(super) text: &'a str,
    pub(super) distance: usize,
}

impl TermTexts {
    /// Builds the index. A text may occur several times, once per segment.
    pub(super) fn build<'a>(terms: impl Iterator<Item = (u64, &'a str)>) -> TermTexts {
        let mut terms: Vec<(&str, u64)> = terms.map(|(key, text)| (text, key)).collect();
        terms.sort_unstable();
        terms.dedup();
        let mut index = TermTexts::default();
        for (text, key) in terms {
            index.texts.push(text);
            index.shapes.push(TermShape {
                key,
                length: text.chars().count() as u32,
                letter_mask: tokenize::letter_mask(text),
            });
        }
        index
    }

    /// Keys of the terms that contain the word or its stem, except the stem itself, which is an exact match.
    pub(super) fn find_containing(&self, word: &str, stem: &str) -> Vec<u64> {
        let mut found = self.texts.containing(stem);
        // A stem is not always a prefix of its word (`repositori`), so search for both then.
        if !word.contains(stem) {
            found.extend(self.texts.containing(word));
            found.sort_unstable();
            found.dedup();
        }
        found.retain(|position| self.texts.get(*position) != stem);
        found.into_iter().map(|position| self.shapes[position].key).collect()
    }

    /// Whether a text is among those of the terms.
    pub(super) fn contains(&self, text: &str) -> bool {
        let position = self.texts.partition_point(|other| other < text);
        position < self.shapes.len() && self.texts.get(position) == text
    }

    /// Terms with the same first letter within an edit distance (optimal string alignment).
    pub(super) fn find_within_distance(&self, word: &str, max_distance: usize) -> Vec<NearTerm<'_>> {
        let length = word.chars().count() as u32;
        let letter_mask = tokenize::letter_mask(word);
        let first = word.chars().next().unwrap_or_default();
        // Texts are sorted, so those with the same first letter are contiguous.
        let start = self.texts.partition_point(|text| !text.starts_with(first) && text < word);
        let mut found = Vec::new();
        for (position, shape) in self.shapes.iter().enumerate().skip(start) {
            let text = self.texts.get(position);
            if !text.starts_with(first) {
                break;
            }
            if shape.length.abs_diff(length) as usize <= max_distance
                && tokenize::may_be_typo(shape.letter_mask, letter_mask, max_distance)
            {
                let distance = strsim::osa_distance(text, word);
                if distance <= max_distance {
                    found.push(NearTerm { key: shape.key, text, distance });
                }
            }
        }
        found
    }
}
