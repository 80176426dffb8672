//! Forward index: the terms of each tool, stored contiguously for all tools of a catalogue. Reranking reads the terms
//! of 150 tools from as many sources, and visiting each segment for that would be slow.
//!
//! Layout of `terms`: name of tool 0, text of tool 0, name of tool 1, … A tool's range ends where the next one begins,
//! hence the extra entry in `tools`.

use super::postings::ToolCard;
use super::tokenize;

/// Term numbers of all tools. Term numbers are those of the [`SearchIndex`](super::SearchIndex).
#[derive(Debug)]
pub(super) struct ForwardIndex {
    terms: Vec<u32>,
    /// By tool number, with one extra entry that marks the end.
    tools: Vec<ToolText>,
}

/// Position of a tool's terms: first the distinct terms of its name, then its text.
#[derive(Debug, Default, Clone, Copy)]
struct ToolText {
    name_start: u32,
    sequence_start: u32,
    /// Sum of the rarities of the name's terms.
    name_rarity: f32,
    /// Hash of the normalised name without source prefix.
    name_key: u64,
}

impl Default for ForwardIndex {
    fn default() -> ForwardIndex {
        ForwardIndex { terms: Vec::new(), tools: vec![ToolText::default()] }
    }
}

impl ForwardIndex {
    /// Appends tools of the next segment. `numbers` maps the segment's terms to term numbers; `rarities` is indexed by
    /// term number.
    pub(super) fn add_tools<'a>(
        &mut self,
        cards: impl Iterator<Item = &'a ToolCard>,
        numbers: &[u32],
        rarities: &[f32],
    ) {
        let number = |term: &u32| numbers[*term as usize];
        for ToolCard { name_terms, sequence, normalized_name, .. } in cards {
            if let Some(text) = self.tools.last_mut() {
                text.sequence_start += name_terms.len() as u32;
                text.name_rarity = name_terms.iter().map(|term| rarities[number(term) as usize]).sum();
                text.name_key = tokenize::hash_key(normalized_name);
            }
            self.terms.extend(name_terms.iter().chain(sequence).map(number));
            // The entry of the next tool, filled in by the next iteration.
            let end = self.terms.len() as u32;
            self.tools.push(ToolText { name_start: end, sequence_start: end, ..ToolText::default() });
        }
    }

    /// Distinct terms of a tool's name.
    pub(super) fn name_terms(&self, tool: u32) -> &[u32] {
        let text = self.tool_text(tool);
        self.terms.get(text.name_start as usize..text.sequence_start as usize).unwrap_or_default()
    }

    /// Terms of name and description in text order, without stop words.
    pub(super) fn sequence(&self, tool: u32) -> &[u32] {
        let range = self.tool_text(tool).sequence_start as usize..self.tool_text(tool + 1).name_start as usize;
        self.terms.get(range).unwrap_or_default()
    }

    /// Sum of the rarities of the terms in a tool's name.
    pub(super) fn name_rarity(&self, tool: u32) -> f32 {
        self.tool_text(tool).name_rarity
    }

    /// Hash of the normalised name without source prefix; equal for tools of the same name.
    pub(super) fn name_key(&self, tool: u32) -> u64 {
        self.tool_text(tool).name_key
    }

    fn tool_text(&self, tool: u32) -> ToolText {
        self.tools.get(tool as usize).copied().unwrap_or_default()
    }
}
