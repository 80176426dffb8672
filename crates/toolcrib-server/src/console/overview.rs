//! `/`: key figures, alerts, sources and recent activity.
//!
//! Alerts come before the charts, because they ask for an action.

use std::collections::{BTreeMap, HashSet};

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::registry::{SourceView, Stats};

use super::activity_list::render_entries;
use super::nodes::render_nodes;
use super::page::{NavItem, PageContext};
use super::text::{format_count, format_number, format_percent, source_kind, source_state, state_badge, time_ago_or};
use super::{alerts, chart};
use crate::auth::AuthorizedRequest;

/// Maximum number of sources in the chart of discovery durations.
const MAX_DURATION_BARS: usize = 5;
/// Maximum number of sources in the list of those with the most tokens.
const MAX_COSTLY_SOURCES: usize = 3;
/// Maximum number of sources in the table; the others are on `/sources`.
const MAX_SOURCE_ROWS: usize = 30;
/// Maximum number of entries of the activity.
const MAX_RECENT_ENTRIES: usize = 8;

/// Renders the page.
pub(super) async fn show(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> Markup {
    let context = PageContext { app: &app, client: &client };
    let sources = context.sources();
    let content = if sources.is_empty() { render_welcome(&context) } else { render_overview(&context, &sources) };
    context.render_page(NavItem::Overview, "Overview", content)
}

/// Renders the content for a server with sources. The chart of durations is left out without data.
fn render_overview(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    let app = context.app;
    let stats = app.registry.statistics_for(&context.client.principal).totals();
    let runs = sources.iter().filter_map(|source| Some((source.id.to_string(), app.activity.last_run(&source.id)?)));
    let mut slowest: Vec<_> = runs.collect();
    slowest.sort_by_key(|(_, run)| std::cmp::Reverse(run.elapsed_ms));
    slowest.truncate(MAX_DURATION_BARS);
    let recent = context.recent_entries(|_| true, MAX_RECENT_ENTRIES);
    html! {
        header.head { h1 { "Overview" } }
        (render_key_figures(context, sources, &stats))
        (alerts::render_undiscovered(context, sources))
        (alerts::render_failing_sources(sources))
        div.columns {
            section.card aria-labelledby="calls-title" {
                h2 id="calls-title" { "Calls, last hour" }
                (chart::render_calls_chart(&context.calls_in_last_hour()))
            }
            section.card aria-labelledby="tokens-title" {
                h2 id="tokens-title" { "Tokens shown to an agent" }
                @match app.activity.token_costs.get_or_request(&context.catalog_view()) {
                    Some(costs) => {
                        (chart::render_token_bars(costs.tokens_full, costs.tokens))
                        h3 { "Sources with the most tokens" }
                        (chart::render_share_bars(&costliest_sources(context), costs.tokens_full))
                    }
                    None => { p.faint data-pending { "Counting…" } }
                }
            }
            @if !slowest.is_empty() {
                section.card aria-labelledby="durations-title" {
                    h2 id="durations-title" { "Duration of the last discovery" }
                    (chart::render_duration_bars(&slowest))
                }
            }
        }
        section aria-labelledby="sources-title" {
            div.row { h2 id="sources-title" { "Sources" } a href="/sources" { "All sources" } }
            (render_table(context, sources))
        }
        (render_shared_nodes(context))
        section aria-labelledby="recent-title" {
            div.row { h2 id="recent-title" { "Recent" } a href="/activity" { "All activity" } }
            @if recent.is_empty() { p.empty { "No activity since this server started." } }
            @else { (render_entries(&recent)) }
        }
    }
}

/// Renders the nodes that share the store; nothing if the client may not know them.
fn render_shared_nodes(context: &PageContext<'_>) -> Markup {
    let registry = &context.app.registry;
    let nodes = registry.store().nodes_for(&context.client.principal);
    html! { @if let Some(nodes) = nodes { (render_nodes(&nodes, registry.node_label())) } }
}

/// Returns the sources with the most tokens. Sources whose tokens are not counted yet are left out.
fn costliest_sources(context: &PageContext<'_>) -> Vec<(String, usize)> {
    let view = context.catalog_view();
    let mut costs: BTreeMap<&SourceId, usize> = BTreeMap::new();
    for tool in view.offered_tools().filter(|tool| tool.catalog_source.segment.has_token_counts()) {
        *costs.entry(tool.source()).or_default() += tool.catalog_source.segment.token_count(tool.entry) as usize;
    }
    let mut costs: Vec<(String, usize)> = costs.into_iter().map(|(id, tokens)| (id.to_string(), tokens)).collect();
    costs.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    costs.truncate(MAX_COSTLY_SOURCES);
    costs
}

/// Renders the numbers at the top of the page.
fn render_key_figures(context: &PageContext<'_>, sources: &[SourceView], stats: &Stats) -> Markup {
    let app = context.app;
    let view = context.catalog_view();
    let used: HashSet<&str> = stats.tools.iter().filter(|tool| tool.calls > 0).map(|tool| tool.name.as_str()).collect();
    let tools = view.listed_tools().count();
    let unused = view.listed_tools().filter(|tool| !used.contains(tool.name().as_str())).count();
    let costs = app.activity.token_costs.get_or_request(&view);
    html! {
        dl.numbers {
            div {
                dt { "Sources" } dd { (format_number(sources.len() as u64)) }
                dd.note { (describe_health(sources)) }
            }
            div {
                dt { "Tools" }
                dd { (format_number(tools as u64)) }
                dd.note { (format_number(unused as u64)) " never called" }
            }
            div { dt { "Calls" } dd { (format_number(stats.calls)) } dd.note { (format_number(stats.errors)) " failed" } }
            @if let Some(costs) = costs {
                @let saved = costs.tokens_full.saturating_sub(costs.tokens);
                div { dt { "Tokens" } dd { (format_number(costs.tokens as u64)) }
                    dd.note {
                        @if saved > 0 { (format_percent(saved as u64, costs.tokens_full as u64)) " fewer than all definitions" }
                        @else { "no fewer than all definitions" }
                    } }
            } @else {
                div { dt { "Tokens" } dd { "…" } dd.note { "counting" } }
            }
            div { dt { "Answered from cache" }
                dd { (stats.hit_ratio.map_or_else(|| "–".to_owned(), |_| format_percent(stats.hits, stats.hits + stats.misses))) }
                dd.note { (format_number(stats.hits)) " of " (format_number(stats.hits + stats.misses)) " lookups" } }
        }
    }
}

/// Describes how many sources have errors or are disabled.
fn describe_health(sources: &[SourceView]) -> String {
    let failing = sources.iter().filter(|source| alerts::needs_attention(source)).count();
    let disabled = sources.iter().filter(|source| !source.enabled).count();
    let parts = [(failing, "with errors"), (disabled, "disabled")].into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, label)| format!("{} {label}", format_number(count as u64))).collect();
    if parts.is_empty() { "no errors".into() } else { parts.join(", ") }
}

/// Renders the first sources with their state.
fn render_table(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    html! {
        table.list {
            caption.unseen { "Sources and their state" }
            thead {
                tr {
                    th scope="col" { "Source" } th scope="col" { "State" } th scope="col" { "Kind" }
                    th.number scope="col" { "Tools" } th scope="col" { "Checked" }
                }
            }
            tbody {
                @for source in sources.iter().take(MAX_SOURCE_ROWS) {
                    @let (tone, label) = source_state(source, context.discovery_stage(&source.id));
                    tr id=(format!("overview-{}", source.id)) {
                        th scope="row" {
                            a href=(format!("/sources/{}", source.id)) { (source.id) }
                            @if let Some(title) = &source.title { " " span.faint { (title) } }
                        }
                        td data-label="State" { (state_badge(tone, &label)) }
                        td data-label="Kind" { (source_kind(source)) }
                        td.number data-label="Tools" { (format_number(source.tool_count as u64)) }
                        td data-label="Checked" { (time_ago_or(source.last_checked, "never")) }
                    }
                }
            }
        }
        @if sources.len() > MAX_SOURCE_ROWS {
            p { a href="/sources" { (format_count(sources.len() - MAX_SOURCE_ROWS, "more source")) } }
        }
    }
}

/// Renders the page of a server without sources.
fn render_welcome(context: &PageContext<'_>) -> Markup {
    html! {
        header.head { h1 { "Overview" } }
        div.welcome {
            h2 { "No sources yet" }
            p {
                "A source is where tools come from: an MCP server, an API with an OpenAPI document, or a workflow. "
                "Add one and its tools appear here, ready to search and try."
            }
            p { a.button href="/sources#add" { "Add a source" } }
            p.faint { "Or on the command line:" }
            pre { code { "toolcrib add files -- npx -y @modelcontextprotocol/server-filesystem .\ntoolcrib import" } }
        }
        (render_shared_nodes(context))
    }
}
