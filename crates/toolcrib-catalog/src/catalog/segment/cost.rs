//! Token counts of tools. Counts are stored with the manifest and carried over to the next one, so that each version of
//! a tool is counted once; neither startup nor discovery waits for the tokenizer.
//!
//! A stored count of 0 means "not counted": every rendered tool has at least one token. Counts belong to the rendered
//! form of `tools/list`, prefix included.

use toolcrib_core::manifest::PackedManifest;

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

    /// Returns the manifest with the counts of all tools, to be stored.
    pub fn with_token_counts(&self) -> PackedManifest {
        let counts = self.token_counts.get_or_init(|| self.count_tokens());
        let mut packed = PackedManifest::clone(&self.packed);
        for (tool, tokens) in packed.tools.iter_mut().zip(counts) {
            tool.tokens = *tokens;
        }
        packed
    }

    /// Copies the counts of unchanged tools to a newer manifest.
    /// A tool is unchanged if its fingerprint is. Counts that are not known here stay 0 and are made on demand.
    pub fn copy_token_counts(&self, newer: &mut PackedManifest) {
        let counts = self.token_counts.get();
        let token_count = |position: usize| match counts {
            Some(counts) => counts.get(position).copied().unwrap_or_default(),
            None => self.packed.tools[position].tokens,
        };
        for tool in &mut newer.tools {
            let position = self.packed.tools.binary_search_by(|old| old.name.cmp(&tool.name));
            if let Some(position) =
                position.ok().filter(|&position| self.packed.tools[position].fingerprint == tool.fingerprint)
            {
                tool.tokens = token_count(position);
            }
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
