//! Token counts of tools. They are counted when a list is recorded, stored with the manifest and carried over to the next
//! one, so that each version of a tool is counted once. Lists of older versions and built-in tools, which are recorded at
//! a start, have no stored counts: the first reader that needs them counts. No start waits for the tokenizer.
//!
//! A stored count of 0 means "not counted": every rendered tool has at least one token. Counts belong to the rendered
//! form of `tools/list`, prefix included.

use toolcrib_core::manifest::{PackedManifest, PackedTool};

use super::{Segment, SegmentEntry};
use crate::View;
use crate::render;
use crate::token_count;

impl View {
    /// Tokens of all tools that agents see, each as MCP lists it.
    /// May load the tokenizer, see [`Segment::has_token_counts`].
    pub fn full_token_count(&self) -> usize {
        self.offered_tools().map(|tool| tool.catalog_source.segment.token_count(tool.entry) as usize).sum()
    }
}

impl Segment {
    /// Tokens of one tool. The first call counts all tools of the segment without a stored count.
    pub fn token_count(&self, entry: &SegmentEntry) -> u32 {
        let counts = self.token_counts.get_or_init(|| self.count_tokens());
        counts.get(entry.tool_index).copied().unwrap_or_default()
    }

    /// Whether all counts are known, so that [`Segment::token_count`] does not need the tokenizer.
    pub fn has_token_counts(&self) -> bool {
        self.token_counts.get().is_some() || self.packed.tools.iter().all(|tool| tool.tokens > 0)
    }

    /// Tokens of one tool as lists show them; `None` if they were not counted yet. Readers of lists count first, so that
    /// the same view has the same content in every process.
    pub fn listed_token_count(&self, entry: &SegmentEntry) -> Option<u32> {
        let stored = Some(self.packed_tool(entry).tokens).filter(|tokens| *tokens > 0);
        stored.or_else(|| self.token_counts.get()?.get(entry.tool_index).copied()).filter(|tokens| *tokens > 0)
    }

    /// Returns the manifest with the counts of all tools, and with the traits that older versions did not store.
    pub fn with_token_counts(&self) -> PackedManifest {
        let counts = self.token_counts.get_or_init(|| self.count_tokens());
        let mut packed = PackedManifest::clone(&self.packed);
        for entry in &self.entries {
            let tool = &mut packed.tools[entry.tool_index];
            tool.tokens = counts[entry.tool_index];
            tool.traits = self.traits(entry).clone();
        }
        packed.has_traits = true;
        packed
    }

    /// Whether the manifest has everything that this version stores. An older version recorded less.
    pub fn is_stored_completely(&self) -> bool {
        self.packed.has_traits && self.packed.tools.iter().all(|tool| tool.tokens > 0)
    }

    /// Copies the counts of unchanged tools to a newer manifest.
    /// A tool is unchanged if its text is: with another order of keys it may have another count. Counts that are not
    /// known here stay 0 and are made on demand.
    pub fn copy_token_counts(&self, newer: &mut PackedManifest) {
        let counts = self.token_counts.get();
        let token_count = |position: usize| match counts {
            Some(counts) => counts.get(position).copied().unwrap_or_default(),
            None => self.packed.tools[position].tokens,
        };
        let known = |tool: &PackedTool, newer: &PackedManifest| {
            let position = self.packed.tools.binary_search_by(|old| old.name.cmp(&tool.name)).ok()?;
            let is_unchanged = self.packed.tool_text(&self.packed.tools[position]) == newer.tool_text(tool);
            is_unchanged.then(|| token_count(position))
        };
        let counts: Vec<u32> = newer.tools.iter().map(|tool| known(tool, newer).unwrap_or_default()).collect();
        for (tool, count) in newer.tools.iter_mut().zip(counts) {
            tool.tokens = count;
        }
    }

    /// Counts the tools without a stored count, which is 0 then.
    fn count_tokens(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.packed.tools.iter().map(|tool| tool.tokens).collect();
        let mut text = String::new();
        for entry in self.entries.iter().filter(|entry| self.packed.tools[entry.tool_index].tokens == 0) {
            // A tool that cannot be parsed appears in no list and costs nothing.
            let Ok(tool) = self.tool(entry) else { continue };
            text.clear();
            render::mcp::push_tool(entry.name.as_str(), &tool, &mut text);
            counts[entry.tool_index] = u32::try_from(token_count::count(&text)).unwrap_or(u32::MAX);
        }
        counts
    }
}
