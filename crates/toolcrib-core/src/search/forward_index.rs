//! The words of every tool of a catalogue, one tool after the other, by the numbers of their terms: a closer look goes
//! through a hundred and fifty tools of as many sources, and must not go to each of those.

use super::postings::{Postings, ToolCard};
use super::tokenize;

#[derive(Debug)]
pub(super) struct ForwardIndex {
    terms: Vec<u32>,
    /// By tool, and one more that marks the end.
    tools: Vec<ToolText>,
}

/// Where the words of a tool begin: those of its name, each once, then its text.
#[derive(Debug, Default, Clone, Copy)]
struct ToolText {
    name_start: u32,
    sequence_start: u32,
    /// How rare the words of its name are, together.
    name_rarity: f32,
    /// Names its own name, letters and digits alone.
    name_key: u64,
}

impl Default for ForwardIndex {
    fn default() -> ForwardIndex {
        ForwardIndex { terms: Vec::new(), tools: vec![ToolText::default()] }
    }
}

impl ForwardIndex {
    /// Takes in the tools of the next segment; `numbers` and `rarities` are those of its terms in the catalogue.
    pub(super) fn add_segment(&mut self, postings: &Postings, numbers: &[u32], rarities: &[f32]) {
        let number = |term: &u32| numbers[*term as usize];
        for ToolCard { name_terms: name, sequence, normalized_name: own, .. } in &postings.cards {
            if let Some(text) = self.tools.last_mut() {
                text.sequence_start += name.len() as u32;
                text.name_rarity = name.iter().map(|term| rarities[number(term) as usize]).sum();
                text.name_key = tokenize::hash_key(own);
            }
            self.terms.extend(name.iter().chain(sequence).map(number));
            let end = self.terms.len() as u32;
            self.tools.push(ToolText { name_start: end, sequence_start: end, ..ToolText::default() });
        }
    }

    /// The terms of a tool's name, each once.
    pub(super) fn name_terms(&self, tool: u32) -> &[u32] {
        let text = self.tool_text(tool);
        self.terms.get(text.name_start as usize..text.sequence_start as usize).unwrap_or_default()
    }

    /// Name and description in their order, without words that say nothing.
    pub(super) fn sequence(&self, tool: u32) -> &[u32] {
        let range = self.tool_text(tool).sequence_start as usize..self.tool_text(tool + 1).name_start as usize;
        self.terms.get(range).unwrap_or_default()
    }

    /// How rare the words of a tool's name are, together.
    pub(super) fn name_rarity(&self, tool: u32) -> f32 {
        self.tool_text(tool).name_rarity
    }

    /// The same number for the same name, letters and digits alone.
    pub(super) fn name_key(&self, tool: u32) -> u64 {
        self.tool_text(tool).name_key
    }

    fn tool_text(&self, tool: u32) -> ToolText {
        self.tools.get(tool as usize).copied().unwrap_or_default()
    }
}
