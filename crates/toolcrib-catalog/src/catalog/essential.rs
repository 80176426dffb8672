//! Essential tools: those that every agent should know of. The configuration selects them with globs; without any, a
//! list of common words in tool names does.
//!
//! Two questions are kept apart: [`View::configured_essentials`] are the tools that MCP clients see beside the meta
//! tools, and only a configuration adds to them; [`View::is_essential`] also applies the default words,
//! for summaries and text lists.

use toolcrib_core::policy::glob_matches;

use super::{ToolRef, View};

/// Tools with one of these words in their name are essential when nothing is configured. The words are services and
/// activities that many agents need; a source with other names can configure its own globs.
const DEFAULT_ESSENTIAL_WORDS: [&str; 7] = ["search", "github", "slack", "confluence", "jira", "calendar", "email"];

impl View {
    /// Iterates over the tools that the configuration calls essential, in name order; empty without configuration.
    pub fn configured_essentials(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.offered_tools().filter(|tool| self.is_configured_essential(tool))
    }

    /// Whether a tool is essential, by configuration or, without any, by the default words.
    pub fn is_essential(&self, tool: &ToolRef<'_>) -> bool {
        if self.catalog().essential_configured {
            self.is_configured_essential(tool)
        } else {
            has_essential_word(tool.name().as_str())
        }
    }

    /// Whether a configured glob matches the tool: by its full name, its name without prefix or its original name.
    /// Global globs and those of the source apply together.
    fn is_configured_essential(&self, tool: &ToolRef<'_>) -> bool {
        // Saves the name matching for every tool in the usual case of no configuration.
        if !self.catalog().essential_configured {
            return false;
        }
        let names = [tool.name().as_str(), tool.unprefixed_name(), tool.original_name()];
        let mut globs = self.catalog().essential_globs.iter().chain(&tool.catalog_source.options.essential);
        globs.any(|glob| names.iter().any(|name| glob_matches(glob, name)))
    }
}

/// Ignores ASCII case; a word may be anywhere in the name, prefix of the source included.
fn has_essential_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    DEFAULT_ESSENTIAL_WORDS.iter().any(|word| name.contains(word))
}
