//! Fitting a summary into its budget. Tokens of whole lines add up, so a line is counted once and only as many are made
//! as can fit; the whole is counted at the end all the same.

use super::selection::{MAX_NAMED_TOOLS, SummarySource};
use crate::tokens;

/// How many tools of a source are named: what is useful, and what is left of that where names are long.
const NAMED_TOOL_COUNTS: [usize; 3] = [MAX_NAMED_TOOLS, 3, 1];

const EMPTY_CATALOG_TEXTS: [&str; 2] = [
    "No tools are known yet. Tools will be discovered when they are first needed: \
     ask search_tools(query) for what you want to do, and again a little later.",
    "Tools will be discovered when they are first needed.",
];

/// The text; empty when the budget is too small to say anything.
pub(super) fn render_text(sources: &[SummarySource<'_>], budget: usize) -> String {
    let heads = match sources {
        [] => EMPTY_CATALOG_TEXTS.map(str::to_owned).to_vec(),
        _ => header_variants(sources),
    };
    // The sources are what is asked for, so the head is short where a long one would take their place.
    let within = |most: usize| heads.iter().find(|head| tokens::count(head) <= most);
    let Some(head) = within(budget / 3).or_else(|| within(budget)) else { return String::new() };
    let mut lines = vec![head.clone()];
    if !sources.is_empty() {
        lines.extend(source_lines(sources, budget - tokens::count(head)));
    }
    loop {
        let text = lines.concat().trim_end().to_owned();
        if tokens::count(&text) <= budget {
            return text;
        }
        lines.pop();
    }
}

/// From the longest to the shortest.
fn header_variants(sources: &[SummarySource<'_>]) -> Vec<String> {
    let tools = pluralize(sources.iter().map(|source| source.tool_count).sum(), "tool");
    let from = pluralize(sources.len(), "source");
    let example = sources.iter().find(|source| !source.is_unprefixed);
    let example = example.and_then(|source| Some(format!("{}__{}", source.id, source.best_names.first()?)));
    let example = example.map(|name| format!(", for example {name}")).unwrap_or_default();
    vec![
        format!(
            "You can use {tools} from {from}. Their schemas are not loaded; three tools lead to them:
- search_tools(query) finds tools by what they do
- describe_tools(names) shows their arguments
- call_tool(name, arguments) calls one
Search before you say that something cannot be done. A tool is named source__tool{example}.
Some of what there is, by source:
"
        ),
        format!(
            "{tools} from {from}, named source__tool: use search_tools(query), describe_tools(names), call_tool(name, arguments).\n"
        ),
        format!("search_tools(query) finds {tools}, call_tool(name, arguments) calls them.\n"),
        "search_tools finds tools.\n".to_owned(),
    ]
}

/// A line for each source that fits, and one for those that do not.
fn source_lines(sources: &[SummarySource<'_>], room: usize) -> Vec<String> {
    for most in NAMED_TOOL_COUNTS {
        let lines = lines_within(sources, most, room);
        if !lines.is_empty() {
            return lines;
        }
    }
    vec![names_line(sources, room, "Sources: ", "").unwrap_or_default()]
}

fn lines_within(sources: &[SummarySource<'_>], most: usize, room: usize) -> Vec<String> {
    let (mut lines, mut used) = (Vec::new(), 0);
    for source in sources {
        let line = source_line(source, most);
        let cost = tokens::count(&line);
        if used + cost > room {
            break;
        }
        used += cost;
        lines.push((line, cost));
    }
    if lines.len() < sources.len() {
        // To know that a source exists is worth more than the tools of yet another: half of the room is theirs.
        let share = room / 2;
        while let Some((_, cost)) = lines.last() {
            if used + tokens::count(&remaining_line(&sources[lines.len()..], share)) <= room {
                break;
            }
            used -= cost;
            lines.pop();
        }
        if !lines.is_empty() {
            lines.push((remaining_line(&sources[lines.len()..], room - used), 0));
        }
    }
    lines.into_iter().map(|(line, _)| line).collect()
}

/// `github: create_issue, search_code (+24 more)`.
fn source_line(source: &SummarySource<'_>, most: usize) -> String {
    let best = &source.best_names[..most.min(source.best_names.len())];
    let more = match source.tool_count - best.len() {
        0 => String::new(),
        more => format!(" (+{more} more)"),
    };
    let bare = if source.is_unprefixed { " (no prefix)" } else { "" };
    format!("{}{bare}: {}{more}\n", source.id, best.join(", "))
}

/// `and 90 other tools in airtable, arxiv and 3 more sources`, with as many names as fit.
fn remaining_line(sources: &[SummarySource<'_>], room: usize) -> String {
    let tools = sources.iter().map(|source| source.tool_count).sum();
    let tools = format!("and {}", pluralize(tools, "other tool"));
    names_line(sources, room, &format!("{tools} in "), " source").unwrap_or_else(|| format!("{tools}\n"))
}

/// `BEFORE a, b and 3 more WHATs`; nothing when not even one name fits.
fn names_line(sources: &[SummarySource<'_>], room: usize, before: &str, what: &str) -> Option<String> {
    let whole = |names: usize| {
        let shown: Vec<&str> = sources[..names].iter().map(|source| source.id.as_str()).collect();
        let more = match (sources.len() - names, what) {
            (0, _) => String::new(),
            (more, "") => format!(" and {more} more"),
            (more, what) => format!(" and {}", pluralize(more, &format!("more{what}"))),
        };
        format!("{before}{}{more}\n", shown.join(", "))
    };
    // A name with its comma is at least two tokens.
    let most = sources.len().min(room / 2);
    let (mut fits, mut too_many) = (0, most + 1);
    while fits + 1 < too_many {
        let middle = fits.midpoint(too_many);
        match tokens::count(&whole(middle)) <= room {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    (fits > 0).then(|| whole(fits))
}

fn pluralize(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
