//! The catalogue: immutable read model of all tools, a list of [`Segment`]s with one segment per source. It is replaced
//! as a whole and read without locks. Building it costs time in the number of sources, not of tools, because a segment
//! is built once per manifest and shared by all later catalogues.
//!
//! A source that is disabled, removed or without a manifest is not in the catalogue. Tools that are hidden, denied or
//! disabled are in it: [`View`] and [`ToolRef`] decide what a reader sees of them.
//!
//! There is no global map of names. A name finds its source by the prefix before `__`, and its entry by binary search:
//!
//! ```text
//! github__create_issue ─▶ prefixed_sources["github__"] ─▶ segment.entries["github__create_issue"]
//! url_fetch            ─▶ no prefix: the built-in sources, then the original names of all sources
//! ```
//!
//! Invariant: the same inventory, manifests and options give the same [`Catalog::hash`] and the same order of tools.

mod view;

mod essential;
mod find;
mod segment;
mod source_scope;
mod tool_ref;
mod view_caches;
mod view_key;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::search::embeddings::LazyModel;

pub(crate) use essential::Importance;
pub use segment::{CallSpec, Segment, SegmentEntry};
use source_scope::ScopeCaches;
pub use tool_ref::{ToolRef, ToolStatus};
use toolcrib_core::features::RecordedFeatures;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{SourceState, ToolState};
use toolcrib_core::policy::{DEFAULT_ESSENTIAL_PATTERNS, Rule, Rules, Verdict};
use toolcrib_core::source::{OnConflict, Source, SourceId};
use toolcrib_core::tool::SEPARATOR;
pub use view::View;
pub(crate) use view::VisibleSource;
use view_caches::ViewCaches;
use view_key::SourceDigests;
pub use view_key::ViewKey;

/// Immutable snapshot of all enabled sources and their tools.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Sequence number of the journal record that the catalogue was built from.
    /// The content may be the same at several versions; [`Catalog::hash`] tells whether the lists differ.
    pub version: u64,
    /// Sources whose tools have a prefix, sorted by `source__` so that lookups by prefix can use binary search.
    prefixed_sources: Vec<PositionedSource>,
    /// Built-in sources; their tools have no prefix and are sorted in among the others.
    builtin_sources: Vec<PositionedSource>,
    /// Globs on essential tools of any source, from the top-level configuration.
    essential_globs: Vec<String>,
    /// Patterns on names of essential tools, in lower case.
    essential_patterns: Vec<String>,
    /// Whether the configuration or any source defines essential tools.
    essential_configured: bool,
    /// `None` only for the default catalogue, which has no sources.
    hash: Option<Fingerprint>,
    /// Whether a rule of a source, or a default, denies or hides a tool.
    leaves_out_tools: bool,
    /// Shared with earlier catalogues of the same content.
    view_caches: Arc<ViewCaches>,
    /// Model for semantic search, if one is configured.
    search_model: Option<Arc<LazyModel>>,
}

/// One enabled source: its tools, its state and its options.
/// Shared between catalogues: a change of one source makes a new `CatalogSource` for that source alone.
#[derive(Debug)]
pub struct CatalogSource {
    pub segment: Arc<Segment>,
    pub state: Arc<SourceState>,
    pub options: SourceOptions,
    /// Prompts, resources and instructions of an MCP server. They are no part of the digests, which are about tools.
    pub features: Option<Arc<RecordedFeatures>>,
    /// Digest of everything that affects the tool lists of this source; part of [`Catalog::hash`].
    digest: Fingerprint,
    /// Digests of all its tools, for views that leave out none.
    full_digests: OnceLock<SourceDigests>,
    /// Visible tools and verdicts, by scope.
    scope_caches: ScopeCaches,
}

/// Options from a source's declaration that apply to its tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SourceOptions {
    /// Kind of the source as in the configuration: `mcp`, `openapi`, `builtin` or `workflow`.
    pub kind: String,
    pub builtin: bool,
    /// Policy of the declaration, restrictions by other files included.
    pub rules: Rules,
    /// Display name instead of the id.
    pub title: Option<String>,
    /// Labels that lists can be filtered by.
    pub tags: Vec<String>,
    /// Globs on essential tools of this source.
    pub essential: Vec<String>,
    /// Whether tools that have the name of a built-in tool stay in the catalogue (`on_conflict: keep`).
    pub keep_conflicts: bool,
    /// Default verdicts of built-in tools, by name; rules take precedence.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Names of built-in tools that appear in no list.
    pub internal: BTreeSet<String>,
    /// Whether the hints of the source about the risk of its tools are trusted.
    pub trust_hints: bool,
}

/// A source in its place in one catalogue. What depends on other sources belongs here and never into the segment, which
/// several catalogues share.
#[derive(Debug)]
struct PositionedSource {
    source: Arc<CatalogSource>,
    /// Sorted positions of the entries left out because a built-in tool has their name.
    shadowed: Vec<usize>,
    /// Position among all sources, built-in ones first.
    number: usize,
}

impl PositionedSource {
    /// Number of tools without shadowed ones.
    fn tool_count(&self) -> usize {
        self.source.segment.entries().len() - self.shadowed.len()
    }
}

impl SourceOptions {
    /// Takes the options from a declared source. Verdicts and internal tools of built-ins are added by the caller.
    pub fn from_source(source: &Source) -> SourceOptions {
        SourceOptions {
            kind: source.kind.name().to_owned(),
            builtin: source.kind.is_builtin(),
            rules: source.settings.tools.clone(),
            title: source.settings.title.clone(),
            tags: source.settings.tags.clone(),
            essential: source.settings.essential.clone(),
            keep_conflicts: source.settings.on_conflict() == OnConflict::Keep,
            trust_hints: source.settings.trust_hints(),
            ..SourceOptions::default()
        }
    }

    /// Returns the verdict for a tool. Rules match its original name as well as its name in the catalogue without
    /// prefix. A rule on either name applies, so that no unusual character in the original name evades it.
    pub fn verdict(&self, original: &str, shown: &str) -> Verdict {
        self.rules.verdict(&[original, shown], self.default_verdict(original))
    }

    /// Returns the verdict for a tool that is not in the catalogue any more. `prefix` is that of the source's names.
    pub fn unlisted_verdict(&self, original: &str, prefix: &str) -> Verdict {
        self.rules.unlisted_verdict(prefix, original, self.default_verdict(original))
    }

    /// Returns the rule that led to the verdict for a tool; `None` if it is the default.
    pub fn deciding_rule(&self, original: &str, shown: &str) -> Option<&Rule> {
        self.rules.deciding_rule(&[original, shown], self.default_verdict(original))
    }

    /// Whether any rule or default denies or hides a tool.
    pub fn leaves_out_tools(&self) -> bool {
        let rules = self.rules.lists().flatten().map(|rule| rule.verdict);
        rules.chain(self.verdicts.values().copied()).any(|verdict| verdict >= Verdict::Deny)
    }

    /// Formats the options that affect tool lists, as part of a digest.
    fn to_digest_text(&self) -> String {
        let mut text = String::new();
        // The number of the list is part of the text: the same rule has another effect in the source's own list
        // than in one of another file.
        for (index, list) in self.rules.lists().enumerate() {
            let list_prefix = if index == 0 { String::new() } else { format!("{index} ") };
            for rule in list {
                text.push_str(&format!("\0{list_prefix}{} {}", rule.glob, rule.verdict.as_str()));
            }
        }
        text.push_str(&format!("\0{:?}{}", self.tags, self.keep_conflicts));
        for glob in &self.essential {
            text.push_str(&format!("\0!{glob}"));
        }
        text
    }

    /// Returns the verdict for a tool that no rule matches.
    fn default_verdict(&self, original: &str) -> Verdict {
        self.verdicts.get(original).copied().unwrap_or_default()
    }
}

impl CatalogSource {
    /// Combines a segment with its source's state and options, and computes the digest.
    pub fn new(segment: Arc<Segment>, state: Arc<SourceState>, options: SourceOptions) -> CatalogSource {
        // A NUL byte separates the parts of the digest's input.
        let mut text = format!("{} {}", segment.source(), segment.packed().tools_fingerprint());
        for (name, _) in state.tools.iter().filter(|(_, tool)| tool.disabled) {
            text.push_str(&format!("\0-{name}"));
        }
        text.push_str(&options.to_digest_text());
        let digest = Fingerprint::digest(text);
        CatalogSource {
            digest,
            segment,
            state,
            options,
            features: None,
            full_digests: OnceLock::new(),
            scope_caches: ScopeCaches::default(),
        }
    }

    /// Adds the prompts, resources and instructions of the source.
    #[must_use]
    pub fn with_features(self, features: Option<Arc<RecordedFeatures>>) -> CatalogSource {
        CatalogSource { features, ..self }
    }

    /// Whether nothing that can be read from two sources differs. Lists of tools are compared by identity.
    pub fn has_same_content(&self, other: &CatalogSource) -> bool {
        let same_features = self.features.as_ref().map(Arc::as_ptr) == other.features.as_ref().map(Arc::as_ptr);
        let same_state = Arc::ptr_eq(&self.state, &other.state) || self.state == other.state;
        Arc::ptr_eq(&self.segment, &other.segment) && same_features && same_state && self.options == other.options
    }

    /// Returns the source with another description of itself.
    fn with_about(&self, about: String) -> CatalogSource {
        CatalogSource::new(Arc::new(self.segment.with_about(about)), self.state.clone(), self.options.clone())
    }

    /// Returns the inventory state of a tool by its original name.
    fn tool_state(&self, tool: &str) -> ToolState {
        self.state.tools.get(tool).copied().unwrap_or_default()
    }
}

impl Catalog {
    /// Builds a catalogue: sorts the sources and leaves out tools that have the name of a built-in tool.
    /// Costs a lookup per built-in tool and source, and no work per tool.
    pub fn build(version: u64, sources: Vec<Arc<CatalogSource>>) -> Catalog {
        let (builtin, mut prefixed): (Vec<_>, Vec<_>) = sources.into_iter().partition(|source| source.options.builtin);
        prefixed.sort_by(|a, b| a.segment.prefix().cmp(b.segment.prefix()));
        // Names of built-in tools are few. Looking each of them up in every source is cheaper than checking all tools.
        let reserved: BTreeSet<&str> =
            builtin.iter().flat_map(|source| source.segment.entries()).map(|entry| entry.name.as_str()).collect();
        let position = |(index, source): (usize, Arc<CatalogSource>)| {
            let mut shadowed = Vec::new();
            if !source.options.keep_conflicts {
                shadowed.extend(reserved.iter().filter_map(|name| source.segment.position_of_original(name)));
                shadowed.sort_unstable();
            }
            PositionedSource { source, shadowed, number: builtin.len() + index }
        };
        let prefixed: Vec<PositionedSource> = prefixed.into_iter().enumerate().map(position).collect();
        let builtin = builtin.iter().enumerate();
        let builtin: Vec<PositionedSource> = builtin
            .map(|(number, source)| PositionedSource { source: source.clone(), shadowed: Vec::new(), number })
            .collect();
        // The prefixed sources are sorted by now, so their order in `sources` does not affect the hash.
        let digests: String = builtin
            .iter()
            .chain(&prefixed)
            .map(|positioned| positioned.source.digest.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let essential_configured =
            builtin.iter().chain(&prefixed).any(|positioned| !positioned.source.options.essential.is_empty());
        let hash = Some(Fingerprint::digest(digests));
        let mut sources = builtin.iter().chain(&prefixed).map(|positioned| &positioned.source);
        let leaves_out_tools = sources.any(|source| source.options.leaves_out_tools());
        Catalog {
            version,
            prefixed_sources: prefixed,
            builtin_sources: builtin,
            essential_globs: Vec::new(),
            essential_patterns: DEFAULT_ESSENTIAL_PATTERNS.map(str::to_owned).to_vec(),
            essential_configured,
            hash,
            leaves_out_tools,
            view_caches: Arc::default(),
            search_model: None,
        }
    }

    /// Adds semantic search with a model, which the first search loads.
    pub fn with_search_model(self, model: Option<Arc<LazyModel>>) -> Catalog {
        Catalog { search_model: model, ..self }
    }

    /// Adds globs on essential tools of any source.
    pub fn with_essential(mut self, globs: Vec<String>) -> Catalog {
        if !globs.is_empty() {
            // Essential tools change what clients list, so the globs are part of the hash.
            self.hash = Some(Fingerprint::digest(format!("{} {globs:?}", self.hash())));
            self.essential_globs = globs;
            self.essential_configured = true;
        }
        self
    }

    /// Replaces the patterns on names of essential tools, which are [`DEFAULT_ESSENTIAL_PATTERNS`] otherwise.
    pub fn with_essential_patterns(mut self, patterns: &[String]) -> Catalog {
        if patterns != DEFAULT_ESSENTIAL_PATTERNS {
            self.hash = Some(Fingerprint::digest(format!("{} patterns {patterns:?}", self.hash())));
            let patterns = patterns.iter().filter(|pattern| !pattern.is_empty());
            self.essential_patterns = patterns.map(|pattern| pattern.to_ascii_lowercase()).collect();
        }
        self
    }

    /// Takes over the masks and search indexes of an earlier catalogue if both have the same sources and settings.
    #[must_use]
    pub fn sharing_views_of(self, previous: &Catalog) -> Catalog {
        let has_same_sources = self.sources().map(Arc::as_ptr).eq(previous.sources().map(Arc::as_ptr));
        let has_same_model =
            self.search_model.as_ref().map(Arc::as_ptr) == previous.search_model.as_ref().map(Arc::as_ptr);
        // The hash covers the essential tools.
        if !(has_same_sources && has_same_model && self.hash() == previous.hash()) {
            return self;
        }
        Catalog { view_caches: previous.view_caches.clone(), ..self }
    }

    /// Digest of the tool lists, including skipped tools. Independent of the version and of the order of
    /// `sources`, except among built-in ones.
    pub fn hash(&self) -> Fingerprint {
        self.hash.unwrap_or_else(|| Fingerprint::digest(""))
    }

    /// Iterates over all sources, built-in ones first.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<CatalogSource>> {
        self.positioned_sources().map(|positioned| &positioned.source)
    }

    /// Digest of the prompts, resources and instructions of all sources.
    pub fn features_hash(&self) -> Fingerprint {
        let mut text = String::new();
        for source in self.sources() {
            if let Some(features) = &source.features {
                let summary = &features.summary;
                text.push_str(&format!("{} {}\n", summary.source, summary.fingerprint));
            }
        }
        Fingerprint::digest(text)
    }

    /// Returns a source by id.
    pub fn source(&self, id: &SourceId) -> Option<&Arc<CatalogSource>> {
        self.find_source(id.as_str()).map(|positioned| &positioned.source)
    }

    /// Number of tools of a source in the catalogue, including hidden and disabled ones.
    /// Zero for an unknown source. Shadowed tools do not count.
    pub fn tool_count(&self, id: &SourceId) -> usize {
        self.find_source(id.as_str()).map_or(0, PositionedSource::tool_count)
    }

    /// Finds a source by id: binary search among the prefixed sources, then the few built-in ones.
    fn find_source(&self, id: &str) -> Option<&PositionedSource> {
        // Compared with the separator: `a1__` sorts before `a__`, although `a` sorts before `a1`.
        let prefix = || id.bytes().chain(SEPARATOR.bytes());
        let position = self
            .prefixed_sources
            .binary_search_by(|positioned| positioned.source.segment.prefix().bytes().cmp(prefix()));
        let prefixed = position.ok().and_then(|position| self.prefixed_sources.get(position));
        prefixed.or_else(|| {
            self.builtin_sources.iter().find(|positioned| positioned.source.segment.source().as_str() == id)
        })
    }

    /// All sources in catalogue order: built-in ones first.
    fn positioned_sources(&self) -> impl Iterator<Item = &PositionedSource> {
        self.builtin_sources.iter().chain(&self.prefixed_sources)
    }
}

#[cfg(test)]
mod tests;
