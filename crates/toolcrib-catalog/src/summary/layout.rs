//! Fits a summary into its token budget. The token counts of whole lines add up, so each line is counted once and no
//! more lines are rendered than can fit; the complete text is counted at the end to be certain.
//!
//! A shorter header is chosen first, then fewer sources get a line, then a line names fewer tools, and at last sources
//! are only named.

use super::selection::{MAX_NAMED_TOOLS, SummarySource};
use crate::token_count;

/// Numbers of tools named per source, tried in this order: fewer if names are long.
const NAMED_TOOL_COUNTS: [usize; 3] = [MAX_NAMED_TOOLS, 3, 1];

/// Texts for an empty catalogue, longest first. Sources may not have been discovered yet, so the text tells agents to
/// try.
const EMPTY_CATALOG_TEXTS: [&str; 2] = [
    "No tools are known yet. Tools will be discovered when they are first needed: \
     ask search_tools(query) for what you want to do, and again a little later.",
    "Tools will be discovered when they are first needed.",
];

/// Renders the summary. Returns an empty text if not even the shortest header fits.
pub(super) fn render_text(sources: &[SummarySource<'_>], budget: usize) -> String {
    let headers = match sources {
        [] => EMPTY_CATALOG_TEXTS.map(str::to_owned).to_vec(),
        _ => header_variants(sources),
    };
    // Prefer a header within a third of the budget, to leave room for the sources.
    let within = |max_tokens: usize| headers.iter().find(|header| token_count::count(header) <= max_tokens);
    let Some(header) = within(budget / 3).or_else(|| within(budget)) else { return String::new() };
    let mut lines = vec![header.clone()];
    if !sources.is_empty() {
        lines.extend(source_lines(sources, budget - token_count::count(header)));
    }
    // Safety net: token counts of lines can differ from that of the joined text.
    loop {
        let text = lines.concat().trim_end().to_owned();
        if token_count::count(&text) <= budget {
            return text;
        }
        lines.pop();
    }
}

/// Headers from long to short.
fn header_variants(sources: &[SummarySource<'_>]) -> Vec<String> {
    let tools = pluralize(sources.iter().map(|source| source.tool_count).sum(), "tool");
    let from = pluralize(sources.len(), "source");
    // A real name shows the prefix better than a rule; built-in sources have none.
    let example = sources.iter().find(|source| !source.is_unprefixed);
    let example = example.and_then(|source| Some(format!("{}__{}", source.id, source.best_names.first()?)));
    let example = example.map(|name| format!(", for example {name}")).unwrap_or_default();
    vec![
        format!(
            "You can use {tools} from {from}. Their schemas are not loaded; use these three tools:
- search_tools(query) finds tools by what they do
- describe_tools(names) shows their arguments
- call_tool(name, arguments) calls one
Search before you say that something cannot be done. A tool is named source__tool{example}.
Some of the tools, by source:
"
        ),
        format!(
            "{tools} from {from}, named source__tool: use search_tools(query), describe_tools(names), call_tool(name, arguments).\n"
        ),
        format!("search_tools(query) finds {tools}, call_tool(name, arguments) calls them.\n"),
        "search_tools finds tools.\n".to_owned(),
    ]
}

/// Returns one line per source that fits, and a last line for the rest. Falls back to source names only.
fn source_lines(sources: &[SummarySource<'_>], max_tokens: usize) -> Vec<String> {
    for max_names in NAMED_TOOL_COUNTS {
        let lines = lines_within(sources, max_names, max_tokens);
        if !lines.is_empty() {
            return lines;
        }
    }
    vec![names_line(sources, max_tokens, "Sources: ", "").unwrap_or_default()]
}

/// Returns one line per source with up to `max_names` tools, within `max_tokens`.
fn lines_within(sources: &[SummarySource<'_>], max_names: usize, max_tokens: usize) -> Vec<String> {
    let mut lines = Vec::new();
    // As many sources as fit, in order.
    let mut used = 0;
    for source in sources {
        let line = source_line(source, max_names);
        let cost = token_count::count(&line);
        if used + cost > max_tokens {
            break;
        }
        used += cost;
        lines.push((line, cost));
    }
    if lines.len() < sources.len() {
        // Naming the remaining sources is worth more than listing tools of one more source: drop lines until half of
        // the budget, or what they need, is left for that.
        let share = max_tokens / 2;
        while let Some((_, cost)) = lines.last() {
            if used + token_count::count(&remaining_line(&sources[lines.len()..], share)) <= max_tokens {
                break;
            }
            used -= cost;
            lines.pop();
        }
        if !lines.is_empty() {
            lines.push((remaining_line(&sources[lines.len()..], max_tokens - used), 0));
        }
    }
    lines.into_iter().map(|(line, _)| line).collect()
}

/// Formats a source: `github: create_issue, search_code (+24 more)`.
fn source_line(source: &SummarySource<'_>, max_names: usize) -> String {
    let names = &source.best_names[..max_names.min(source.best_names.len())];
    let more = match source.tool_count - names.len() {
        0 => String::new(),
        more => format!(" (+{more} more)"),
    };
    let no_prefix = if source.is_unprefixed { " (no prefix)" } else { "" };
    format!("{}{no_prefix}: {}{more}\n", source.id, names.join(", "))
}

/// Formats the sources without a line: `and 90 other tools in airtable, arxiv and 3 more sources`, with as many names
/// as fit.
fn remaining_line(sources: &[SummarySource<'_>], max_tokens: usize) -> String {
    let tools = sources.iter().map(|source| source.tool_count).sum();
    let tools = format!("and {}", pluralize(tools, "other tool"));
    names_line(sources, max_tokens, &format!("{tools} in "), " source").unwrap_or_else(|| format!("{tools}\n"))
}

/// Formats `BEFORE a, b and 3 more NOUNs` with as many source names as fit; `None` if not even one fits. Sources
/// without a line are at least named, so that an agent knows what to search for.
fn names_line(sources: &[SummarySource<'_>], max_tokens: usize, before: &str, noun: &str) -> Option<String> {
    let render = |names: usize| {
        let shown: Vec<&str> = sources[..names].iter().map(|source| source.id.as_str()).collect();
        let more = match (sources.len() - names, noun) {
            (0, _) => String::new(),
            (more, "") => format!(" and {more} more"),
            (more, noun) => format!(" and {}", pluralize(more, &format!("more{noun}"))),
        };
        format!("{before}{}{more}\n", shown.join(", "))
    };
    // A name with its comma is at least two tokens. Binary search for the largest number of names that fits.
    let upper_bound = sources.len().min(max_tokens / 2);
    let mut fits = 0;
    let mut too_many = upper_bound + 1;
    while fits + 1 < too_many {
        let middle = fits.midpoint(too_many);
        if token_count::count(&render(middle)) <= max_tokens {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    (fits > 0).then(|| render(fits))
}

/// `1 tool`, `2 tools`.
fn pluralize(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
