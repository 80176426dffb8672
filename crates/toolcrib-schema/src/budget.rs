//! Bound on the work of reading untrusted schemas.

/// Maximum number of schema nodes, fields and values that may still be read. All tools of one list share a budget, so
/// that many large schemas cost no more than one. When nothing is left, comparisons are reported as incomplete.
#[derive(Debug)]
pub struct WorkBudget(usize);

/// Number of keywords that cost as much of the budget as a node. Most schemas have fewer, which are free.
pub const KEYWORDS_PER_NODE: usize = 8;
/// Bytes of text that cost as much of the budget as a node.
pub(crate) const TEXT_BYTES_PER_NODE: usize = 16;

impl WorkBudget {
    /// Returns a budget of this many nodes.
    pub fn new(nodes: usize) -> WorkBudget {
        WorkBudget(nodes)
    }

    /// Spends `work` units and returns whether that many were left. After a failed attempt nothing is left.
    pub fn spend(&mut self, work: usize) -> bool {
        let remaining = self.0.checked_sub(work);
        self.0 = remaining.unwrap_or(0);
        remaining.is_some()
    }

    /// Spends the work of reading a text.
    pub(crate) fn spend_text(&mut self, text: &str) -> bool {
        self.spend(text.len() / TEXT_BYTES_PER_NODE)
    }

    /// Returns the length of the longest text that may still be read.
    pub(crate) fn remaining_text_bytes(&self) -> usize {
        self.0 * TEXT_BYTES_PER_NODE
    }

    /// Returns whether nothing is left. Work that cannot be charged beforehand is skipped then.
    pub fn is_exhausted(&self) -> bool {
        self.0 == 0
    }
}

impl Default for WorkBudget {
    // Thousands of ordinary schemas.
    fn default() -> WorkBudget {
        WorkBudget(500_000)
    }
}
