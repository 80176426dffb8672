//! `/`: how everything stands, what needs somebody, what happened last.

use std::collections::{BTreeMap, HashSet};

use axum::Extension;
use axum::extract::State;
use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::registry::{SourceView, Stats};

use super::happened::moments;
use super::page::{Frame, Here};
use super::words::{ago_or, counted, grouped, kind_of, now, percent, standing, state};
use super::{attention, chart};
use crate::access::Visitor;
use crate::house::House;

/// Sources whose discoveries are drawn.
const MOST_DRAWN: usize = 5;
const MOST_COSTLY: usize = 3;
const MOST_SOURCES: usize = 30;
const MOST_MOMENTS: usize = 8;

pub(super) async fn show(State(house): State<House>, Extension(visitor): Extension<Visitor>) -> Markup {
    let frame = Frame { house: &house, visitor: &visitor };
    let sources = house.registry.sources();
    let content = if sources.is_empty() { welcome() } else { overview(&frame, &sources) };
    frame.page(Here::Overview, "Overview", content)
}

fn overview(frame: &Frame<'_>, sources: &[SourceView]) -> Markup {
    let house = frame.house;
    let stats = house.registry.stats();
    let drawn = sources.iter().map(|source| (source.id.to_string(), house.activity.runs(&source.id)));
    let mut drawn: Vec<_> = drawn.filter(|(_, runs)| !runs.is_empty()).collect();
    drawn.sort_by_key(|(_, runs)| std::cmp::Reverse(runs.last().map(|run| run.elapsed_ms)));
    drawn.truncate(MOST_DRAWN);
    let recent = house.activity.moments(|_| true, MOST_MOMENTS);
    html! {
        header.head { h1 { "Overview" } }
        (numbers(frame, sources, &stats))
        (attention::undiscovered(frame, sources))
        (attention::list(sources))
        div.columns {
            section.card aria-labelledby="calls-title" {
                h2 id="calls-title" { "Calls, last hour" }
                (chart::minutes(&house.activity.minutes(now())))
            }
            section.card aria-labelledby="tokens-title" {
                h2 id="tokens-title" { "Tokens an agent is shown" }
                @match house.activity.costs.of(&house.registry) {
                    Some(costs) => {
                        (chart::against(costs.tokens_full, costs.tokens))
                        h3 { "The costliest sources" }
                        (chart::parts(&by_source(frame), costs.tokens_full))
                    }
                    None => { p.faint data-pending { "Being counted…" } }
                }
            }
            @if !drawn.is_empty() {
                section.card aria-labelledby="durations-title" {
                    h2 id="durations-title" { "Last discovery took" }
                    (chart::durations(&drawn))
                }
            }
        }
        section aria-labelledby="sources-title" {
            div.row { h2 id="sources-title" { "Sources" } a href="/sources" { "All sources" } }
            (table(house, sources))
        }
        section aria-labelledby="recent-title" {
            div.row { h2 id="recent-title" { "Recent" } a href="/activity" { "All activity" } }
            @if recent.is_empty() { p.empty { "Nothing has happened since this server started." } }
            @else { (moments(&recent)) }
        }
    }
}

/// The sources that cost most, with their tokens.
fn by_source(frame: &Frame<'_>) -> Vec<(String, usize)> {
    let view = frame.view();
    let mut costs: BTreeMap<&SourceId, usize> = BTreeMap::new();
    for tool in view.offered().filter(|tool| tool.part.segment.is_counted()) {
        *costs.entry(tool.source()).or_default() += tool.part.segment.tokens(tool.entry) as usize;
    }
    let mut costs: Vec<(String, usize)> = costs.into_iter().map(|(id, tokens)| (id.to_string(), tokens)).collect();
    costs.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    costs.truncate(MOST_COSTLY);
    costs
}

fn numbers(frame: &Frame<'_>, sources: &[SourceView], stats: &Stats) -> Markup {
    let (house, view) = (frame.house, frame.view());
    let used: HashSet<&str> = stats.tools.iter().filter(|tool| tool.calls > 0).map(|tool| tool.name.as_str()).collect();
    let tools = view.listed().count();
    let unused = view.listed().filter(|tool| !used.contains(tool.name().as_str())).count();
    let costs = house.activity.costs.of(&house.registry);
    html! {
        dl.numbers {
            div {
                dt { "Sources" } dd { (grouped(sources.len() as u64)) }
                dd.note { (fare(sources)) }
            }
            div {
                dt { "Tools" }
                dd { (grouped(tools as u64)) }
                dd.note { (grouped(unused as u64)) " never called" }
            }
            div { dt { "Calls" } dd { (grouped(stats.calls)) } dd.note { (grouped(stats.errors)) " failed" } }
            @if let Some(costs) = costs {
                @let saved = costs.tokens_full.saturating_sub(costs.tokens);
                div { dt { "Tokens" } dd { (grouped(costs.tokens as u64)) }
                    dd.note {
                        @if saved > 0 { (percent(saved as u64, costs.tokens_full as u64)) " fewer than all definitions" }
                        @else { "all definitions are as short" }
                    } }
            } @else {
                div { dt { "Tokens" } dd { "…" } dd.note { "being counted" } }
            }
            div { dt { "Answered from cache" }
                dd { (stats.hit_ratio.map_or_else(|| "–".to_owned(), |_| percent(stats.hits, stats.hits + stats.misses))) }
                dd.note { (grouped(stats.hits)) " of " (grouped(stats.hits + stats.misses)) " requests" } }
        }
    }
}

/// How sources stand, in a few words.
fn fare(sources: &[SourceView]) -> String {
    let failing = sources.iter().filter(|source| source.enabled && source.last_error.is_some()).count();
    let disabled = sources.iter().filter(|source| !source.enabled).count();
    let parts = [(failing, "with errors"), (disabled, "disabled")].into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, words)| format!("{} {words}", grouped(count as u64))).collect();
    if parts.is_empty() { "all well".into() } else { parts.join(", ") }
}

fn table(house: &House, sources: &[SourceView]) -> Markup {
    html! {
        table.list {
            caption.unseen { "Sources and how they stand" }
            thead {
                tr {
                    th scope="col" { "Source" } th scope="col" { "State" } th scope="col" { "Kind" }
                    th.number scope="col" { "Tools" } th scope="col" { "Checked" }
                }
            }
            tbody {
                @for source in sources.iter().take(MOST_SOURCES) {
                    @let (tone, word) = standing(source, house.activity.stage(&source.id));
                    tr id=(format!("overview-{}", source.id)) {
                        th scope="row" {
                            a href=(format!("/sources/{}", source.id)) { (source.id) }
                            @if let Some(title) = &source.title { " " span.faint { (title) } }
                        }
                        td data-label="State" { (state(tone, &word)) }
                        td data-label="Kind" { (kind_of(source)) }
                        td.number data-label="Tools" { (grouped(source.tool_count as u64)) }
                        td data-label="Checked" { (ago_or(source.last_checked, "never")) }
                    }
                }
            }
        }
        @if sources.len() > MOST_SOURCES {
            p { a href="/sources" { (counted(sources.len() - MOST_SOURCES, "more source")) } }
        }
    }
}

/// The first page somebody sees.
fn welcome() -> Markup {
    html! {
        header.head { h1 { "Overview" } }
        div.welcome {
            h2 { "No sources yet" }
            p {
                "A source is where tools come from: an MCP server, an API with an OpenAPI document, or a workflow. "
                "Add the first and its tools appear here, counted, searchable and ready to try."
            }
            p { a.button href="/sources#add" { "Add a source" } }
            p.faint { "Or on the command line:" }
            pre { code { "toolcrib add files -- npx -y @modelcontextprotocol/server-filesystem .\ntoolcrib import" } }
        }
    }
}
