//! The texts of all terms of a catalogue, to be searched as texts: for what stands inside of them, and for what differs
//! from a word by a slip of the finger.

use super::directory::Keyed;
use super::lines::Lines;
use super::words;

/// In the order of the texts.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    texts: Lines,
    marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    key: u64,
    /// What is compared before a text itself is.
    length: u32,
    letters: u64,
}

impl Spellings {
    /// A term may come more than once.
    pub(super) fn of<'a>(terms: impl Iterator<Item = (u64, &'a str)>) -> Spellings {
        let texts: Keyed<&str> = terms.collect();
        let mut terms: Vec<(&str, u64)> = texts.into_iter().map(|(key, text)| (text, key)).collect();
        terms.sort_unstable();
        let mut spellings = Spellings::default();
        for (text, key) in terms {
            spellings.texts.push(text);
            spellings.marks.push(Mark { key, length: text.chars().count() as u32, letters: words::letters(text) });
        }
        spellings
    }

    /// The keys of the terms that have a word or its stem inside, but for the stem itself.
    pub(super) fn around(&self, word: &str, stem: &str) -> Vec<u64> {
        let mut found = self.texts.having(stem);
        if !word.contains(stem) {
            found.extend(self.texts.having(word));
            found.sort_unstable();
            found.dedup();
        }
        found.retain(|position| self.texts.get(*position) != stem);
        found.into_iter().map(|position| self.marks[position].key).collect()
    }

    /// The keys of the terms that begin with the same letter and differ by so many letters and no more.
    pub(super) fn like(&self, stem: &str, most: usize) -> Vec<u64> {
        let (length, letters) = (stem.chars().count() as u32, words::letters(stem));
        let first = stem.chars().next().unwrap_or_default();
        let start = self.texts.partition_point(|text| !text.starts_with(first) && text < stem);
        let mut found = Vec::new();
        for (position, mark) in self.marks.iter().enumerate().skip(start) {
            let text = self.texts.get(position);
            if !text.starts_with(first) {
                break;
            }
            if mark.length.abs_diff(length) as usize <= most
                && words::may_be_slip(mark.letters, letters, most)
                && strsim::osa_distance(text, stem) <= most
            {
                found.push(mark.key);
            }
        }
        found
    }
}
