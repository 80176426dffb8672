//! What tools cost an agent that is shown them all, in tokens. Counts are stored with a manifest and taken over by the
//! next one, so that each tool is counted once in its life; neither a start nor a discovery waits for the tokenizer.

use super::{Segment, SegmentEntry};
use crate::catalog::View;
use crate::manifest::PackedManifest;
use crate::render;
use crate::tokens;

impl View {
    /// The tokens of everything an agent may be offered, each tool as MCP lists it.
    pub fn full_token_count(&self) -> usize {
        self.offered_tools().map(|tool| tool.catalog_source.segment.token_count(tool.entry) as usize).sum()
    }
}

impl Segment {
    /// The tokens of one tool. Asking for the first counts those of the whole segment that are not stored.
    pub fn token_count(&self, entry: &SegmentEntry) -> u32 {
        let counts = self.token_counts.get_or_init(|| self.count_tokens());
        counts.get(entry.tool_index).copied().unwrap_or_default()
    }

    /// Whether asking for tokens costs time.
    pub fn has_token_counts(&self) -> bool {
        self.token_counts.get().is_some() || self.packed.tools.iter().all(|tool| tool.tokens > 0)
    }

    /// The manifest with the tokens of every tool, as it should be stored.
    pub fn with_token_counts(&self) -> PackedManifest {
        let counts = self.token_counts.get_or_init(|| self.count_tokens());
        let mut packed = PackedManifest::clone(&self.packed);
        for (tool, tokens) in packed.tools.iter_mut().zip(counts) {
            tool.tokens = *tokens;
        }
        packed
    }

    /// Gives a newer manifest the counts that hold for it too.
    pub fn copy_token_counts(&self, newer: &mut PackedManifest) {
        let counts = self.token_counts.get();
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

    fn count_tokens(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.packed.tools.iter().map(|tool| tool.tokens).collect();
        let mut text = String::new();
        for entry in self.entries.iter().filter(|entry| self.packed.tools[entry.tool_index].tokens == 0) {
            // A tool that cannot be read is not shown to anybody.
            let Ok(tool) = self.tool(entry) else { continue };
            text.clear();
            render::mcp::push_tool(entry.name.as_str(), &tool, &mut text);
            counts[entry.tool_index] = u32::try_from(tokens::count(&text)).unwrap_or(u32::MAX);
        }
        counts
    }
}
