//! Summary of the catalogue for a system prompt: the sources, some of their tools, and how to find the others. It stays
//! within a token budget for any catalogue. Only names are taken from sources, and these are sanitised, so the text
//! cannot carry instructions from a source.
//!
//! ```text
//! You can use 26 tools from 2 sources. Their schemas are not loaded; use these three tools:
//! …
//! Essential tools, by source:
//! github: create_issue, search_code
//! Other tools, by source:
//! github: get_me, list_commits (+20 more)
//! time: convert_time, get_current_time
//! ```
//!
//! `selection` chooses sources and names, `layout` fits them into the budget.

mod layout;
mod selection;

use std::num::NonZeroUsize;

use serde::Serialize;
use toolcrib_core::error::{Code, Error, Result};

use crate::View;
use crate::token_count;
use selection::SummarySource;

/// Maximum number of tokens of a summary; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryBudget(NonZeroUsize);

impl SummaryBudget {
    /// Budget when the caller sets none. Every conversation costs these tokens, so they are far fewer than those of the
    /// schemas that the summary replaces.
    pub const DEFAULT_TOKENS: usize = 500;

    /// Creates a budget; `BAD_REQUEST` for 0.
    pub fn from_tokens(tokens: usize) -> Result<SummaryBudget> {
        let none = || Error::new(Code::BadRequest, "the budget must be at least 1 token");
        NonZeroUsize::new(tokens).map(SummaryBudget).ok_or_else(none)
    }

    /// The budget in tokens.
    pub fn tokens(self) -> usize {
        self.0.get()
    }
}

impl Default for SummaryBudget {
    fn default() -> SummaryBudget {
        SummaryBudget(NonZeroUsize::MIN.saturating_add(SummaryBudget::DEFAULT_TOKENS - 1))
    }
}

/// A summary with its size. Serialised as JSON by the command line and the REST API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub text: String,
    pub tokens: usize,
    /// Tokens of all tools with their schemas, for comparison.
    pub tokens_full: usize,
    /// Number of tools that agents see.
    pub tools: usize,
}

impl View {
    /// Returns only the text, without counting the tokens of all tools.
    pub fn summary_text(&self, budget: SummaryBudget) -> String {
        layout::render_text(&self.summary_sources(budget), budget.tokens())
    }

    /// Renders the summary. Deterministic: the same catalogue and budget give the same text.
    pub fn summary(&self, budget: SummaryBudget) -> Summary {
        let sources = self.summary_sources(budget);
        let text = layout::render_text(&sources, budget.tokens());
        let tools = sources.iter().map(|source| source.tool_count).sum();
        Summary { tokens: token_count::count(&text), text, tokens_full: self.full_token_count(), tools }
    }

    /// Sources with as many names as the budget can hold.
    fn summary_sources(&self, budget: SummaryBudget) -> Vec<SummarySource<'_>> {
        selection::select_sources(self, budget.tokens() / layout::MIN_NAME_TOKENS)
    }
}

#[cfg(test)]
mod tests;
