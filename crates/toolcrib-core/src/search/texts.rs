//! The words of every tool of a catalogue, one tool after the other, by the numbers of their terms: a closer look goes
//! through a hundred and fifty tools of as many sources, and must not go to each of those.

use super::postings::{Card, Postings};
use super::words;

#[derive(Debug)]
pub(super) struct Texts {
    words: Vec<u32>,
    /// By tool, and one more that marks the end.
    tools: Vec<Text>,
}

/// Where the words of a tool begin: those of its name, each once, then its text.
#[derive(Debug, Default, Clone, Copy)]
struct Text {
    name: u32,
    sequence: u32,
    /// How rare the words of its name are, together.
    rarity: f32,
    /// Names its own name, letters and digits alone.
    own: u64,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts { words: Vec::new(), tools: vec![Text::default()] }
    }
}

impl Texts {
    /// Takes in the tools of the next segment; `numbers` and `rarities` are those of its terms in the catalogue.
    pub(super) fn add(&mut self, postings: &Postings, numbers: &[u32], rarities: &[f32]) {
        let number = |term: &u32| numbers[*term as usize];
        for Card { name, sequence, own, .. } in &postings.cards {
            if let Some(text) = self.tools.last_mut() {
                text.sequence += name.len() as u32;
                text.rarity = name.iter().map(|term| rarities[number(term) as usize]).sum();
                text.own = words::key(own);
            }
            self.words.extend(name.iter().chain(sequence).map(number));
            let end = self.words.len() as u32;
            self.tools.push(Text { name: end, sequence: end, ..Text::default() });
        }
    }

    /// The terms of a tool's name, each once.
    pub(super) fn name(&self, tool: u32) -> &[u32] {
        let text = self.text(tool);
        self.words.get(text.name as usize..text.sequence as usize).unwrap_or_default()
    }

    /// Name and description in their order, without words that say nothing.
    pub(super) fn sequence(&self, tool: u32) -> &[u32] {
        let range = self.text(tool).sequence as usize..self.text(tool + 1).name as usize;
        self.words.get(range).unwrap_or_default()
    }

    /// How rare the words of a tool's name are, together.
    pub(super) fn rarity_of_name(&self, tool: u32) -> f32 {
        self.text(tool).rarity
    }

    /// The same number for the same name, letters and digits alone.
    pub(super) fn own(&self, tool: u32) -> u64 {
        self.text(tool).own
    }

    fn text(&self, tool: u32) -> Text {
        self.tools.get(tool as usize).copied().unwrap_or_default()
    }
}
