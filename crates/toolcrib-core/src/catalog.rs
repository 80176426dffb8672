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
use crate::manifest::SetAside;
use crate::policy::{Rules, Verdict};
use crate::search::Directory;
use crate::source::{OnConflict, Source, SourceId};
use crate::tool::SEPARATOR;

pub use essential::Essentials;
pub use segment::{Calling, Entry, Segment};
pub use view::{Caller, State, ToolRef, View};

#[derive(Debug, Default)]
pub struct Catalog {
    pub version: u64,
    /// Sources with a prefix, in the order of `source__`.
    prefixed: Vec<Placed>,
    /// Built-in sources, whose names stand among the others.
    builtin: Vec<Placed>,
    /// Globs on tools that every agent should know of, whatever their source.
    essential: Vec<String>,
    /// Whether anything is called essential, here or by a source.
    essential_configured: bool,
    hash: Option<Fingerprint>,
    /// Made by the first search.
    directory: OnceLock<Directory>,
}

/// One enabled source's share of the catalogue.
#[derive(Debug)]
pub struct Part {
    pub segment: Arc<Segment>,
    pub state: Arc<SourceState>,
    pub manner: Manner,
    digest: Fingerprint,
}

/// What a source's declaration says about its tools, beyond what the source itself offers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manner {
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
struct Placed {
    part: Arc<Part>,
    /// Entries left out because a built-in has their name, in order.
    masked: Vec<usize>,
}

impl Manner {
    pub fn of(source: &Source) -> Manner {
        Manner {
            kind: source.kind.name().to_owned(),
            builtin: source.kind.is_builtin(),
            rules: source.settings.tools.clone(),
            title: source.settings.title.clone(),
            tags: source.settings.tags.clone(),
            essential: source.settings.essential.clone(),
            keep_conflicts: source.settings.on_conflict() == OnConflict::Keep,
            ..Manner::default()
        }
    }

    /// A rule holds whether it names the tool as its source does or as agents see it, without the prefix.
    pub fn verdict(&self, original: &str, shown: &str) -> Verdict {
        let unruled = self.verdicts.get(original).copied().unwrap_or_default();
        self.rules.verdict(&[original, shown], unruled)
    }
}

impl Part {
    pub fn new(segment: Arc<Segment>, state: Arc<SourceState>, manner: Manner) -> Part {
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
        Part { digest: Fingerprint::of(text), segment, state, manner }
    }

    fn tool_state(&self, tool: &str) -> ToolState {
        self.state.tools.get(tool).copied().unwrap_or_default()
    }
}

impl Catalog {
    /// Puts the parts in order and masks what a built-in shadows.
    pub fn build(version: u64, parts: Vec<Arc<Part>>) -> Catalog {
        let (builtin, mut prefixed): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.manner.builtin);
        prefixed.sort_by(|one, other| one.segment.prefix().cmp(other.segment.prefix()));
        let reserved: BTreeSet<&str> =
            builtin.iter().flat_map(|part| part.segment.entries()).map(|entry| entry.name.as_str()).collect();
        let place = |part: Arc<Part>| {
            let mut masked = Vec::new();
            if !part.manner.keep_conflicts {
                masked.extend(reserved.iter().filter_map(|name| part.segment.position_of_original(name)));
                masked.sort_unstable();
            }
            Placed { part, masked }
        };
        let prefixed: Vec<Placed> = prefixed.into_iter().map(place).collect();
        let builtin: Vec<Placed> =
            builtin.iter().map(|part| Placed { part: part.clone(), masked: Vec::new() }).collect();
        let digests: String =
            builtin.iter().chain(&prefixed).map(|placed| placed.part.digest.to_string()).collect::<Vec<_>>().join(" ");
        let essential_configured =
            builtin.iter().chain(&prefixed).any(|placed| !placed.part.manner.essential.is_empty());
        let hash = Some(Fingerprint::of(digests));
        Catalog {
            version,
            prefixed,
            builtin,
            essential: Vec::new(),
            essential_configured,
            hash,
            directory: OnceLock::new(),
        }
    }

    /// The same, with globs on tools of any source that every agent should know of.
    pub fn with_essential(mut self, globs: Vec<String>) -> Catalog {
        if !globs.is_empty() {
            self.hash = Some(Fingerprint::of(format!("{} {globs:?}", self.hash())));
            self.essential = globs;
            self.essential_configured = true;
        }
        self
    }

    /// Changes when what lists show or set aside changes, and with nothing else.
    pub fn hash(&self) -> Fingerprint {
        self.hash.unwrap_or_else(|| Fingerprint::of(""))
    }

    pub fn parts(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.all().map(|placed| &placed.part)
    }

    pub fn part(&self, id: &SourceId) -> Option<&Arc<Part>> {
        self.placed(id.as_str()).map(|placed| &placed.part)
    }

    /// How many tools of a source are in the catalogue.
    pub fn tool_count(&self, id: &SourceId) -> usize {
        self.placed(id.as_str()).map_or(0, |placed| placed.part.segment.entries().len() - placed.masked.len())
    }

    /// How many of them lists show: those that a rule hides are not among them.
    pub fn listed_count(&self, id: &SourceId) -> usize {
        let Some(placed) = self.placed(id.as_str()) else { return 0 };
        let manner = &placed.part.manner;
        // Most sources have no rules, and very many tools.
        match manner.rules.is_empty() && manner.verdicts.is_empty() && manner.internal.is_empty() {
            true => self.tool_count(id),
            false => placed.tools().filter(|tool| tool.verdict() != Verdict::Hide && !tool.internal()).count(),
        }
    }

    /// What a source offers and agents do not get, and why.
    pub fn set_aside(&self, id: &SourceId) -> Vec<SetAside> {
        let Some(placed) = self.placed(id.as_str()) else { return Vec::new() };
        let segment = &placed.part.segment;
        let shadowed = placed.masked.iter().filter_map(|&index| segment.entries().get(index)).map(|entry| SetAside {
            name: segment.original(entry).to_owned(),
            reason: "a built-in tool has this name; `on_conflict: keep` on the source keeps both".into(),
        });
        let mut set_aside: Vec<SetAside> = segment.set_aside().iter().cloned().chain(shadowed).collect();
        set_aside.sort();
        set_aside
    }

    /// The words and names of all tools.
    pub(crate) fn directory(&self) -> &Directory {
        self.directory.get_or_init(|| Directory::build(self.all().map(|placed| (&placed.part, &placed.masked[..]))))
    }

    fn placed(&self, id: &str) -> Option<&Placed> {
        let prefix = || id.bytes().chain(SEPARATOR.bytes());
        let position = self.prefixed.binary_search_by(|placed| placed.part.segment.prefix().bytes().cmp(prefix()));
        let prefixed = position.ok().and_then(|position| self.prefixed.get(position));
        prefixed.or_else(|| self.builtin.iter().find(|placed| placed.part.segment.source().as_str() == id))
    }

    fn all(&self) -> impl Iterator<Item = &Placed> {
        self.builtin.iter().chain(&self.prefixed)
    }
}

#[cfg(test)]
mod tests;
