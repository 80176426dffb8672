//! What is worth naming: the sources in their order, and the tools that say most about each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::catalog::View;
use crate::source::SourceId;

/// A source as a summary sees it.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    pub(super) id: &'a SourceId,
    /// Whether names stand without their source.
    pub(super) bare: bool,
    /// Names without their prefix.
    pub(super) tools: Vec<Named<'a>>,
    essential: usize,
}

/// Ordered by how much a name says: what is essential first, then what is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named<'a> {
    essential: Reverse<bool>,
    words: usize,
    length: usize,
    name: &'a str,
}

/// Sources with the most essential tools first, then by name.
pub(super) fn sources(view: &View) -> Vec<Listed<'_>> {
    let essentials = view.catalog.essentials();
    let mut sources: BTreeMap<&SourceId, Listed<'_>> = BTreeMap::new();
    for tool in view.offered() {
        let (id, prefix) = (tool.source(), tool.part.segment.prefix());
        let name = tool.name().as_str();
        let name = name.strip_prefix(prefix).unwrap_or(name);
        let essential = essentials.contains(&tool);
        let listed = sources.entry(id).or_insert_with(|| Listed {
            id,
            bare: prefix.is_empty(),
            tools: Vec::new(),
            essential: 0,
        });
        listed.essential += usize::from(essential);
        let words = name.split(['_', '-']).filter(|word| !word.is_empty()).count();
        listed.tools.push(Named { essential: Reverse(essential), words, length: name.len(), name });
    }
    let mut sources: Vec<Listed<'_>> = sources.into_values().collect();
    sources.sort_by_key(|source| Reverse(source.essential));
    sources
}

impl<'a> Listed<'a> {
    /// At most so many names, the best first. Among equals those are preferred that begin otherwise than the ones before:
    /// `search`, `create` and `delete` say more than three that `get`.
    pub(super) fn best(&self, most: usize) -> Vec<&'a str> {
        let mut left: Vec<Named<'a>> = self.tools.clone();
        let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
        let mut best = Vec::new();
        while best.len() < most {
            let used = |named: &Named<'a>| begun.get(first_word(named.name)).copied().unwrap_or_default();
            let next = (0..left.len()).min_by_key(|&at| (left[at].essential, used(&left[at]), left[at]));
            let Some(next) = next.map(|at| left.swap_remove(at)) else { break };
            *begun.entry(first_word(next.name)).or_default() += 1;
            best.push(next.name);
        }
        best
    }
}

fn first_word(name: &str) -> &str {
    name.split(['_', '-']).find(|word| !word.is_empty()).unwrap_or(name)
}
