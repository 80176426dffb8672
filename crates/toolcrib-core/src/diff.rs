//! What differs between all that was offered then and all that is offered now, source by source, in the names agents see.

pub mod sarif;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::catalog::Segment;
use crate::compare::{ChangeClass, ToolComparison, ToolRename, WorkBudget, compare_parts};
use crate::error::{Code, Result};
use crate::fingerprint::Fingerprint;
use crate::history::describe_change_in_full;
use crate::lockfile::{LockedSource, ToolParts};
use crate::manifest::{Delta, ToolChange};
use crate::source::SourceId;
use crate::text::sanitize_truncated;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CatalogDiff {
    /// Whether anything differs, or could not be compared.
    pub differs: bool,
    /// The sources that differ or could not be compared, in the order of their ids.
    pub sources: Vec<SourceDiff>,
    /// Sources of which only a list is known that may be old.
    pub stale: Vec<SourceId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDiff {
    pub source: SourceId,
    pub added: Vec<String>,
    pub changed: Vec<ToolChange>,
    pub removed: Vec<String>,
    /// Of those removed and added, which are most likely one tool under two names.
    pub renamed: Vec<ToolRename>,
    pub unchanged: usize,
    pub before: Option<Fingerprint>,
    pub after: Option<Fingerprint>,
    /// Why it could not be compared.
    pub error: Option<SourceDiffError>,
    /// Of each tool that differs its own fingerprint, of now where it is there now.
    #[serde(skip)]
    pub(crate) fingerprints: BTreeMap<String, Fingerprint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDiffError {
    pub code: Code,
    pub message: String,
}

impl CatalogDiff {
    /// Sources without a difference are left out.
    pub fn from_sources(sources: impl IntoIterator<Item = SourceDiff>) -> CatalogDiff {
        let sources: Vec<SourceDiff> = sources.into_iter().filter(SourceDiff::has_differences).collect();
        CatalogDiff { differs: !sources.is_empty(), sources, stale: Vec::new() }
    }

    /// For people: a line for each tool.
    pub fn to_text(&self) -> String {
        let lines = self.sources.iter().flat_map(SourceDiff::text_lines);
        lines.collect::<Vec<_>>().join("\n")
    }

    pub fn has_unreadable(&self) -> bool {
        self.sources.iter().any(|source| source.error.is_some())
    }
}

impl SourceDiff {
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

    /// Of a source that was not there then.
    pub fn from_added_source(now: &Segment) -> SourceDiff {
        let added = now.entries().iter().map(|entry| entry.name.to_string()).collect();
        let fingerprints = tool_fingerprints(now).collect();
        SourceDiff { added, after: Some(now.fingerprint()), fingerprints, ..SourceDiff::new(now.source()) }
    }

    /// Of a source that is gone.
    pub fn from_removed_source(source: &SourceId, before: Fingerprint, names: Vec<String>) -> SourceDiff {
        SourceDiff { removed: names, before: Some(before), ..SourceDiff::new(source) }
    }

    pub fn from_error(source: &SourceId, before: Option<Fingerprint>, code: Code, message: String) -> SourceDiff {
        SourceDiff { before, error: Some(SourceDiffError { code, message }), ..SourceDiff::new(source) }
    }

    /// With both lists at hand.
    pub fn between(then: &Segment, now: &Segment) -> Result<SourceDiff> {
        let delta = Delta::between(Some(then.packed()), now.packed())?;
        let name = |original: &str| {
            let in_segment = |segment: &Segment| {
                let position = segment.position_of_original(original)?;
                segment.entries().get(position).map(|entry| entry.name.to_string())
            };
            in_segment(now).or_else(|| in_segment(then)).unwrap_or_else(|| original.to_owned())
        };
        let changed = delta.changed.into_iter().map(|change| ToolChange { name: name(&change.name), ..change });
        Ok(SourceDiff {
            fingerprints: tool_fingerprints(then).chain(tool_fingerprints(now)).collect(),
            added: delta.added.iter().map(|original| name(original)).collect(),
            changed: changed.collect(),
            removed: delta.removed.iter().map(|original| name(original)).collect(),
            renamed: delta.renamed.iter().map(|r| ToolRename { from: name(&r.from), to: name(&r.to) }).collect(),
            unchanged: delta.unchanged,
            before: Some(then.fingerprint()),
            after: Some(now.fingerprint()),
            ..SourceDiff::new(now.source())
        })
    }

    /// With nothing of then but what a lockfile says.
    pub fn from_lockfile(then: &LockedSource, now: &Segment) -> Result<SourceDiff> {
        let locked = then.tools.iter().map(|(name, tool)| (name.clone(), tool.fingerprint));
        let mut difference = SourceDiff {
            fingerprints: locked.chain(tool_fingerprints(now)).collect(),
            before: Some(then.inventory_hash),
            after: Some(now.fingerprint()),
            ..SourceDiff::new(now.source())
        };
        let (mut to_write, mut to_compare) = (WorkBudget::for_lockfile(), WorkBudget::default());
        // What is not as it was locked.
        let mut news: BTreeMap<String, ToolParts> = BTreeMap::new();
        for entry in now.entries() {
            let (name, fingerprint) = (entry.name.to_string(), now.packed_tool(entry).fingerprint);
            let locked = then.tools.get(&name);
            if locked.is_some_and(|locked| locked.fingerprint == fingerprint) {
                difference.unchanged += 1;
                continue;
            }
            let parts = ToolParts::from_tool_comparable_to(
                &now.tool(entry)?,
                locked.map(|locked| &locked.parts),
                &mut to_write,
            );
            match locked {
                Some(locked) => {
                    let ToolComparison { class, notes } = compare_parts(&locked.parts, &parts, &mut to_compare);
                    let name = name.clone();
                    difference.changed.push(ToolChange { name, fields: Vec::new(), class: Some(class), notes });
                }
                None => difference.added.push(name.clone()),
            }
            news.insert(name, parts);
        }
        let offered: BTreeSet<&str> = now.entries().iter().map(|entry| entry.name.as_str()).collect();
        difference.removed = then.tools.keys().filter(|name| !offered.contains(name.as_str())).cloned().collect();
        difference.renamed = find_renames_by_parts(then, &news, &offered);
        Ok(difference)
    }

    fn has_differences(&self) -> bool {
        self.error.is_some() || !(self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty())
    }

    /// Names that are told as renamed, and not once more as removed and added.
    fn renamed_names(&self) -> BTreeSet<&str> {
        self.renamed.iter().flat_map(|renamed| [renamed.from.as_str(), renamed.to.as_str()]).collect()
    }

    fn text_lines(&self) -> Vec<String> {
        let renamed = self.renamed_names();
        let is_renamed = |name: &String| renamed.contains(name.as_str());
        let mut lines = vec![format!("{}:", self.source)];
        if let Some(error) = &self.error {
            // With a list at hand it was compared all the same.
            let what = if self.after.is_some() { "could not be read now" } else { "could not be compared" };
            lines.push(format!("  {what}: {}", sanitize_truncated(&error.message, 300)));
        }
        lines.extend(self.changed.iter().map(|change| format!("  changed: {}", describe_change_in_full(change))));
        let renames = self.renamed.iter();
        lines.extend(renames.map(|ToolRename { from, to }| format!("  renamed, most likely: `{from}` to `{to}`")));
        let gone = self.removed.iter().filter(|name| !is_renamed(name));
        lines.extend(gone.map(|name| format!("  removed: `{}`", sanitize_truncated(name, 80))));
        let new = self.added.iter().filter(|name| !is_renamed(name));
        lines.extend(new.map(|name| format!("  added: `{}`", sanitize_truncated(name, 80))));
        lines
    }
}

/// Pairs that are the same in all but their names, where no other tool is, neither then nor now.
fn find_renames_by_parts(
    then: &LockedSource,
    news: &BTreeMap<String, ToolParts>,
    offered: &BTreeSet<&str>,
) -> Vec<ToolRename> {
    let mut alike: BTreeMap<[&str; 5], (Vec<&String>, Vec<&String>)> = BTreeMap::new();
    for (name, locked) in &then.tools {
        locked.parts.identity().into_iter().for_each(|mark| alike.entry(mark).or_default().0.push(name));
    }
    for (name, parts) in news {
        parts.identity().into_iter().for_each(|mark| alike.entry(mark).or_default().1.push(name));
    }
    let pairs = alike.into_values().filter_map(|(before, after)| match (&before[..], &after[..]) {
        ([from], [to]) => Some(ToolRename { from: (*from).clone(), to: (*to).clone() }),
        _ => None,
    });
    let is_renamed = |pair: &ToolRename| !offered.contains(pair.from.as_str()) && !then.tools.contains_key(&pair.to);
    let mut renamed: Vec<ToolRename> = pairs.filter(is_renamed).collect();
    renamed.sort_by(|one, other| one.from.cmp(&other.from));
    renamed
}

fn tool_fingerprints(segment: &Segment) -> impl Iterator<Item = (String, Fingerprint)> {
    segment.entries().iter().map(|entry| (entry.name.to_string(), segment.packed_tool(entry).fingerprint))
}

/// What a change is filed under where every difference needs a name: the classes, and what happens to whole tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    Changed(ChangeClass),
    Added,
    Removed,
    Renamed,
    Unreadable,
}

#[cfg(test)]
mod tests;
