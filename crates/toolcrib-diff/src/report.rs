//! Differences between an old and a new catalogue, source by source, with the tool names that agents see. The old side
//! is a stored list of tools or, without one, a lockfile.
//!
//! `CatalogDiff` is the JSON of `toolcrib diff --json`; [`CatalogDiff::to_text`] renders it for people and [`sarif`]
//! for code review. Comparing single tools is left to `compare`.

pub mod sarif;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use toolcrib_catalog::Segment;
use toolcrib_core::delta::{ToolChange, ToolRename};
use toolcrib_core::error::{Code, Result};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::history::describe_change_in_full;
use toolcrib_core::source::SourceId;
use toolcrib_core::text::sanitize_truncated;

use crate::compare::{ToolComparison, WorkBudget, compare_manifests, compare_parts};
use crate::lockfile::{self, LockedSource, ToolParts};

/// Differences of all sources. The result of `toolcrib diff`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CatalogDiff {
    /// Whether anything differs, or could not be compared.
    pub differs: bool,
    /// The sources that differ or could not be compared, in the order of their ids. A source without differences is not
    /// listed.
    pub sources: Vec<SourceDiff>,
    /// Sources whose current list is a cached one that may be outdated.
    pub stale: Vec<SourceId>,
}

/// Differences of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDiff {
    pub source: SourceId,
    /// Names of tools, as in the following lists, are those that agents see. Includes the new names of
    /// [`SourceDiff::renamed`].
    pub added: Vec<String>,
    /// Changed tools, with class and notes.
    pub changed: Vec<ToolChange>,
    /// Includes the old names of [`SourceDiff::renamed`].
    pub removed: Vec<String>,
    /// Pairs of removed and added tools that are most likely the same tool.
    pub renamed: Vec<ToolRename>,
    /// Number of tools that did not change.
    pub unchanged: usize,
    /// Fingerprint of the old list; `None` if the source is new.
    pub before: Option<Fingerprint>,
    /// Fingerprint of the new list; `None` if the source is gone or unreadable.
    pub after: Option<Fingerprint>,
    /// Why the source could not be refreshed or compared.
    pub error: Option<SourceDiffError>,
    /// Fingerprint of each tool by name: the new one if it still exists, else the old one.
    #[serde(skip)]
    pub(crate) fingerprints: BTreeMap<String, Fingerprint>,
}

/// Why a source could not be refreshed or compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDiffError {
    /// Code of the error, such as `TOOL_UNAVAILABLE`.
    pub code: Code,
    pub message: String,
    /// Whether another refresh may succeed.
    pub retryable: bool,
}

impl CatalogDiff {
    /// Collects the differences of sources. Sources without any are left out.
    pub fn from_sources(sources: impl IntoIterator<Item = SourceDiff>) -> CatalogDiff {
        let sources: Vec<SourceDiff> = sources.into_iter().filter(SourceDiff::has_differences).collect();
        CatalogDiff { differs: !sources.is_empty(), sources, stale: Vec::new() }
    }

    /// Renders one line per tool for people.
    pub fn to_text(&self) -> String {
        let lines = self.sources.iter().flat_map(SourceDiff::text_lines);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns whether a source could not be refreshed or compared.
    pub fn has_unreadable(&self) -> bool {
        self.sources.iter().any(|source| source.error.is_some())
    }
}

impl SourceDiff {
    /// Returns an empty difference.
    fn new(source: &SourceId) -> SourceDiff {
        SourceDiff {
            source: source.clone(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            renamed: Vec::new(),
            unchanged: 0,
            before: None,
            after: None,
            error: None,
            fingerprints: BTreeMap::new(),
        }
    }

    /// Returns the difference of a new source: all its tools are added.
    pub fn from_added_source(new: &Segment) -> SourceDiff {
        let added = new.entries().iter().map(|entry| entry.name.to_string()).collect();
        let fingerprints = tool_fingerprints(new).collect();
        SourceDiff { added, after: Some(new.fingerprint()), fingerprints, ..SourceDiff::new(new.source()) }
    }

    /// Returns the difference of a removed source: all its tools are removed.
    pub fn from_removed_source(source: &SourceId, before: Fingerprint, names: Vec<String>) -> SourceDiff {
        SourceDiff { removed: names, before: Some(before), ..SourceDiff::new(source) }
    }

    /// Returns the difference of a source that could not be read. None of its tools count as removed.
    pub fn from_error(source: &SourceId, before: Option<Fingerprint>, error: SourceDiffError) -> SourceDiff {
        SourceDiff { before, error: Some(error), ..SourceDiff::new(source) }
    }

    /// Compares two lists of tools of one source.
    pub fn between(old: &Segment, new: &Segment) -> Result<SourceDiff> {
        let delta = compare_manifests(Some(old.packed()), new.packed())?;
        // Lists have the names of the source, a diff those that agents see. A tool that is gone has only an old one.
        let name = |original: &str| {
            let in_segment = |segment: &Segment| {
                let position = segment.position_of_original(original)?;
                segment.entries().get(position).map(|entry| entry.name.to_string())
            };
            in_segment(new).or_else(|| in_segment(old)).unwrap_or_else(|| original.to_owned())
        };
        let changed = delta.changed.into_iter().map(|change| ToolChange { name: name(&change.name), ..change });
        Ok(SourceDiff {
            fingerprints: tool_fingerprints(old).chain(tool_fingerprints(new)).collect(),
            added: delta.added.iter().map(|original| name(original)).collect(),
            changed: changed.collect(),
            removed: delta.removed.iter().map(|original| name(original)).collect(),
            renamed: delta.renamed.iter().map(|r| ToolRename { from: name(&r.from), to: name(&r.to) }).collect(),
            unchanged: delta.unchanged,
            before: Some(old.fingerprint()),
            after: Some(new.fingerprint()),
            ..SourceDiff::new(new.source())
        })
    }

    /// Compares a list of tools with its entry in a lockfile.
    pub fn from_lockfile(old: &LockedSource, new: &Segment) -> Result<SourceDiff> {
        let locked = old.tools.iter().map(|(name, tool)| (name.clone(), tool.fingerprint));
        let mut diff = SourceDiff {
            fingerprints: locked.chain(tool_fingerprints(new)).collect(),
            before: Some(old.inventory_hash),
            after: Some(new.fingerprint()),
            ..SourceDiff::new(new.source())
        };
        // Two budgets: a list that is expensive to normalise must still leave work for the comparison.
        let mut parts_budget = lockfile::new_budget();
        let mut compare_budget = WorkBudget::default();
        // The parts of all tools that are new or changed.
        let mut new_parts: BTreeMap<String, ToolParts> = BTreeMap::new();
        for entry in new.entries() {
            let name = entry.name.to_string();
            let locked = old.tools.get(&name);
            if locked.is_some_and(|locked| locked.fingerprint == new.packed_tool(entry).fingerprint) {
                diff.unchanged += 1;
                continue;
            }
            // Where the lockfile has a verbatim fingerprint, the same kind is needed to compare.
            let locked_parts = locked.map(|locked| &locked.parts);
            let parts = ToolParts::from_tool(&new.tool(entry)?, locked_parts, &mut parts_budget);
            match locked {
                Some(locked) => {
                    let ToolComparison { class, notes } = compare_parts(&locked.parts, &parts, &mut compare_budget);
                    let name = name.clone();
                    diff.changed.push(ToolChange { name, fields: Vec::new(), class: Some(class), notes });
                }
                None => diff.added.push(name.clone()),
            }
            new_parts.insert(name, parts);
        }
        let new_names: BTreeSet<&str> = new.entries().iter().map(|entry| entry.name.as_str()).collect();
        // The lockfile stores the names that agents see, so no mapping is needed here.
        diff.removed = old.tools.keys().filter(|name| !new_names.contains(name.as_str())).cloned().collect();
        diff.renamed = find_renames_by_parts(old, &new_parts, &new_names);
        Ok(diff)
    }

    /// Returns whether anything differs. A source that could not be read counts, so that `--ci` does not pass by
    /// mistake.
    fn has_differences(&self) -> bool {
        self.error.is_some() || !(self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty())
    }

    /// Describes the error of the source. With a cached list it was compared nevertheless.
    fn problem(&self) -> Option<String> {
        let problem = if self.after.is_some() { "could not be refreshed" } else { "could not be compared" };
        self.error.as_ref().map(|error| format!("{problem}: {}", sanitize_truncated(&error.message, 300)))
    }

    /// Returns the names on both sides of renames, which are not listed again as removed and added.
    fn renamed_names(&self) -> BTreeSet<&str> {
        self.renamed.iter().flat_map(|renamed| [renamed.from.as_str(), renamed.to.as_str()]).collect()
    }

    /// Renders the heading and one line per difference.
    fn text_lines(&self) -> Vec<String> {
        let renamed = self.renamed_names();
        let is_renamed = |name: &String| renamed.contains(name.as_str());
        let mut lines = vec![format!("{}:", self.source)];
        lines.extend(self.problem().map(|problem| format!("  {problem}")));
        lines.extend(self.changed.iter().map(|change| format!("  changed: {}", describe_change_in_full(change))));
        let renames = self.renamed.iter();
        lines.extend(renames.map(|ToolRename { from, to }| format!("  most likely renamed: `{from}` to `{to}`")));
        let removed = self.removed.iter().filter(|name| !is_renamed(name));
        lines.extend(removed.map(|name| format!("  removed: `{}`", sanitize_truncated(name, 80))));
        let new = self.added.iter().filter(|name| !is_renamed(name));
        lines.extend(new.map(|name| format!("  added: `{}`", sanitize_truncated(name, 80))));
        lines
    }
}

/// Returns pairs of tools that differ in nothing but their names. Tools that share their identity with a third one are
/// not paired.
fn find_renames_by_parts(
    old: &LockedSource,
    new_parts: &BTreeMap<String, ToolParts>,
    new_names: &BTreeSet<&str>,
) -> Vec<ToolRename> {
    let mut by_identity: BTreeMap<[&str; 5], (Vec<&String>, Vec<&String>)> = BTreeMap::new();
    for (name, locked) in &old.tools {
        locked.parts.identity().into_iter().for_each(|identity| by_identity.entry(identity).or_default().0.push(name));
    }
    for (name, parts) in new_parts {
        parts.identity().into_iter().for_each(|identity| by_identity.entry(identity).or_default().1.push(name));
    }
    // Unchanged tools of the lockfile are candidates too, so that a copy of one is not taken for a rename.
    let pairs = by_identity.into_values().filter_map(|(before, after)| match (&before[..], &after[..]) {
        ([from], [to]) => Some(ToolRename { from: (*from).clone(), to: (*to).clone() }),
        _ => None,
    });
    // A tool that still exists, or existed before, was not renamed.
    let is_renamed = |pair: &ToolRename| !new_names.contains(pair.from.as_str()) && !old.tools.contains_key(&pair.to);
    let mut renamed: Vec<ToolRename> = pairs.filter(is_renamed).collect();
    renamed.sort_by(|a, b| a.from.cmp(&b.from));
    renamed
}

/// Returns the fingerprint of each tool of a segment by name.
fn tool_fingerprints(segment: &Segment) -> impl Iterator<Item = (String, Fingerprint)> {
    segment.entries().iter().map(|entry| (entry.name.to_string(), segment.packed_tool(entry).fingerprint))
}

#[cfg(test)]
mod tests;
