//! What differs between all that was offered then and all that is offered now, source by source, in the names agents see.

pub mod sarif;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::catalog::Segment;
use crate::compare::{Allowance, Class, Comparison, Renamed, compare_parts};
use crate::error::{Code, Result};
use crate::fingerprint::Fingerprint;
use crate::history::changed_in_full;
use crate::lock::{LockedSource, Parts};
use crate::manifest::{Change, Delta};
use crate::source::SourceId;
use crate::text::shown_short;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Difference {
    /// Whether anything differs, or could not be compared.
    pub differs: bool,
    /// The sources that differ or could not be compared, in the order of their ids.
    pub sources: Vec<SourceDifference>,
    /// Sources of which only a list is known that may be old.
    pub stale: Vec<SourceId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceDifference {
    pub source: SourceId,
    pub added: Vec<String>,
    pub changed: Vec<Change>,
    pub removed: Vec<String>,
    /// Of those removed and added, which are most likely one tool under two names.
    pub renamed: Vec<Renamed>,
    pub unchanged: usize,
    pub before: Option<Fingerprint>,
    pub after: Option<Fingerprint>,
    /// Why it could not be compared.
    pub error: Option<Unreadable>,
    /// Of each tool that differs its own fingerprint, of now where it is there now.
    #[serde(skip)]
    pub(crate) fingerprints: BTreeMap<String, Fingerprint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub code: Code,
    pub message: String,
}

impl Difference {
    /// Sources without a difference are left out.
    pub fn of(sources: impl IntoIterator<Item = SourceDifference>) -> Difference {
        let sources: Vec<SourceDifference> = sources.into_iter().filter(SourceDifference::differs).collect();
        Difference { differs: !sources.is_empty(), sources, stale: Vec::new() }
    }

    /// For people: a line for each tool.
    pub fn text(&self) -> String {
        let lines = self.sources.iter().flat_map(SourceDifference::lines);
        lines.collect::<Vec<_>>().join("\n")
    }

    pub fn unreadable(&self) -> bool {
        self.sources.iter().any(|source| source.error.is_some())
    }
}

impl SourceDifference {
    fn new(source: &SourceId) -> SourceDifference {
        SourceDifference {
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
    pub fn added(now: &Segment) -> SourceDifference {
        let added = now.entries().iter().map(|entry| entry.name.to_string()).collect();
        let fingerprints = fingerprints(now).collect();
        SourceDifference { added, after: Some(now.fingerprint()), fingerprints, ..SourceDifference::new(now.source()) }
    }

    /// Of a source that is gone.
    pub fn removed(source: &SourceId, before: Fingerprint, names: Vec<String>) -> SourceDifference {
        SourceDifference { removed: names, before: Some(before), ..SourceDifference::new(source) }
    }

    pub fn unreadable(source: &SourceId, before: Option<Fingerprint>, code: Code, message: String) -> SourceDifference {
        SourceDifference { before, error: Some(Unreadable { code, message }), ..SourceDifference::new(source) }
    }

    /// With both lists at hand.
    pub fn between(then: &Segment, now: &Segment) -> Result<SourceDifference> {
        let delta = Delta::between(Some(then.packed()), now.packed())?;
        let name = |original: &str| {
            let in_segment = |segment: &Segment| {
                let position = segment.position_of_original(original)?;
                segment.entries().get(position).map(|entry| entry.name.to_string())
            };
            in_segment(now).or_else(|| in_segment(then)).unwrap_or_else(|| original.to_owned())
        };
        let changed = delta.changed.into_iter().map(|change| Change { name: name(&change.name), ..change });
        Ok(SourceDifference {
            fingerprints: fingerprints(then).chain(fingerprints(now)).collect(),
            added: delta.added.iter().map(|original| name(original)).collect(),
            changed: changed.collect(),
            removed: delta.removed.iter().map(|original| name(original)).collect(),
            renamed: delta.renamed.iter().map(|r| Renamed { from: name(&r.from), to: name(&r.to) }).collect(),
            unchanged: delta.unchanged,
            before: Some(then.fingerprint()),
            after: Some(now.fingerprint()),
            ..SourceDifference::new(now.source())
        })
    }

    /// With nothing of then but what a lockfile says.
    pub fn by_parts(then: &LockedSource, now: &Segment) -> Result<SourceDifference> {
        let locked = then.tools.iter().map(|(name, tool)| (name.clone(), tool.fingerprint));
        let mut difference = SourceDifference {
            fingerprints: locked.chain(fingerprints(now)).collect(),
            before: Some(then.inventory_hash),
            after: Some(now.fingerprint()),
            ..SourceDifference::new(now.source())
        };
        let (mut to_write, mut to_compare) = (Allowance::for_a_lock(), Allowance::default());
        // What is not as it was locked.
        let mut news: BTreeMap<String, Parts> = BTreeMap::new();
        for entry in now.entries() {
            let (name, fingerprint) = (entry.name.to_string(), now.stored(entry).fingerprint);
            let locked = then.tools.get(&name);
            if locked.is_some_and(|locked| locked.fingerprint == fingerprint) {
                difference.unchanged += 1;
                continue;
            }
            let parts = Parts::to_compare(&now.tool(entry)?, locked.map(|locked| &locked.parts), &mut to_write);
            match locked {
                Some(locked) => {
                    let Comparison { class, notes } = compare_parts(&locked.parts, &parts, &mut to_compare);
                    let name = name.clone();
                    difference.changed.push(Change { name, fields: Vec::new(), class: Some(class), notes });
                }
                None => difference.added.push(name.clone()),
            }
            news.insert(name, parts);
        }
        let offered: BTreeSet<&str> = now.entries().iter().map(|entry| entry.name.as_str()).collect();
        difference.removed = then.tools.keys().filter(|name| !offered.contains(name.as_str())).cloned().collect();
        difference.renamed = renamed_by_parts(then, &news, &offered);
        Ok(difference)
    }

    fn differs(&self) -> bool {
        self.error.is_some() || !(self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty())
    }

    /// Names that are told as renamed, and not once more as removed and added.
    fn names_renamed(&self) -> BTreeSet<&str> {
        self.renamed.iter().flat_map(|renamed| [renamed.from.as_str(), renamed.to.as_str()]).collect()
    }

    fn lines(&self) -> Vec<String> {
        let renamed = self.names_renamed();
        let is_renamed = |name: &String| renamed.contains(name.as_str());
        let mut lines = vec![format!("{}:", self.source)];
        if let Some(error) = &self.error {
            // With a list at hand it was compared all the same.
            let what = if self.after.is_some() { "could not be read now" } else { "could not be compared" };
            lines.push(format!("  {what}: {}", shown_short(&error.message, 300)));
        }
        lines.extend(self.changed.iter().map(|change| format!("  changed: {}", changed_in_full(change))));
        let renames = self.renamed.iter();
        lines.extend(renames.map(|Renamed { from, to }| format!("  renamed, most likely: `{from}` to `{to}`")));
        let gone = self.removed.iter().filter(|name| !is_renamed(name));
        lines.extend(gone.map(|name| format!("  removed: `{}`", shown_short(name, 80))));
        let new = self.added.iter().filter(|name| !is_renamed(name));
        lines.extend(new.map(|name| format!("  added: `{}`", shown_short(name, 80))));
        lines
    }
}

/// Pairs that are the same in all but their names, where no other tool is, neither then nor now.
fn renamed_by_parts(then: &LockedSource, news: &BTreeMap<String, Parts>, offered: &BTreeSet<&str>) -> Vec<Renamed> {
    let mut alike: BTreeMap<[&str; 5], (Vec<&String>, Vec<&String>)> = BTreeMap::new();
    for (name, locked) in &then.tools {
        locked.parts.mark().into_iter().for_each(|mark| alike.entry(mark).or_default().0.push(name));
    }
    for (name, parts) in news {
        parts.mark().into_iter().for_each(|mark| alike.entry(mark).or_default().1.push(name));
    }
    let pairs = alike.into_values().filter_map(|(before, after)| match (&before[..], &after[..]) {
        ([from], [to]) => Some(Renamed { from: (*from).clone(), to: (*to).clone() }),
        _ => None,
    });
    let is_renamed = |pair: &Renamed| !offered.contains(pair.from.as_str()) && !then.tools.contains_key(&pair.to);
    let mut renamed: Vec<Renamed> = pairs.filter(is_renamed).collect();
    renamed.sort_by(|one, other| one.from.cmp(&other.from));
    renamed
}

fn fingerprints(segment: &Segment) -> impl Iterator<Item = (String, Fingerprint)> {
    segment.entries().iter().map(|entry| (entry.name.to_string(), segment.stored(entry).fingerprint))
}

/// What a change is filed under where every difference needs a name: the classes, and what happens to whole tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Changed(Class),
    Added,
    Removed,
    Renamed,
    Unreadable,
}

#[cfg(test)]
mod tests;
