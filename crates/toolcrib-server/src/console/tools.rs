//! `/tools`: every tool, found by the search that agents use, narrowed by filters, a page at a time.

mod filters;
mod row;

use std::collections::{BTreeSet, HashMap};

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use toolcrib::core::catalog::{ToolRef, View};
use toolcrib::core::search::Query;
use toolcrib::registry::{Stats, ToolStats};

use super::page::{NavItem, PageContext};
use super::text::{format_count, format_number};
use crate::auth::Principal;
use crate::state::AppState;
use filters::{SortOrder, ToolFilters, UsageFilter};
use row::{ToolRow, render_table};

pub(super) use row::{EffectHints, verdict_badge};

const TOOLS_PER_PAGE: usize = 50;
/// So many hits of a search are looked at; nobody reads on.
const MAX_SEARCH_HITS: usize = 200;

pub(super) async fn show(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    RawQuery(query): RawQuery,
) -> Markup {
    let context = PageContext { app: &app, principal: &principal };
    let asked = ToolFilters::parse(query.as_deref().unwrap_or_default());
    let view = context.catalog_view();
    let (filters, sources) = (asked.clone(), app.registry.sources());
    let stats = app.registry.stats();
    // Postings are built by the first search, and tools are parsed for their hints: others want to be answered too.
    let finding = tokio::task::spawn_blocking(move || ToolMatches::search(&view, &filters, &stats));
    let found = finding.await.unwrap_or_default();
    // Asked for so that counting begins; rows say what is known.
    let counted_all = app.activity.token_costs.get_or_request(&app.registry).is_some();
    let kinds: BTreeSet<&str> = sources.iter().map(|source| source.kind.as_str()).collect();
    let content = html! {
        header.head { h1 { "Tools" } }
        (asked.render_form(&sources.iter().map(|source| source.id.as_str()).collect::<Vec<_>>(), &kinds))
        div id="found" {
            p.faint.result-count id="found-count" role="status" {
                (found.describe_count(&asked))
                @if !counted_all && !found.rows.is_empty() { span data-pending { " · counting tokens…" } }
            }
            @if found.rows.is_empty() && found.listed > 0 { (render_page_out_of_range(&asked, found.listed)) }
            @else if found.rows.is_empty() { (found.render_empty(&asked, sources.is_empty())) }
            @else { (render_table(&found.rows)) (render_pagination(&asked, found.listed)) }
        }
    };
    context.render_page(NavItem::Tools, "Tools", content)
}

#[derive(Debug, Default)]
struct ToolMatches {
    rows: Vec<ToolRow>,
    /// How many there are on all pages, and how many more a search found.
    listed: usize,
    total: usize,
    hint: Option<String>,
}

impl ToolMatches {
    fn search(view: &View, asked: &ToolFilters, stats: &Stats) -> ToolMatches {
        let calls: HashMap<&str, &ToolStats> = stats.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let count = |tool: &ToolRef<'_>| calls.get(tool.name().as_str()).copied();
        let (mut hint, mut matching) = (None, 0);
        let mut tools: Vec<ToolRef<'_>> = match asked.query.is_empty() {
            true => view.listed_tools().collect(),
            // Agents are offered none of these, so that their search does not know them.
            false if asked.shows_disabled() => view.listed_tools().filter(|tool| asked.matches_name(tool)).collect(),
            false => {
                // What filters leave out must not take the place of what they leave.
                let limit = if asked.has_post_search_filters() { 0 } else { MAX_SEARCH_HITS };
                let query = Query { source: asked.source.clone(), ..Query::new(&asked.query) }.with_limit(limit);
                let found = view.search(&query);
                (hint, matching) = (found.hint, found.total);
                // Agents are told of tools that are all alike in one line; here each has its own.
                let names = found.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
                names.filter_map(|name| view.catalog.find(name.as_str()).ok()).collect()
            }
        };
        tools.retain(|tool| {
            asked.matches(tool) && asked.usage.matches(count(tool).is_some_and(|count| count.calls > 0))
        });
        // What a search was asked for no more of, it counted all the same.
        let total =
            if tools.len() >= MAX_SEARCH_HITS && !asked.has_post_search_filters() { matching } else { tools.len() };
        if !asked.query.is_empty() {
            tools.truncate(MAX_SEARCH_HITS);
        }
        let cost = |tool: &ToolRef<'_>| {
            tool.catalog_source.segment.has_token_counts().then(|| tool.catalog_source.segment.token_count(tool.entry))
        };
        match asked.order {
            SortOrder::Best => {}
            SortOrder::Cost => tools.sort_by_key(|tool| std::cmp::Reverse(cost(tool))),
            SortOrder::Calls => tools.sort_by_key(|tool| std::cmp::Reverse(count(tool).map(|count| count.calls))),
            SortOrder::LastUsed => {
                tools.sort_by_key(|tool| std::cmp::Reverse(count(tool).and_then(|count| count.last_called)))
            }
        }
        let shown = tools.len();
        let page = tools.into_iter().skip((asked.page - 1) * TOOLS_PER_PAGE).take(TOOLS_PER_PAGE);
        ToolMatches {
            rows: page.map(|tool| ToolRow::from_tool(&tool, cost(&tool), count(&tool))).collect(),
            listed: shown,
            total: total.max(shown),
            hint,
        }
    }

    fn describe_count(&self, asked: &ToolFilters) -> String {
        let words = match (asked.query.is_empty(), self.total) {
            (true, total) => format_count(total, "tool"),
            (false, total) if total > self.listed => {
                format!("The best {} of {}", format_number(self.listed as u64), format_count(total, "match"))
            }
            (false, total) if asked.order == SortOrder::Best && total > 1 => {
                format!("{}, the best first", format_count(total, "match"))
            }
            (false, total) => format_count(total, "match"),
        };
        let unused = if asked.usage == UsageFilter::Never { " never called" } else { "" };
        format!("{words}{unused}")
    }

    fn render_empty(&self, asked: &ToolFilters, no_sources: bool) -> Markup {
        html! {
            div.empty {
                @if no_sources {
                    p { "There are no tools, for there are no sources. " a href="/sources#add" { "Add one" } "." }
                }
                @else if let Some(hint) = &self.hint { p { (hint) } }
                @else if asked.has_filters() { p { "No tool fits these filters. " a href="/tools" { "Show all" } "." } }
                @else { p { "No tools are known yet: " a href="/sources" { "refresh a source" } "." } }
            }
        }
    }
}

fn last_page(shown: usize) -> usize {
    shown.div_ceil(TOOLS_PER_PAGE).max(1)
}

/// An address that somebody kept, or edited.
fn render_page_out_of_range(asked: &ToolFilters, shown: usize) -> Markup {
    let last = last_page(shown);
    html! {
        div.empty {
            p {
                "There is no page " (format_number(asked.page as u64)) ": "
                @if last == 1 { "all of it is on the " a href=(asked.page_url(1)) { "first page" } "." }
                @else {
                    "go to the " a href=(asked.page_url(1)) { "first page" } " or to the last, "
                    a href=(asked.page_url(last)) { "page " (format_number(last as u64)) } "."
                }
            }
        }
    }
}

fn render_pagination(asked: &ToolFilters, shown: usize) -> Markup {
    let last = last_page(shown);
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages of the list" {
                @if asked.page > 1 { a href=(asked.page_url(asked.page - 1)) rel="prev" { "Previous" } }
                span { "Page " (format_number(asked.page as u64)) " of " (format_number(last as u64)) }
                @if asked.page < last { a href=(asked.page_url(asked.page + 1)) rel="next" { "Next" } }
            }
        }
    }
}
