//! The read model: an immutable list of segments, one per source, replaced whole and read without a lock.
//! Building one costs by the number of sources, not of tools: a segment is built once per manifest and shared.

mod essential;
mod find;
mod segment;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::fingerprint::Fingerprint;
use crate::inventory::{SourceState, ToolState};
use crate::manifest::SetAsideTool;
use crate::policy::{Rules, Verdict};
use crate::search::SearchIndex;
use crate::source::{OnConflict, Source, SourceId};
use crate::tool::SEPARATOR;

pub use essential::Essentials;
pub use segment::{CallSpec, Segment, SegmentEntry};
pub use view::{Caller, ToolRef, ToolStatus, View};

#[derive(Debug, Default)]
pub struct Catalog {
    pub version: u64,
    /// Sources with a prefix, in the order of `source__`.
    prefixed_sources: Vec<PositionedSource>,
    /// Built-in sources, whose names stand among the others.
    builtin_sources: Vec<PositionedSource>,
    /// Globs on tools that every agent should know of, whatever their source.
    essential_globs: Vec<String>,
    /// Whether anything is called essential, here or by a source.
    essential_configured: bool,
    hash: Option<Fingerprint>,
    /// Made by the first search.
    search_index: OnceLock<SearchIndex>,
}

/// One enabled source's share of the catalogue.
#[derive(Debug)]
pub struct CatalogSource {
    pub segment: Arc<Segment>,
    pub state: Arc<SourceState>,
    pub options: SourceOptions,
    digest: Fingerprint,
}

/// What a source's declaration says about its tools, beyond what the source itself offers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SourceOptions {
    pub kind: String,
    pub builtin: bool,
    pub rules: Rules,
    pub title: Option<String>,
    pub tags: Vec<String>,
    /// Globs on tools that every agent should know of.
    pub essential: Vec<String>,
    pub keep_conflicts: bool,
    /// What built-in tools are unless a rule says otherwise.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Built-in tools that no list shows.
    pub internal: BTreeSet<String>,
}

/// A part in its catalogue: what depends on other parts is a mask here, never in the segment.
#[derive(Debug)]
struct PositionedSource {
    source: Arc<CatalogSource>,
    /// Entries left out because a built-in has their name, in order.
    masked: Vec<usize>,
}

impl SourceOptions {
    pub fn from_source(source: &Source) -> SourceOptions {
        SourceOptions {
            kind: source.kind.name().to_owned(),
            builtin: source.kind.is_builtin(),
            rules: source.settings.tools.clone(),
            title: source.settings.title.clone(),
            tags: source.settings.tags.clone(),
            essential: source.settings.essential.clone(),
            keep_conflicts: source.settings.on_conflict() == OnConflict::Keep,
            ..SourceOptions::default()
        }
    }

    /// A rule holds whether it names the tool as its source does or as agents see it, without the prefix.
    pub fn verdict(&self, original: &str, shown: &str) -> Verdict {
        let unruled = self.verdicts.get(original).copied().unwrap_or_default();
        self.rules.verdict(&[original, shown], unruled)
    }
}

impl CatalogSource {
    pub fn new(segment: Arc<Segment>, state: Arc<SourceState>, manner: SourceOptions) -> CatalogSource {
        let mut text = format!("{} {}", segment.source(), segment.fingerprint());
        for (name, _) in state.tools.iter().filter(|(_, tool)| tool.disabled) {
            text.push_str(&format!("\0-{name}"));
        }
        for (index, list) in manner.rules.lists().enumerate() {
            let place = if index == 0 { String::new() } else { format!("{index} ") };
            for rule in list {
                text.push_str(&format!("\0{place}{} {}", rule.glob, rule.verdict.as_str()));
            }
        }
        text.push_str(&format!("\0{:?}{}", manner.tags, manner.keep_conflicts));
        for glob in &manner.essential {
            text.push_str(&format!("\0!{glob}"));
        }
        CatalogSource { digest: Fingerprint::digest(text), segment, state, options: manner }
    }

    fn tool_state(&self, tool: &str) -> ToolState {
        self.state.tools.get(tool).copied().unwrap_or_default()
    }
}

impl Catalog {
    /// Puts the parts in order and masks what a built-in shadows.
    pub fn build(version: u64, parts: Vec<Arc<CatalogSource>>) -> Catalog {
        let (builtin, mut prefixed): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.options.builtin);
        prefixed.sort_by(|one, other| one.segment.prefix().cmp(other.segment.prefix()));
        let reserved: BTreeSet<&str> =
            builtin.iter().flat_map(|part| part.segment.entries()).map(|entry| entry.name.as_str()).collect();
        let place = |part: Arc<CatalogSource>| {
            let mut masked = Vec::new();
            if !part.options.keep_conflicts {
                masked.extend(reserved.iter().filter_map(|name| part.segment.position_of_original(name)));
                masked.sort_unstable();
            }
            PositionedSource { source: part, masked }
        };
        let prefixed: Vec<PositionedSource> = prefixed.into_iter().map(place).collect();
        let builtin: Vec<PositionedSource> =
            builtin.iter().map(|part| PositionedSource { source: part.clone(), masked: Vec::new() }).collect();
        let digests: String = builtin
            .iter()
            .chain(&prefixed)
            .map(|placed| placed.source.digest.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let essential_configured =
            builtin.iter().chain(&prefixed).any(|placed| !placed.source.options.essential.is_empty());
        let hash = Some(Fingerprint::digest(digests));
        Catalog {
            version,
            prefixed_sources: prefixed,
            builtin_sources: builtin,
            essential_globs: Vec::new(),
            essential_configured,
            hash,
            search_index: OnceLock::new(),
        }
    }

    /// The same, with globs on tools of any source that every agent should know of.
    pub fn with_essential(mut self, globs: Vec<String>) -> Catalog {
        if !globs.is_empty() {
            self.hash = Some(Fingerprint::digest(format!("{} {globs:?}", self.hash())));
            self.essential_globs = globs;
            self.essential_configured = true;
        }
        self
    }

    /// Changes when what lists show or set aside changes, and with nothing else.
    pub fn hash(&self) -> Fingerprint {
        self.hash.unwrap_or_else(|| Fingerprint::digest(""))
    }

    pub fn sources(&self) -> impl Iterator<Item = &Arc<CatalogSource>> {
        self.positioned_sources().map(|placed| &placed.source)
    }

    pub fn source(&self, id: &SourceId) -> Option<&Arc<CatalogSource>> {
        self.find_source(id.as_str()).map(|placed| &placed.source)
    }

    /// How many tools of a source are in the catalogue.
    pub fn tool_count(&self, id: &SourceId) -> usize {
        self.find_source(id.as_str()).map_or(0, |placed| placed.source.segment.entries().len() - placed.masked.len())
    }

    /// How many of them lists show: those that a rule hides are not among them.
    pub fn listed_count(&self, id: &SourceId) -> usize {
        let Some(placed) = self.find_source(id.as_str()) else { return 0 };
        let manner = &placed.source.options;
        // Most sources have no rules, and very many tools.
        match manner.rules.is_empty() && manner.verdicts.is_empty() && manner.internal.is_empty() {
            true => self.tool_count(id),
            false => placed.tools().filter(|tool| tool.verdict() != Verdict::Hide && !tool.is_internal()).count(),
        }
    }

    /// What a source offers and agents do not get, and why.
    pub fn excluded_tools(&self, id: &SourceId) -> Vec<SetAsideTool> {
        let Some(placed) = self.find_source(id.as_str()) else { return Vec::new() };
        let segment = &placed.source.segment;
        let shadowed =
            placed.masked.iter().filter_map(|&index| segment.entries().get(index)).map(|entry| SetAsideTool {
                name: segment.original_name(entry).to_owned(),
                reason: "a built-in tool has this name; `on_conflict: keep` on the source keeps both".into(),
            });
        let mut set_aside: Vec<SetAsideTool> = segment.excluded().iter().cloned().chain(shadowed).collect();
        set_aside.sort();
        set_aside
    }

    /// The words and names of all tools.
    pub(crate) fn search_index(&self) -> &SearchIndex {
        self.search_index.get_or_init(|| {
            SearchIndex::build(self.positioned_sources().map(|placed| (&placed.source, &placed.masked[..])))
        })
    }

    fn find_source(&self, id: &str) -> Option<&PositionedSource> {
        let prefix = || id.bytes().chain(SEPARATOR.bytes());
        let position =
            self.prefixed_sources.binary_search_by(|placed| placed.source.segment.prefix().bytes().cmp(prefix()));
        let prefixed = position.ok().and_then(|position| self.prefixed_sources.get(position));
        prefixed.or_else(|| self.builtin_sources.iter().find(|placed| placed.source.segment.source().as_str() == id))
    }

    fn positioned_sources(&self) -> impl Iterator<Item = &PositionedSource> {
        self.builtin_sources.iter().chain(&self.prefixed_sources)
    }
}

#[cfg(test)]
mod tests;
