//! The text for a system prompt: which sources there are, some of their tools, and how to find the others. It keeps
//! within its budget of tokens whatever the catalogue; names are all it takes from sources, and names are made legal.

mod layout;
mod selection;

use std::num::NonZeroUsize;

use serde::Serialize;

use crate::catalog::View;
use crate::error::{Code, Error, Result};
use crate::tokens;

/// The most tokens that a summary may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryBudget(NonZeroUsize);

impl SummaryBudget {
    pub const DEFAULT_TOKENS: usize = 500;

    pub fn from_tokens(tokens: usize) -> Result<SummaryBudget> {
        let none = || Error::new(Code::BadRequest, "a budget is at least 1 token");
        NonZeroUsize::new(tokens).map(SummaryBudget).ok_or_else(none)
    }

    pub fn tokens(self) -> usize {
        self.0.get()
    }
}

impl Default for SummaryBudget {
    fn default() -> SummaryBudget {
        SummaryBudget(NonZeroUsize::MIN.saturating_add(SummaryBudget::DEFAULT_TOKENS - 1))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub text: String,
    pub tokens: usize,
    /// What all tools would be with their schemas.
    pub tokens_full: usize,
    /// How many tools there are.
    pub tools: usize,
}

impl View {
    /// The text alone, without counting what it saves.
    pub fn summary_text(&self, budget: SummaryBudget) -> String {
        layout::render_text(&selection::select_sources(self), budget.tokens())
    }

    /// The same catalogue and budget give the same text.
    pub fn summary(&self, budget: SummaryBudget) -> Summary {
        let sources = selection::select_sources(self);
        let text = layout::render_text(&sources, budget.tokens());
        let tools = sources.iter().map(|source| source.tool_count).sum();
        Summary { tokens: tokens::count(&text), text, tokens_full: self.full_token_count(), tools }
    }
}

#[cfg(test)]
mod tests;
