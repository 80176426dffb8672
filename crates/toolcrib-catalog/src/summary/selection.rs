//! Selects what a summary names: the order of the sources, and the most informative tools of each. Short names with few
//! words tend to be the general ones (`search`, `create_issue`), so they stand for the source.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use toolcrib_core::source::SourceId;

use crate::{ToolRef, View};

/// Maximum number of tools named per source.
pub(super) const MAX_NAMED_TOOLS: usize = 5;

/// A source as the summary presents it.
#[derive(Debug)]
pub(super) struct SummarySource<'a> {
    pub(super) id: &'a SourceId,
    /// Whether its tools have no prefix (built-in sources).
    pub(super) is_unprefixed: bool,
    /// Number of tools that agents see.
    pub(super) tool_count: usize,
    /// Names without prefix, most useful first; at most [`MAX_NAMED_TOOLS`].
    pub(super) best_names: Vec<&'a str>,
    /// Number of essential tools; sources with more come first.
    essential_count: usize,
}

/// A tool name with its sort key: essential tools first, then names with fewer words, then shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedName<'a> {
    essential: Reverse<bool>,
    words: usize,
    length: usize,
    name: &'a str,
}

/// Returns the sources that have tools, those with the most essential tools first, then by id.
pub(super) fn select_sources(view: &View) -> Vec<SummarySource<'_>> {
    let mut tools: BTreeMap<&SourceId, (bool, Vec<RankedName<'_>>)> = BTreeMap::new();
    for tool in view.offered_tools().filter(ToolRef::is_for_models) {
        let prefix = tool.catalog_source.segment.prefix();
        let name = tool.unprefixed_name();
        let words = name.split(['_', '-']).filter(|word| !word.is_empty()).count();
        let ranked_name = RankedName { essential: Reverse(view.is_essential(&tool)), words, length: name.len(), name };
        tools.entry(tool.source()).or_insert_with(|| (prefix.is_empty(), Vec::new())).1.push(ranked_name);
    }
    let summary_sources = tools.into_iter().map(|(id, (is_unprefixed, tools))| {
        let essential_count = tools.iter().filter(|tool| tool.essential.0).count();
        SummarySource {
            id,
            is_unprefixed,
            tool_count: tools.len(),
            best_names: pick_best_names(tools),
            essential_count,
        }
    });
    let mut sources: Vec<SummarySource<'_>> = summary_sources.collect();
    sources.sort_by_key(|source| Reverse(source.essential_count));
    sources
}

/// Picks the best names. Prefers names that start with another word than those picked before: `search`, `create` and
/// `delete` tell more about a source than three names with `get`.
fn pick_best_names(mut tools: Vec<RankedName<'_>>) -> Vec<&str> {
    let mut best: Vec<&str> = Vec::new();
    while best.len() < MAX_NAMED_TOOLS {
        let repetitions = |tool: &RankedName<'_>| {
            let word = first_word(tool.name);
            best.iter().filter(|name| first_word(name) == word).count()
        };
        let next = (0..tools.len())
            .min_by_key(|&position| (tools[position].essential, repetitions(&tools[position]), tools[position]));
        let Some(next) = next else { break };
        best.push(tools.swap_remove(next).name);
    }
    best
}

/// First word of an identifier in snake or kebab case.
fn first_word(name: &str) -> &str {
    name.split(['_', '-']).find(|word| !word.is_empty()).unwrap_or(name)
}
