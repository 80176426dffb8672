//! Essential tools: those that every agent should know of. The configuration selects them with globs; without any, a
//! list of common words in tool names does.
//!
//! Two questions are kept apart: [`View::configured_essentials`] are the tools that MCP clients see beside the meta
//! tools, and only a configuration adds to them; [`Essentials::contains`] also applies the default words,
//! for summaries and text lists.

use toolcrib_core::policy::{Verdict, glob_matches};

use super::{Catalog, ToolRef, View};

/// Tools with one of these words in their name are essential when nothing is configured. The words are services and
/// activities that many agents need; a source with other names can configure its own globs.
const DEFAULT_ESSENTIAL_WORDS: [&str; 7] = ["search", "github", "slack", "confluence", "jira", "calendar", "email"];

/// Selects the essential tools of one catalogue.
/// A view on the catalogue: nothing is computed before a tool is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Essentials<'a> {
    catalog: &'a Catalog,
}

impl View {
    /// Returns the selector of essential tools.
    pub fn essentials(&self) -> Essentials<'_> {
        Essentials { catalog: self.catalog() }
    }

    /// Iterates over the tools that the configuration calls essential, in name order; empty without configuration.
    /// Denied tools are left out, as every call to them fails.
    pub fn configured_essentials(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let essentials = self.essentials();
        self.offered_tools().filter(move |tool| essentials.is_configured(tool) && tool.verdict() != Verdict::Deny)
    }
}

impl Essentials<'_> {
    /// Whether a tool is essential, by configuration or, without any, by the default words.
    pub fn contains(&self, tool: &ToolRef<'_>) -> bool {
        if self.catalog.essential_configured {
            self.is_configured(tool)
        } else {
            has_essential_word(tool.name().as_str())
        }
    }

    /// Whether a configured glob matches the tool: by its full name, its name without prefix or its original name.
    /// Global globs and those of the source apply together.
    pub fn is_configured(&self, tool: &ToolRef<'_>) -> bool {
        // Saves the name matching for every tool in the usual case of no configuration.
        if !self.catalog.essential_configured {
            return false;
        }
        let names = [tool.name().as_str(), tool.unprefixed_name(), tool.original_name()];
        let mut globs = self.catalog.essential_globs.iter().chain(&tool.catalog_source.options.essential);
        globs.any(|glob| names.iter().any(|name| glob_matches(glob, name)))
    }
}

/// Ignores ASCII case; a word may be anywhere in the name, prefix of the source included.
fn has_essential_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    DEFAULT_ESSENTIAL_WORDS.iter().any(|word| name.contains(word))
}
