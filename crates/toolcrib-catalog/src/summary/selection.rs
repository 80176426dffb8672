//! Selects what a summary names: the sources, and their tools in order of importance. Essential tools come first. Among
//! the others, short names with few words tend to be the general ones (`search`, `create_issue`), so they stand for the
//! source.

use std::collections::{BTreeMap, HashMap};

use toolcrib_core::source::SourceId;

use crate::catalog::Importance;
use crate::{ToolRef, View};

/// A source as the summary presents it.
#[derive(Debug)]
pub(super) struct SummarySource<'a> {
    pub(super) id: &'a SourceId,
    /// Whether its tools have no prefix (built-in sources).
    pub(super) is_unprefixed: bool,
    /// Number of tools that agents see.
    pub(super) tool_count: usize,
    /// Names without prefix of the most important tools, in that order.
    pub(super) names: Vec<&'a str>,
    /// Number of `names` at the front that the configuration calls essential.
    pub(super) configured: usize,
    /// Number of `names` at the front that are essential, by configuration or by a pattern.
    pub(super) essential: usize,
}

/// A tool name with its sort key: important tools first, then names with fewer words, then shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedName<'a> {
    importance: Importance,
    words: usize,
    length: usize,
    name: &'a str,
}

/// Returns the sources that have tools, by id, with up to `max_names` names each.
pub(super) fn select_sources(view: &View, max_names: usize) -> Vec<SummarySource<'_>> {
    let mut tools: BTreeMap<&SourceId, (bool, Vec<RankedName<'_>>)> = BTreeMap::new();
    for tool in view.offered_tools().filter(ToolRef::is_for_models) {
        let prefix = tool.catalog_source.segment.prefix();
        let name = tool.unprefixed_name();
        let words = name.split(['_', '-']).filter(|word| !word.is_empty()).count();
        let ranked_name = RankedName { importance: view.importance(&tool), words, length: name.len(), name };
        tools.entry(tool.source()).or_insert_with(|| (prefix.is_empty(), Vec::new())).1.push(ranked_name);
    }
    let summary_sources = tools.into_iter().map(|(id, (is_unprefixed, tools))| {
        let tool_count = tools.len();
        let ranked_names = order_names(tools, max_names);
        let up_to = |importance| ranked_names.partition_point(|ranked_name| ranked_name.importance <= importance);
        SummarySource {
            id,
            is_unprefixed,
            tool_count,
            configured: up_to(Importance::Configured),
            essential: up_to(Importance::Pattern),
            names: ranked_names.iter().map(|ranked_name| ranked_name.name).collect(),
        }
    });
    summary_sources.collect()
}

/// Orders names of the same importance so that those come first that start with another word than the ones before:
/// `search`, `create` and `delete` tell more about a source than three names with `get`.
fn order_names(mut tools: Vec<RankedName<'_>>, max_names: usize) -> Vec<RankedName<'_>> {
    tools.sort_unstable();
    let mut repetitions: HashMap<&str, usize> = HashMap::new();
    let keyed = tools.into_iter().map(|tool| {
        let repetition = repetitions.entry(first_word(tool.name)).or_default();
        *repetition += 1;
        (tool.importance, *repetition, tool)
    });
    let mut keyed: Vec<(Importance, usize, RankedName<'_>)> = keyed.collect();
    keyed.sort_unstable();
    keyed.truncate(max_names);
    keyed.into_iter().map(|(_, _, tool)| tool).collect()
}

/// First word of an identifier in snake or kebab case.
fn first_word(name: &str) -> &str {
    name.split(['_', '-']).find(|word| !word.is_empty()).unwrap_or(name)
}
