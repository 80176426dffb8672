//! [`View`]: a catalogue as a principal may see it. Everything that is shown to a client is read through one.
//!
//! Six sets of tools, each contained in the one before:
//!
//! ```text
//! catalogue    every tool that is not shadowed by a built-in one
//! included     those of the groups that the principal may see; all of them without access rules
//! view         of these, for agents without denied and hidden ones; all of them in a full view
//! listed       without internal ones: for users who manage tools
//! offered      without hidden, denied and disabled ones: for agents
//! for models   without those for MCP Apps alone: for search, summaries and provider formats
//! ```
//!
//! A tool outside the view does not affect anything that is read through it: neither lists, counts and search scores
//! nor suggestions for misspelt names. So two views with the same tools are the same, whatever they leave out. The one
//! exception are names, which must mean the same tool for every principal: see [`View::catalog_names`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use toolcrib_core::access_rules::{AccessScope, Audience, Defined, Group};
use toolcrib_core::error::{Error, Result};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::policy::{Verdict, glob_matches};
use toolcrib_core::source::SourceId;
use toolcrib_core::text::WithheldNames;
use toolcrib_core::tool::ToolName;

use super::source_scope::SourceScope;
use super::view_key::{self, ViewKey};
use super::{Catalog, CatalogSource, PositionedSource, ToolRef, ToolStatus};
use crate::search::SearchIndex;
use crate::search::embeddings::LazyModel;

/// A catalogue as a principal may see it. Holds its own reference to the catalogue, so that a reader sees one state
/// however long it takes. Cheap to clone.
///
/// More than twenty methods, because every list, search and summary is read through a view: nothing may be read past it.
#[derive(Debug, Clone)]
pub struct View {
    catalog: Arc<Catalog>,
    /// `None` for a full view, the usual case, which costs nothing.
    mask: Option<Arc<ViewMask>>,
}

/// Visible tools of a restricted view.
#[derive(Debug)]
pub(super) struct ViewMask {
    /// By [`PositionedSource::number`].
    sources: Vec<Arc<SourceScope>>,
    key: ViewKey,
    hash: Fingerprint,
    /// Globs on essential tools of the endpoint of a group, instead of those of the configuration.
    essential: Option<Vec<String>>,
    /// Whether clients have chosen globs on names that the mask follows from.
    is_narrowed: bool,
}

/// A catalogue together with the mask of a view; what [`View`] and the catalogue's own lookups share.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisibleTools<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) mask: Option<&'a [Arc<SourceScope>]>,
    pub(super) extent: Extent,
}

/// Which tools of a mask are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Those of the view.
    Visible,
    /// Also denied and hidden ones, as far as the principal's groups have them.
    Included,
}

/// A source with at least one visible tool, or any source in a full view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleSource<'a> {
    pub(crate) source: &'a Arc<CatalogSource>,
    /// Sorted positions of the entries that built-in tools shadow.
    pub(super) shadowed: &'a [usize],
    /// Sorted positions of the visible entries, without shadowed ones; `None` if all but those are visible.
    pub(crate) visible: Option<&'a [u32]>,
    /// Has the verdicts of policies; `None` in a full view.
    pub(super) scope: Option<&'a SourceScope>,
}

impl View {
    /// Creates the view that shows every tool.
    pub fn full(catalog: Arc<Catalog>) -> View {
        View { catalog, mask: None }
    }

    /// Creates the view of agents without access rules: without denied and hidden tools.
    pub fn for_agents(catalog: Arc<Catalog>) -> View {
        View::for_scope(catalog, &AccessScope::unrestricted(Audience::Agents))
    }

    /// Creates the view of a scope. Computed once per catalogue and scope, and of a new catalogue only for the sources
    /// that changed. A scope that leaves out nothing has the full view.
    pub fn for_scope(catalog: Arc<Catalog>, scope: &AccessScope) -> View {
        let leaves_out_tools = catalog.leaves_out_tools && scope.audience() == Audience::Agents;
        if !scope.has_rules() && !leaves_out_tools {
            return View::full(catalog);
        }
        let mask = catalog.view_caches.mask(scope, || {
            let sources = catalog.positioned_sources();
            let sources = sources.map(|positioned| positioned.source.scope(scope, &positioned.shadowed)).collect();
            let essential = scope.endpoint_group().map(|group| group.definition.essential.clone());
            let mask = ViewMask::new(&catalog, sources, essential.filter(|globs| !globs.is_empty()));
            mask.map(|mask| Arc::new(ViewMask { is_narrowed: !scope.only_globs().is_empty(), ..mask }))
        });
        View { mask, catalog }
    }

    /// Returns the view that shows those tools of this one whose name, or own name at the source, matches a glob.
    #[must_use]
    pub fn only(&self, globs: &[String]) -> View {
        self.restrict(|tool| {
            let names = [tool.name().as_str(), tool.original_name()];
            globs.iter().any(|glob| names.iter().any(|name| glob_matches(glob, name)))
        })
    }

    /// Returns the view that shows those tools of this one for which `is_visible` is true. Looks at every tool once; a
    /// view is made for many requests.
    #[must_use]
    pub fn restrict(&self, is_visible: impl Fn(&ToolRef<'_>) -> bool) -> View {
        let restrict_source = |positioned: &PositionedSource| {
            let source = self.visible_tools().source(positioned);
            let visible = source.positions().filter(|position| is_visible(&source.tool(*position)));
            let visible: Arc<[u32]> = visible.map(|position| position as u32).collect();
            let visible = (visible.len() < positioned.source.segment.entries().len()).then_some(visible);
            let policy_verdicts = source.scope.and_then(|scope| scope.policy_verdicts.clone());
            Arc::new(SourceScope { included: visible.clone(), visible, policy_verdicts, digests: OnceLock::new() })
        };
        let sources: Vec<Arc<SourceScope>> = self.catalog.positioned_sources().map(restrict_source).collect();
        let essential = self.mask.as_ref().and_then(|mask| mask.essential.clone());
        let mask = ViewMask::new(&self.catalog, sources, essential);
        View { catalog: self.catalog.clone(), mask: mask.map(Arc::new) }
    }

    /// Digest of everything that can be read through the view. Views with equal keys have equal responses, whichever
    /// principals and catalogues they belong to; it is part of the key of every cache of rendered content.
    pub fn key(&self) -> ViewKey {
        self.mask.as_ref().map_or_else(|| self.catalog.full_digests().0, |mask| mask.key)
    }

    /// Digest of the tool lists, `inventory_hash` in responses: unlike the key it covers neither dates nor titles of
    /// sources.
    pub fn hash(&self) -> Fingerprint {
        self.mask.as_ref().map_or_else(|| self.catalog.full_digests().1, |mask| mask.hash)
    }

    /// Tools for users who manage them: disabled, denied and hidden ones included, internal ones not.
    pub fn listed_tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.tools().filter(ToolRef::is_listed)
    }

    /// Tools that agents see: neither hidden nor denied, internal or disabled.
    pub fn offered_tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.tools().filter(ToolRef::is_offered)
    }

    /// All visible tools in byte order of their names, hidden and internal ones included.
    pub fn tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.visible_tools().iter()
    }

    /// Names of the tools that agents see, by source.
    pub fn by_source(&self) -> BTreeMap<SourceId, Vec<ToolName>> {
        let mut sources: BTreeMap<SourceId, Vec<ToolName>> = BTreeMap::new();
        for tool in self.offered_tools() {
            sources.entry(tool.source().clone()).or_default().push(tool.name().clone());
        }
        sources
    }

    /// Finds a tool by name, like [`Catalog::find`]; tools outside the view do not exist for it.
    ///
    /// # Errors
    /// `TOOL_INVALID_INPUT` for malformed and ambiguous names, `TOOL_NOT_IMPLEMENTED` for unknown ones.
    pub fn find(&self, name: &str) -> Result<ToolRef<'_>> {
        self.visible_tools().find(name)
    }

    /// Like [`View::find`], without the suggestions for an unknown name, which cost a look at every tool.
    pub fn find_known(&self, name: &str) -> Option<ToolRef<'_>> {
        self.visible_tools().find_known(name).ok().flatten()
    }

    /// Like [`View::find`], also among tools that are left out because they are denied or hidden. For calls, which are
    /// refused with other errors than those of unknown tools.
    ///
    /// # Errors
    /// As [`View::find`].
    pub fn find_included(&self, name: &str) -> Result<ToolRef<'_>> {
        VisibleTools { extent: Extent::Included, ..self.visible_tools() }.find(name)
    }

    /// Returns the tool of a source by its own name, also if it is denied or hidden. `None` for a tool that is outside the
    /// principal's groups or not in the catalogue.
    pub fn included_tool(&self, source: &SourceId, original_name: &str) -> Option<ToolRef<'_>> {
        let source = VisibleTools { extent: Extent::Included, ..self.visible_tools() }.find_source(source.as_str())?;
        let position = source.source.segment.position_of_original(original_name)?;
        source.shows(position).then(|| source.tool(position))
    }

    /// Whether a visible tool belongs to a group.
    pub fn is_in_group(&self, tool: &ToolRef<'_>, group: &Defined<Group>) -> bool {
        let position = tool.catalog_source.segment.position_of_name(tool.name().as_str());
        position.is_some_and(|position| tool.catalog_source.is_in_group(position, group))
    }

    /// Globs on essential tools that apply instead of those of the configuration, at the endpoint of a group.
    pub(super) fn essential_override(&self) -> Option<&[String]> {
        self.mask.as_ref()?.essential.as_deref()
    }

    /// Error for an unknown name, with suggestions among the visible tools.
    pub fn unknown_tool_error(&self, name: &str) -> Error {
        self.visible_tools().unknown_tool_error(name)
    }

    /// Sources with visible tools, built-in ones first; in a full view all sources.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<CatalogSource>> {
        self.visible_sources().map(|visible| visible.source)
    }

    /// Returns a source by id, if the view shows any of its tools.
    pub fn source(&self, id: &SourceId) -> Option<&Arc<CatalogSource>> {
        self.visible_tools().find_source(id.as_str()).map(|visible| visible.source)
    }

    /// Number of visible tools, hidden and internal ones included. Costs time in the number of sources.
    pub fn tool_count(&self) -> usize {
        self.visible_sources().map(VisibleSource::tool_count).sum()
    }

    /// Names and original names of all tools but hidden and internal ones, in and outside the view. For names that are
    /// made up for a list and must not depend on who reads it. What is derived from them is not covered by the key, but by
    /// [`View::catalog_hash`].
    pub fn catalog_names(&self) -> impl Iterator<Item = (&ToolName, &str)> {
        let tools = VisibleTools::all(&self.catalog).iter();
        let tools = tools.filter(|tool| tool.is_listed() && tool.verdict() != Verdict::Hide);
        let tools = tools.filter(|tool| tool.status() == ToolStatus::Active);
        tools.map(|tool| (tool.name(), tool.original_name()))
    }

    /// Digest of the tool lists of the whole catalogue, whatever the view shows of it.
    pub fn catalog_hash(&self) -> Fingerprint {
        self.catalog.hash()
    }

    /// Number of tools of a source that lists show, i.e. without internal ones.
    pub fn listed_count(&self, id: &SourceId) -> usize {
        let Some(visible) = self.visible_tools().find_source(id.as_str()) else { return 0 };
        // Only some built-in tools are internal, and a source may have thousands of tools.
        if visible.source.options.internal.is_empty() {
            visible.tool_count()
        } else {
            visible.tools().filter(ToolRef::is_listed).count()
        }
    }

    /// Returns the tools that a source offers but that are not in the catalogue, with the reasons, sorted by name:
    /// those skipped when the manifest was built, and those shadowed by a built-in tool in this catalogue. Of an
    /// OpenAPI source also the faults in parts of usable tools, see
    /// [`Manifest::skipped`](toolcrib_core::manifest::Manifest::skipped). Empty for a restricted view: what is not in the
    /// catalogue is not among the tools that such a principal may see.
    pub fn skipped_tools(&self, id: &SourceId) -> Vec<SkippedTool> {
        let visible = self.visible_tools().find_source(id.as_str()).filter(|_| self.mask.is_none());
        let Some(VisibleSource { source, shadowed, .. }) = visible else { return Vec::new() };
        let segment = &source.segment;
        let shadowed = shadowed.iter().filter_map(|&index| segment.entries().get(index)).map(|entry| SkippedTool {
            name: segment.original_name(entry).to_owned(),
            reason: "a built-in tool has this name; `on_conflict: keep` on the source keeps both".into(),
        });
        let mut skipped: Vec<SkippedTool> = segment.skipped().iter().cloned().chain(shadowed).collect();
        skipped.sort();
        skipped
    }

    /// Returns the full-text index, which the first search builds. All full views of a catalogue share one; a restricted
    /// view has its own, so that the words of other tools do not affect its scores.
    pub(crate) fn search_index(&self) -> Arc<SearchIndex> {
        let build = || SearchIndex::build(self.visible_sources());
        let caches = &self.catalog.view_caches;
        let Some(mask) = &self.mask else { return caches.full_index(build) };
        let indexes = if mask.is_narrowed { &caches.narrowed_indexes } else { &caches.indexes };
        indexes.get_or_build(mask.key, self.tool_count(), build)
    }

    /// Model for semantic search, if one is configured.
    pub(crate) fn search_model(&self) -> Option<&LazyModel> {
        self.catalog.search_model.as_deref()
    }

    /// The catalogue, for what does not depend on the mask.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn visible_sources(&self) -> impl Iterator<Item = VisibleSource<'_>> {
        self.visible_tools().sources()
    }

    fn visible_tools(&self) -> VisibleTools<'_> {
        let mask = self.mask.as_ref().map(|mask| mask.sources.as_slice());
        VisibleTools { catalog: &self.catalog, mask, extent: Extent::Visible }
    }
}

impl ViewMask {
    /// Computes the digests of what is visible. `None` if nothing is left out and nothing else differs from the full
    /// view, whatever rules it was made from.
    fn new(catalog: &Catalog, sources: Vec<Arc<SourceScope>>, essential: Option<Vec<String>>) -> Option<ViewMask> {
        let is_full = |(scope, positioned): (&Arc<SourceScope>, &PositionedSource)| {
            let visible = scope.visible.as_ref().map_or(usize::MAX, |visible| visible.len());
            scope.is_unrestricted() || (scope.policy_verdicts.is_none() && visible >= positioned.tool_count())
        };
        if essential.is_none() && sources.iter().zip(catalog.positioned_sources()).all(is_full) {
            return None;
        }
        let tools = VisibleTools { catalog, mask: Some(&sources), extent: Extent::Visible };
        let (key, hash) = view_key::view_digests(tools, essential.as_deref());
        Some(ViewMask { sources, key, hash, essential, is_narrowed: false })
    }
}

impl<'a> VisibleTools<'a> {
    /// All tools of a catalogue.
    pub(super) fn all(catalog: &'a Catalog) -> VisibleTools<'a> {
        VisibleTools { catalog, mask: None, extent: Extent::Visible }
    }

    /// All sources in catalogue order. A restricted view leaves out those without visible tools.
    pub(super) fn sources(self) -> impl Iterator<Item = VisibleSource<'a>> {
        self.catalog.positioned_sources().filter_map(move |positioned| self.visible_source(positioned))
    }

    /// Returns a source by id.
    pub(super) fn find_source(self, id: &str) -> Option<VisibleSource<'a>> {
        self.visible_source(self.catalog.find_source(id)?)
    }

    /// Iterates over all visible tools in byte order of their names; merges built-in tools with the prefixed ones.
    pub(super) fn iter(self) -> impl Iterator<Item = ToolRef<'a>> {
        // Segments are sorted by `source__`, so their concatenation is sorted by name. Built-in tools have no prefix
        // and may belong anywhere in between.
        let tools = move |positioned: &'a PositionedSource| self.source(positioned).tools();
        let mut builtin: Vec<ToolRef<'a>> = self.catalog.builtin_sources.iter().flat_map(tools).collect();
        builtin.sort_by(|a, b| a.name().cmp(b.name()));
        let mut builtin = builtin.into_iter().peekable();
        let mut prefixed = self.catalog.prefixed_sources.iter().flat_map(tools).peekable();
        std::iter::from_fn(move || match (builtin.peek(), prefixed.peek()) {
            (Some(a), Some(b)) if a.name() < b.name() => builtin.next(),
            (_, Some(_)) => prefixed.next(),
            (_, None) => builtin.next(),
        })
    }

    /// The visible part of a source; `None` in a restricted view that shows nothing of it.
    fn visible_source(self, positioned: &'a PositionedSource) -> Option<VisibleSource<'a>> {
        let source = self.source(positioned);
        (self.mask.is_none() || source.tool_count() > 0).then_some(source)
    }

    /// The visible part of a source, which may be empty.
    fn source(self, positioned: &'a PositionedSource) -> VisibleSource<'a> {
        let scope = self.mask.and_then(|mask| mask.get(positioned.number)).map(Arc::as_ref);
        let visible = scope.and_then(|scope| match self.extent {
            Extent::Visible => scope.visible.as_deref(),
            Extent::Included => scope.included.as_deref(),
        });
        VisibleSource { source: &positioned.source, shadowed: &positioned.shadowed, visible, scope }
    }
}

impl<'a> VisibleSource<'a> {
    /// Visible tools, sorted by name.
    pub(super) fn tools(self) -> impl Iterator<Item = ToolRef<'a>> {
        self.positions().map(move |position| self.tool(position))
    }

    /// Positions of the visible entries, sorted.
    pub(crate) fn positions(self) -> impl Iterator<Item = usize> {
        let all = if self.visible.is_none() { 0..self.source.segment.entries().len() } else { 0..0 };
        let all = all.filter(move |position| self.shadowed.binary_search(position).is_err());
        all.chain(self.visible.unwrap_or_default().iter().map(|position| *position as usize))
    }

    /// The tool at a position of the segment.
    pub(crate) fn tool(self, position: usize) -> ToolRef<'a> {
        let policy_verdict = self.scope.map_or(Verdict::Allow, |scope| scope.policy_verdict(position));
        ToolRef { catalog_source: self.source, entry: &self.source.segment.entries()[position], policy_verdict }
    }

    /// Whether the entry at a position is visible.
    pub(super) fn shows(self, position: usize) -> bool {
        match self.visible {
            Some(visible) => visible.binary_search(&(position as u32)).is_ok(),
            None => self.shadowed.binary_search(&position).is_err(),
        }
    }

    /// Returns the source for the search index: its description of itself without the sentences that name tools outside a
    /// restricted view, by which their names could be found.
    pub(crate) fn without_withheld_names(self) -> Arc<CatalogSource> {
        let segment = &self.source.segment;
        let Some(about) = segment.packed().about.as_deref().filter(|_| self.visible.is_some()) else {
            return self.source.clone();
        };
        let withheld = (0..segment.entries().len()).filter(|position| !self.shows(*position));
        let withheld: WithheldNames = withheld
            .flat_map(|position| {
                let tool = self.tool(position);
                let short_name = tool.name().without_prefix(segment.prefix());
                [tool.name().as_str(), short_name, tool.original_name()].map(str::to_owned)
            })
            .collect();
        let restricted = withheld.remove_mentions(about);
        if restricted == about { self.source.clone() } else { Arc::new(self.source.with_about(restricted)) }
    }

    /// Number of visible tools.
    pub(crate) fn tool_count(self) -> usize {
        self.visible.map_or_else(|| self.source.segment.entries().len() - self.shadowed.len(), <[u32]>::len)
    }
}

#[cfg(test)]
mod tests;
