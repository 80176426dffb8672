//! What tools cost an agent that is shown them all, in tokens. Counts are stored with a manifest and taken over by the
//! next one, so that each tool is counted once in its life; neither a start nor a discovery waits for the tokenizer.

use super::{Entry, Segment};
use crate::catalog::View;
use crate::manifest::Packed;
use crate::render;
use crate::tokens;

impl View {
    /// The tokens of everything an agent may be offered, each tool as MCP lists it.
    pub fn tokens_full(&self) -> usize {
        self.offered().map(|tool| tool.part.segment.tokens(tool.entry) as usize).sum()
    }
}

impl Segment {
    /// The tokens of one tool. Asking for the first counts those of the whole segment that are not stored.
    pub fn tokens(&self, entry: &Entry) -> u32 {
        let counts = self.counts.get_or_init(|| self.count());
        counts.get(entry.packed).copied().unwrap_or_default()
    }

    /// Whether asking for tokens costs time.
    pub fn is_counted(&self) -> bool {
        self.counts.get().is_some() || self.packed.tools.iter().all(|tool| tool.tokens > 0)
    }

    /// The manifest with the tokens of every tool, as it should be stored.
    pub fn counted(&self) -> Packed {
        let counts = self.counts.get_or_init(|| self.count());
        let mut packed = Packed::clone(&self.packed);
        for (tool, tokens) in packed.tools.iter_mut().zip(counts) {
            tool.tokens = *tokens;
        }
        packed
    }

    /// Gives a newer manifest the counts that hold for it too.
    pub fn hand_over_counts(&self, newer: &mut Packed) {
        let counts = self.counts.get();
        let known = |position: usize| match counts {
            Some(counts) => counts.get(position).copied().unwrap_or_default(),
            None => self.packed.tools[position].tokens,
        };
        for tool in &mut newer.tools {
            let position = self.packed.tools.binary_search_by(|known| known.name.cmp(&tool.name));
            if let Some(position) = position.ok().filter(|&at| self.packed.tools[at].fingerprint == tool.fingerprint) {
                tool.tokens = known(position);
            }
        }
    }

    fn count(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.packed.tools.iter().map(|tool| tool.tokens).collect();
        let mut text = String::new();
        for entry in self.entries.iter().filter(|entry| self.packed.tools[entry.packed].tokens == 0) {
            // A tool that cannot be read is not shown to anybody.
            let Ok(tool) = self.tool(entry) else { continue };
            text.clear();
            render::mcp::push(entry.name.as_str(), &tool, &mut text);
            counts[entry.packed] = u32::try_from(tokens::count(&text)).unwrap_or(u32::MAX);
        }
        counts
    }
}
