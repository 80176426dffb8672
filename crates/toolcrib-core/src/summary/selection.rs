//! What is worth naming: the sources in their order, and the tools that say most about each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::catalog::View;
use crate::source::SourceId;

/// How many tools of a source are named at most.
pub(super) const MAX_NAMED_TOOLS: usize = 5;

/// A source as a summary sees it.
#[derive(Debug)]
pub(super) struct SummarySource<'a> {
    pub(super) id: &'a SourceId,
    /// Whether names stand without their source.
    pub(super) is_unprefixed: bool,
    /// How many tools it has.
    pub(super) tool_count: usize,
    /// Names without their prefix, the most useful first.
    pub(super) best_names: Vec<&'a str>,
    essential_count: usize,
}

/// Ordered by how much a name says: what is essential first, then what is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedName<'a> {
    essential: Reverse<bool>,
    words: usize,
    length: usize,
    name: &'a str,
}

/// Sources with the most essential tools first, then by name.
pub(super) fn select_sources(view: &View) -> Vec<SummarySource<'_>> {
    let essentials = view.catalog.essentials();
    let mut tools: BTreeMap<&SourceId, (bool, Vec<RankedName<'_>>)> = BTreeMap::new();
    for tool in view.offered_tools() {
        let (prefix, name) = (tool.catalog_source.segment.prefix(), tool.name().as_str());
        let name = name.strip_prefix(prefix).unwrap_or(name);
        let words = name.split(['_', '-']).filter(|word| !word.is_empty()).count();
        let named = RankedName { essential: Reverse(essentials.contains(&tool)), words, length: name.len(), name };
        tools.entry(tool.source()).or_insert_with(|| (prefix.is_empty(), Vec::new())).1.push(named);
    }
    let listed = tools.into_iter().map(|(id, (bare, tools))| {
        let essential = tools.iter().filter(|tool| tool.essential.0).count();
        SummarySource {
            id,
            is_unprefixed: bare,
            tool_count: tools.len(),
            best_names: pick_best_names(tools),
            essential_count: essential,
        }
    });
    let mut sources: Vec<SummarySource<'_>> = listed.collect();
    sources.sort_by_key(|source| Reverse(source.essential_count));
    sources
}

/// Among equals those are preferred that begin otherwise than the ones before: `search`, `create` and `delete` say more
/// than three that `get`.
fn pick_best_names(mut tools: Vec<RankedName<'_>>) -> Vec<&str> {
    let mut best: Vec<&str> = Vec::new();
    while best.len() < MAX_NAMED_TOOLS {
        let again = |tool: &RankedName<'_>| {
            let word = first_word(tool.name);
            best.iter().filter(|name| first_word(name) == word).count()
        };
        let next = (0..tools.len()).min_by_key(|&at| (tools[at].essential, again(&tools[at]), tools[at]));
        let Some(next) = next else { break };
        best.push(tools.swap_remove(next).name);
    }
    best
}

fn first_word(name: &str) -> &str {
    name.split(['_', '-']).find(|word| !word.is_empty()).unwrap_or(name)
}
