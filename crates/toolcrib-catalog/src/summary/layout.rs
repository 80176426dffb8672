//! Fits a summary into its token budget: a header, the essential tools, and a line per source with as many names as fit.
//!
//! If all names fit, all are listed. Otherwise the essential tools get up to half of the room, and the sources take turns
//! in naming one tool more. Sources without room for a line are named together in the last one.
//!
//! Token counts of the parts of a line nearly add up, so each part is counted once and no more parts are rendered than
//! can fit; the complete text is counted at the end to be certain.

use std::collections::HashMap;

use super::selection::SummarySource;
use crate::token_count;

/// Minimum number of tokens that a name takes with its separator; bounds how many names are looked at.
pub(super) const MIN_NAME_TOKENS: usize = 2;

/// Texts for an empty catalogue, longest first. Sources may not have been discovered yet, so the text tells agents to
/// try.
const EMPTY_CATALOG_TEXTS: [&str; 2] = [
    "No tools are known yet. Tools will be discovered when they are first needed: \
     ask search_tools(query) for what you want to do, and again a little later.",
    "Tools will be discovered when they are first needed.",
];
/// Number of headers, from the longest, that tell how names are made up: the others are too short for a list of all
/// names.
const COMPLETE_HEADERS: usize = 2;

/// Renders the summary. Returns an empty text if not even the shortest header fits.
pub(super) fn render_text(sources: &[SummarySource<'_>], budget: usize) -> String {
    let headers = match sources {
        [] => EMPTY_CATALOG_TEXTS.map(str::to_owned).to_vec(),
        _ => header_variants(sources),
    };
    if let Some(text) = render_complete(sources, &headers, budget) {
        return text;
    }
    // Prefer a header within a third of the budget, to leave room for the sources.
    let within = |max_tokens: usize| headers.iter().find(|header| token_count::count(header) <= max_tokens);
    let Some(header) = within(budget / 3).or_else(|| within(budget)) else { return String::new() };
    let mut available = budget - token_count::count(header);
    // Token counts of parts can differ from that of the joined text; what is too much is taken from the room then.
    while available > 0 && !sources.is_empty() {
        let text = join(header, &layout_sections(sources, available));
        let tokens = token_count::count(&text);
        if tokens <= budget {
            return text;
        }
        // In larger steps than needed, so that a few are enough.
        available -= (tokens - budget).max(available / 8 + 1).min(available);
    }
    header.trim_end().to_owned()
}

/// Renders every name of every source, under the longest header that leaves room for it; `None` if none does.
fn render_complete(sources: &[SummarySource<'_>], headers: &[String], budget: usize) -> Option<String> {
    let names: usize = sources.iter().map(|source| source.tool_count).sum();
    // Saves the rendering of a catalogue that cannot fit.
    if names == 0 || names.saturating_mul(MIN_NAME_TOKENS) > budget {
        return None;
    }
    let sections = layout_sections(sources, usize::MAX);
    let texts = headers.iter().take(COMPLETE_HEADERS).map(|header| join(header, &sections));
    texts.into_iter().find(|text| token_count::count(text) <= budget)
}

fn join(header: &str, sections: &[String]) -> String {
    format!("{header}{}", sections.concat()).trim_end().to_owned()
}

/// Headers from long to short.
fn header_variants(sources: &[SummarySource<'_>]) -> Vec<String> {
    let tools = pluralize(sources.iter().map(|source| source.tool_count).sum(), "tool");
    let from = pluralize(sources.len(), "source");
    // A real name shows the prefix better than a rule; built-in sources have none.
    let example = essential_order(sources).into_iter().find(|source| !source.is_unprefixed);
    let example = example.and_then(|source| Some(format!("{}__{}", source.id, source.names.first()?)));
    let example = example.map(|name| format!(", for example {name}")).unwrap_or_default();
    vec![
        format!(
            "You can use {tools} from {from}. Their schemas are not loaded; use these three tools:
- search_tools(query) finds tools by what they do
- describe_tools(names) shows their arguments
- call_tool(name, arguments) calls one
Search before you say that something cannot be done. A tool is named source__tool{example}.
"
        ),
        format!(
            "{tools} from {from}, named source__tool: use search_tools(query), describe_tools(names), call_tool(name, arguments).\n"
        ),
        format!("search_tools(query) finds {tools}, call_tool(name, arguments) calls them.\n"),
        "search_tools finds tools.\n".to_owned(),
    ]
}

/// Sources in the order in which their essential tools are listed: those with configured ones first, then those with a
/// match of a pattern, each by id.
fn essential_order<'a, 's>(sources: &'s [SummarySource<'a>]) -> Vec<&'s SummarySource<'a>> {
    let mut ordered: Vec<&SummarySource<'_>> = sources.iter().collect();
    ordered.sort_by_key(|source| (source.configured == 0, source.essential == 0));
    ordered
}

/// Returns the lines after the header, within `max_tokens`.
fn layout_sections(sources: &[SummarySource<'_>], max_tokens: usize) -> Vec<String> {
    let ordered = essential_order(sources);
    let mut essential: Vec<SourceLine<'_>> = Vec::new();
    let has_essential = sources.iter().any(|source| source.essential > 0);
    let has_others = sources.iter().any(|source| source.essential < source.tool_count);
    let title = |text: &str| (format!("{text}\n"), token_count::count(text) + 1);
    let mut room = max_tokens;
    let mut lines: Vec<String> = Vec::new();
    if has_essential {
        let (title, cost) = title("Essential tools, by source:");
        let share = if has_others { room / 2 } else { room };
        let mut essential_room = share.saturating_sub(cost);
        // Configured tools of all sources come before what matches a pattern.
        let configured = ordered.iter().map(|source| SourceLine::new(source, 0..source.configured));
        essential = configured.collect();
        take_turns(&mut essential, &mut essential_room);
        for (line, source) in essential.iter_mut().zip(&ordered) {
            line.extend_to(&source.names[..source.essential]);
        }
        take_turns(&mut essential, &mut essential_room);
        let shown = essential.iter().filter(|line| line.shown > 0);
        let shown: Vec<String> = shown.map(|line| line.render()).collect();
        if !shown.is_empty() {
            room -= share.saturating_sub(essential_room);
            lines.push(title);
            lines.extend(shown);
        }
    }
    // Essential tools that had no room count as others.
    let shown_essentials: HashMap<&str, usize> = essential.iter().map(|line| (line.id, line.shown)).collect();
    let others = sources.iter().map(|source| {
        let shown = shown_essentials.get(source.id.as_str()).copied().unwrap_or_default();
        SourceLine { total: source.tool_count - shown, ..SourceLine::new(source, shown..source.names.len()) }
    });
    let mut others: Vec<SourceLine<'_>> = others.filter(|line| line.total > 0).collect();
    if others.is_empty() {
        return lines;
    }
    let (title, cost) = title(if lines.is_empty() { "Tools by source:" } else { "Other tools, by source:" });
    let listed = source_lines(&mut others, room.saturating_sub(cost));
    match listed {
        Some(listed) => {
            lines.push(title);
            lines.extend(listed);
        }
        None if lines.is_empty() => lines.extend(names_line(&others, room, "Sources: ", "")),
        None => lines.extend(remaining_line(&others, room)),
    }
    lines
}

/// Returns one line per source that fits, and a last line for the rest; `None` if not even one fits.
fn source_lines(lines: &mut [SourceLine<'_>], max_tokens: usize) -> Option<Vec<String>> {
    let mut room = max_tokens;
    let opened = lines.iter_mut().map(|line| line.show_next(&mut room)).take_while(|is_shown| *is_shown).count();
    let mut last_line = None;
    let mut shown = lines.len();
    if opened < lines.len() {
        // Naming the remaining sources is worth more than a tool of one more source: keep the lines within half of the
        // room, and use the other half for that.
        lines.iter_mut().for_each(|line| line.shown = 0);
        room = max_tokens / 2;
        shown = lines.iter_mut().map(|line| line.show_next(&mut room)).take_while(|is_shown| *is_shown).count();
        if shown == 0 {
            return None;
        }
        room += max_tokens - max_tokens / 2;
        last_line = remaining_line(&lines[shown..], room);
        room = room.saturating_sub(last_line.as_deref().map_or(0, token_count::count));
    }
    take_turns(&mut lines[..shown], &mut room);
    Some(lines[..shown].iter().map(|line| line.render()).chain(last_line).collect())
}

/// Names one tool more of each source, again and again, until nothing fits any more.
fn take_turns(lines: &mut [SourceLine<'_>], room: &mut usize) {
    let mut is_open = vec![true; lines.len()];
    while is_open.contains(&true) {
        for (line, is_open) in lines.iter_mut().zip(&mut is_open) {
            *is_open = *is_open && line.show_next(room);
        }
    }
}

/// The line of a source: `github: create_issue, search_code (+24 more)`.
#[derive(Debug)]
struct SourceLine<'a> {
    id: &'a str,
    is_unprefixed: bool,
    /// Names that may be shown, in order.
    names: Vec<&'a str>,
    /// Number of names that are shown.
    shown: usize,
    /// Number of tools that the line stands for; 0 if it does not tell how many are left out.
    total: usize,
}

impl<'a> SourceLine<'a> {
    fn new(source: &SummarySource<'a>, names: std::ops::Range<usize>) -> SourceLine<'a> {
        let names = source.names.get(names).unwrap_or_default().to_vec();
        SourceLine { id: source.id.as_str(), is_unprefixed: source.is_unprefixed, names, shown: 0, total: 0 }
    }

    /// Adds the names after those that the line has already.
    fn extend_to(&mut self, names: &[&'a str]) {
        // Names that had no room stay in front.
        let known = self.names.len();
        self.names.extend(names.iter().skip(known));
    }

    /// Shows one name more, if there is one and its tokens fit into the room, which they are taken from.
    fn show_next(&mut self, room: &mut usize) -> bool {
        let Some(name) = self.names.get(self.shown) else { return false };
        let text = if self.shown == 0 { self.render_names(&[name]) } else { format!(", {name}") };
        let more_cost = |more: usize| if more == 0 { 0 } else { token_count::count(&format_more(more)) };
        let hidden = self.total.saturating_sub(self.shown);
        // The number of tools left out is part of the first cost and given back with the last name.
        let refund = if self.shown == 0 { 0 } else { more_cost(hidden) };
        let cost = token_count::count(&text) + more_cost(hidden.saturating_sub(1));
        match room.saturating_add(refund).checked_sub(cost) {
            Some(rest) => {
                *room = rest;
                self.shown += 1;
                true
            }
            None => false,
        }
    }

    /// Renders the line; the number of tools that are not shown comes at the end.
    fn render(&self) -> String {
        let line = self.render_names(&self.names[..self.shown]);
        let more = self.total.saturating_sub(self.shown);
        if more == 0 { line } else { format!("{}{}\n", line.trim_end(), format_more(more)) }
    }

    fn render_names(&self, names: &[&str]) -> String {
        let no_prefix = if self.is_unprefixed { " (no prefix)" } else { "" };
        format!("{}{no_prefix}: {}\n", self.id, names.join(", "))
    }
}

fn format_more(more: usize) -> String {
    format!(" (+{more} more)")
}

/// Formats the sources without a line: `and 90 other tools in airtable, arxiv and 3 more sources`, with as many names
/// as fit; `None` if nothing does.
fn remaining_line(lines: &[SourceLine<'_>], max_tokens: usize) -> Option<String> {
    let tools = lines.iter().map(|line| line.total).sum();
    let tools = format!("and {}", pluralize(tools, "other tool"));
    let with_names = names_line(lines, max_tokens, &format!("{tools} in "), " source");
    with_names.or_else(|| Some(format!("{tools}\n")).filter(|line| token_count::count(line) <= max_tokens))
}

/// Formats `BEFORE a, b and 3 more NOUNs` with as many source names as fit; `None` if not even one fits. Sources
/// without a line are at least named, so that an agent knows what to search for.
fn names_line(lines: &[SourceLine<'_>], max_tokens: usize, before: &str, noun: &str) -> Option<String> {
    let render = |names: usize| {
        let shown: Vec<&str> = lines[..names].iter().map(|line| line.id).collect();
        let more = match (lines.len() - names, noun) {
            (0, _) => String::new(),
            (more, "") => format!(" and {more} more"),
            (more, noun) => format!(" and {}", pluralize(more, &format!("more{noun}"))),
        };
        format!("{before}{}{more}\n", shown.join(", "))
    };
    // Binary search for the largest number of names that fits.
    let upper_bound = lines.len().min(max_tokens / MIN_NAME_TOKENS);
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
