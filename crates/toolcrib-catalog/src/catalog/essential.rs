//! Essential tools: those that every agent should know of. The configuration selects them with globs (`essential`); a
//! list of patterns on tool names (`essential_patterns`) selects further ones.
//!
//! Two questions are kept apart: [`View::configured_essentials`] are the tools that MCP clients see beside the meta
//! tools, and only globs add to them; [`View::importance`] and [`View::is_essential`] also apply the patterns, for
//! summaries and text lists.

use toolcrib_core::policy::glob_matches;

use super::{ToolRef, View};

/// How much a tool matters to every agent. Ordered: more important tools come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Importance {
    /// A configured glob matches it.
    Configured,
    /// A pattern matches its name.
    Pattern,
    Other,
}

impl View {
    /// Iterates over the tools that the configuration calls essential, in name order; empty without configuration.
    pub fn configured_essentials(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.offered_tools().filter(|tool| self.is_configured_essential(tool))
    }

    /// Whether a tool is essential, by configuration or, without any, by the patterns.
    pub fn is_essential(&self, tool: &ToolRef<'_>) -> bool {
        match self.importance(tool) {
            Importance::Configured => true,
            Importance::Pattern => !self.catalog().essential_configured && self.essential_override().is_none(),
            Importance::Other => false,
        }
    }

    /// How a tool came to be essential, if it is.
    pub(crate) fn importance(&self, tool: &ToolRef<'_>) -> Importance {
        if self.is_configured_essential(tool) {
            Importance::Configured
        } else if matches_any(&self.catalog().essential_patterns, tool.name().as_str()) {
            Importance::Pattern
        } else {
            Importance::Other
        }
    }

    /// Whether a configured glob matches the tool: by its full name, its name without prefix or its original name.
    /// Global globs and those of the source apply together; those of a group's endpoint replace them.
    fn is_configured_essential(&self, tool: &ToolRef<'_>) -> bool {
        let names = [tool.name().as_str(), tool.unprefixed_name(), tool.original_name()];
        let matches = |glob: &String| names.iter().any(|name| glob_matches(glob, name));
        if let Some(globs) = self.essential_override() {
            return globs.iter().any(matches);
        }
        // Saves the name matching for every tool in the usual case of no configuration.
        if !self.catalog().essential_configured {
            return false;
        }
        self.catalog().essential_globs.iter().chain(&tool.catalog_source.options.essential).any(matches)
    }
}

/// Whether a pattern, in lower case, matches a name: a glob as a whole, a word anywhere in it, prefix of the source
/// included. Ignores ASCII case.
fn matches_any(patterns: &[String], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    patterns.iter().any(|pattern| {
        if pattern.contains(['*', '?']) { glob_matches(pattern, &name) } else { name.contains(pattern.as_str()) }
    })
}
