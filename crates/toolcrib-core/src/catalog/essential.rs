//! Which tools every agent should know of: those that the configuration names or, where it names none, those that most
//! people would.

use super::{Catalog, CatalogSource, ToolRef, View};
use crate::policy::{Verdict, glob_matches};

/// Names that hold one of these are essential where nothing is configured.
const DEFAULT_ESSENTIAL_WORDS: [&str; 7] = ["search", "github", "slack", "confluence", "jira", "calendar", "email"];

/// The essential tools of one catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Essentials<'a> {
    catalog: &'a Catalog,
}

impl Catalog {
    pub fn essentials(&self) -> Essentials<'_> {
        Essentials { catalog: self }
    }
}

impl View {
    /// The tools that the configuration calls essential, in name order; none where it says nothing. One that is denied
    /// is of no use to anybody.
    pub fn configured_essentials(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let essentials = self.catalog.essentials();
        self.offered_tools().filter(move |tool| essentials.is_configured(tool) && tool.verdict() != Verdict::Deny)
    }
}

impl Essentials<'_> {
    /// By the configuration or, where there is none, by the usual words.
    pub fn contains(&self, tool: &ToolRef<'_>) -> bool {
        match self.catalog.essential_configured {
            true => self.is_configured(tool),
            false => has_essential_word(tool.name().as_str()),
        }
    }

    /// A glob holds whether it means the name agents see, the same without its prefix, or the source's own.
    pub fn is_configured(&self, tool: &ToolRef<'_>) -> bool {
        if !self.catalog.essential_configured {
            return false;
        }
        let CatalogSource { segment, options: manner, .. } = tool.catalog_source;
        let name = tool.name().as_str();
        let names = [name, name.strip_prefix(segment.prefix()).unwrap_or(name), tool.original_name()];
        let mut globs = self.catalog.essential_globs.iter().chain(&manner.essential);
        globs.any(|glob| names.iter().any(|name| glob_matches(glob, name)))
    }
}

fn has_essential_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    DEFAULT_ESSENTIAL_WORDS.iter().any(|word| name.contains(word))
}
