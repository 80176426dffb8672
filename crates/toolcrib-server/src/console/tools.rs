//! `/tools`: pages of all tools, with the same search as for agents, filters and sorting.
//!
//! The list is computed on a blocking thread for each request: filter, search, sort, then cut out one page. Rows are
//! built for that page alone.

mod filters;
mod row;

use std::collections::{BTreeSet, HashMap};

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use toolcrib::catalog::search::Query;
use toolcrib::catalog::{ToolRef, View};
use toolcrib::registry::{Stats, ToolStats};

use super::page::{NavItem, PageContext};
use super::text::{format_count, format_number};
use crate::auth::AuthenticatedClient;
use crate::state::AppState;
use filters::{SortOrder, ToolFilters, UsageFilter};
use row::{ToolRow, render_table};

pub(super) use row::{ListedHints, verdict_badge};

/// Rows per page. Building a row parses the definition of the tool.
const TOOLS_PER_PAGE: usize = 50;
/// Maximum number of search hits on all pages. Hits beyond it are counted, not listed.
const MAX_SEARCH_HITS: usize = 200;

/// Renders the page.
pub(super) async fn show(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    RawQuery(query): RawQuery,
) -> Markup {
    let context = PageContext { app: &app, client: &client };
    let filters = ToolFilters::parse(query.as_deref().unwrap_or_default());
    let view = context.catalog_view();
    let sources = context.sources();
    let stats = app.registry.statistics_for(&client.principal).totals();
    // The first search builds the index, and tools are parsed for their hints: too slow for an async thread.
    let search_filters = filters.clone();
    let search_task = tokio::task::spawn_blocking(move || ToolMatches::search(&view, &search_filters, &stats));
    // A failed task gives an empty list; it fails only if rendering panics or the runtime shuts down.
    let matches = search_task.await.unwrap_or_default();
    // Starts the token count if necessary; the rows show the counts known so far.
    let is_counted = app.activity.token_costs.get_or_request(&context.catalog_view()).is_some();
    let kinds: BTreeSet<&str> = sources.iter().map(|source| source.kind.as_str()).collect();
    let content = html! {
        header.head { h1 { "Tools" } }
        (filters.render_form(&sources.iter().map(|source| source.id.as_str()).collect::<Vec<_>>(), &kinds))
        div id="found" {
            p.faint.result-count id="found-count" role="status" {
                (matches.describe_count(&filters))
                @if !is_counted && !matches.rows.is_empty() { span data-pending { " · counting tokens…" } }
            }
            @if matches.rows.is_empty() && matches.listed > 0 { (render_page_out_of_range(&filters, matches.listed)) }
            @else if matches.rows.is_empty() { (matches.render_empty(&filters, sources.is_empty())) }
            @else { (render_table(&matches.rows)) (render_pagination(&filters, matches.listed)) }
        }
    };
    context.render_page(NavItem::Tools, "Tools", content)
}

/// Result of filtering and searching.
#[derive(Debug, Default)]
struct ToolMatches {
    /// Rows of the current page.
    rows: Vec<ToolRow>,
    /// Number of tools on all pages.
    listed: usize,
    /// Number of all matches, of which a search lists at most [`MAX_SEARCH_HITS`].
    total: usize,
    /// Suggestion of the search when it found nothing.
    hint: Option<String>,
}

impl ToolMatches {
    /// Finds the tools that match, sorts them and renders the rows of one page.
    fn search(view: &View, filters: &ToolFilters, stats: &Stats) -> ToolMatches {
        let stats_by_name: HashMap<&str, &ToolStats> =
            stats.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let tool_stats = |tool: &ToolRef<'_>| stats_by_name.get(tool.name().as_str()).copied();
        let mut hint = None;
        let mut search_total = 0;
        // Three ways to the candidates: all tools, disabled ones by name, or the search of the agents.
        let mut tools: Vec<ToolRef<'_>> = if filters.query.is_empty() {
            view.listed_tools().collect()
        } else if filters.shows_disabled() {
            // The search index has only tools that agents can see, so disabled ones are matched by name.
            view.listed_tools().filter(|tool| filters.matches_name(tool)).collect()
        } else {
            // With further filters the search is unlimited: hits that are filtered out must not displace others.
            let limit = if filters.has_post_search_filters() { 0 } else { MAX_SEARCH_HITS };
            let query = Query { source: filters.source.clone(), ..Query::new(&filters.query) }.with_limit(limit);
            let results = view.search(&query);
            hint = results.hint;
            search_total = results.total;
            // For agents, identical tools share a hit; here each gets a row.
            let names = results.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
            names.filter_map(|name| view.find(name.as_str()).ok()).collect()
        };
        tools.retain(|tool| {
            // A search already filtered by source; filtering again is harmless.
            filters.matches(tool) && filters.usage.matches(tool_stats(tool).is_some_and(|stats| stats.calls > 0))
        });
        // A limited search still counts all matches.
        let total = if tools.len() >= MAX_SEARCH_HITS && !filters.has_post_search_filters() {
            search_total
        } else {
            tools.len()
        };
        if !filters.query.is_empty() {
            tools.truncate(MAX_SEARCH_HITS);
        }
        let token_count = |tool: &ToolRef<'_>| {
            tool.catalog_source.segment.has_token_counts().then(|| tool.catalog_source.segment.token_count(tool.entry))
        };
        // The sorts are stable, so equal tools stay in the order of relevance or name.
        match filters.order {
            SortOrder::Best => {}
            // Tools without a count yet are last.
            SortOrder::Cost => tools.sort_by_key(|tool| std::cmp::Reverse(token_count(tool))),
            SortOrder::Calls => tools.sort_by_key(|tool| std::cmp::Reverse(tool_stats(tool).map(|stats| stats.calls))),
            SortOrder::LastUsed => {
                tools.sort_by_key(|tool| std::cmp::Reverse(tool_stats(tool).and_then(|stats| stats.last_called)))
            }
        }
        // Counted before the page is cut out, for the number of pages.
        let listed = tools.len();
        let page = tools.into_iter().skip((filters.page - 1) * TOOLS_PER_PAGE).take(TOOLS_PER_PAGE);
        ToolMatches {
            rows: page.map(|tool| ToolRow::from_tool(&tool, token_count(&tool), tool_stats(&tool))).collect(),
            listed,
            total: total.max(listed),
            hint,
        }
    }

    /// Describes how many tools match, for the line above the table.
    fn describe_count(&self, filters: &ToolFilters) -> String {
        let count = match (filters.query.is_empty(), self.total) {
            (true, total) => format_count(total, "tool"),
            (false, total) if total > self.listed => {
                format!("The best {} of {}", format_number(self.listed as u64), format_count(total, "match"))
            }
            (false, total) if filters.order == SortOrder::Best && total > 1 => {
                format!("{}, best first", format_count(total, "match"))
            }
            (false, total) => format_count(total, "match"),
        };
        let unused = if filters.usage == UsageFilter::Never { " never called" } else { "" };
        format!("{count}{unused}")
    }

    /// Renders why the list is empty.
    fn render_empty(&self, filters: &ToolFilters, no_sources: bool) -> Markup {
        html! {
            div.empty {
                @if no_sources {
                    p { "There are no tools because there are no sources. " a href="/sources#add" { "Add one" } "." }
                }
                @else if let Some(hint) = &self.hint { p { (hint) } }
                @else if filters.has_filters() { p { "No tool matches these filters. " a href="/tools" { "Show all" } "." } }
                @else { p { "No tools are known yet: " a href="/sources" { "refresh a source" } "." } }
            }
        }
    }
}

/// Returns the number of the last page.
fn last_page(listed: usize) -> usize {
    listed.div_ceil(TOOLS_PER_PAGE).max(1)
}

/// Renders that the requested page does not exist, as with an old bookmark or an edited URL.
fn render_page_out_of_range(filters: &ToolFilters, listed: usize) -> Markup {
    let last = last_page(listed);
    html! {
        div.empty {
            p {
                "There is no page " (format_number(filters.page as u64)) ": "
                @if last == 1 { "all tools are on the " a href=(filters.page_url(1)) { "first page" } "." }
                @else {
                    "go to the " a href=(filters.page_url(1)) { "first page" } " or to the last, "
                    a href=(filters.page_url(last)) { "page " (format_number(last as u64)) } "."
                }
            }
        }
    }
}

/// Renders links to the previous and the next page.
fn render_pagination(filters: &ToolFilters, listed: usize) -> Markup {
    let last = last_page(listed);
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages of the list" {
                @if filters.page > 1 { a href=(filters.page_url(filters.page - 1)) rel="prev" { "Previous" } }
                span { "Page " (format_number(filters.page as u64)) " of " (format_number(last as u64)) }
                @if filters.page < last { a href=(filters.page_url(filters.page + 1)) rel="next" { "Next" } }
            }
        }
    }
}
