//! `/tools`: every tool, found by the search that agents use, narrowed by filters, a page at a time.

mod asked;
mod row;

use std::collections::{BTreeSet, HashMap};

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use toolcrib::core::catalog::{ToolRef, View};
use toolcrib::core::search::Query;
use toolcrib::registry::{Stats, ToolStats};

use super::page::{Frame, Here};
use super::words::{counted, grouped};
use crate::access::Visitor;
use crate::house::House;
use asked::{Asked, Order, Used};
use row::{Row, table};

pub(super) use row::{Hints, verdict};

const A_PAGE: usize = 50;
/// So many hits of a search are looked at; nobody reads on.
const MOST_HITS: usize = 200;

pub(super) async fn show(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    RawQuery(query): RawQuery,
) -> Markup {
    let frame = Frame { house: &house, visitor: &visitor };
    let asked = Asked::read(query.as_deref().unwrap_or_default());
    let view = frame.view();
    let (filters, sources) = (asked.clone(), house.registry.sources());
    let stats = house.registry.stats();
    // Postings are built by the first search, and tools are parsed for their hints: others want to be answered too.
    let finding = tokio::task::spawn_blocking(move || Found::of(&view, &filters, &stats));
    let found = finding.await.unwrap_or_default();
    // Asked for so that counting begins; rows say what is known.
    let counted_all = house.activity.costs.of(&house.registry).is_some();
    let kinds: BTreeSet<&str> = sources.iter().map(|source| source.kind.as_str()).collect();
    let content = html! {
        header.head { h1 { "Tools" } }
        (asked.form(&sources.iter().map(|source| source.id.as_str()).collect::<Vec<_>>(), &kinds))
        div id="found" {
            p.faint.result-count id="found-count" role="status" {
                (found.words(&asked))
                @if !counted_all && !found.rows.is_empty() { span data-pending { " · counting tokens…" } }
            }
            @if found.rows.is_empty() && found.shown > 0 { (beyond(&asked, found.shown)) }
            @else if found.rows.is_empty() { (found.nothing(&asked, sources.is_empty())) }
            @else { (table(&found.rows)) (pages(&asked, found.shown)) }
        }
    };
    frame.page(Here::Tools, "Tools", content)
}

#[derive(Debug, Default)]
struct Found {
    rows: Vec<Row>,
    /// How many there are on all pages, and how many more a search found.
    shown: usize,
    total: usize,
    hint: Option<String>,
}

impl Found {
    fn of(view: &View, asked: &Asked, stats: &Stats) -> Found {
        let calls: HashMap<&str, &ToolStats> = stats.tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let count = |tool: &ToolRef<'_>| calls.get(tool.name().as_str()).copied();
        let (mut hint, mut matching) = (None, 0);
        let mut tools: Vec<ToolRef<'_>> = match asked.query.is_empty() {
            true => view.listed().collect(),
            // Agents are offered none of these, so that their search does not know them.
            false if asked.among_disabled() => view.listed().filter(|tool| asked.is_named(tool)).collect(),
            false => {
                // What filters leave out must not take the place of what they leave.
                let limit = if asked.narrows_more() { 0 } else { MOST_HITS };
                let query = Query { source: asked.source.clone(), ..Query::new(&asked.query) }.limited(limit);
                let found = view.search(&query);
                (hint, matching) = (found.hint, found.total);
                // Agents are told of tools that are all alike in one line; here each has its own.
                let names = found.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
                names.filter_map(|name| view.catalog.find(name.as_str()).ok()).collect()
            }
        };
        tools.retain(|tool| asked.fits(tool) && asked.used.fits(count(tool).is_some_and(|count| count.calls > 0)));
        // What a search was asked for no more of, it counted all the same.
        let total = if tools.len() >= MOST_HITS && !asked.narrows_more() { matching } else { tools.len() };
        if !asked.query.is_empty() {
            tools.truncate(MOST_HITS);
        }
        let cost = |tool: &ToolRef<'_>| tool.part.segment.is_counted().then(|| tool.part.segment.tokens(tool.entry));
        match asked.order {
            Order::Best => {}
            Order::Cost => tools.sort_by_key(|tool| std::cmp::Reverse(cost(tool))),
            Order::Calls => tools.sort_by_key(|tool| std::cmp::Reverse(count(tool).map(|count| count.calls))),
            Order::Used => tools.sort_by_key(|tool| std::cmp::Reverse(count(tool).and_then(|count| count.last_called))),
        }
        let shown = tools.len();
        let page = tools.into_iter().skip((asked.page - 1) * A_PAGE).take(A_PAGE);
        Found {
            rows: page.map(|tool| Row::of(&tool, cost(&tool), count(&tool))).collect(),
            shown,
            total: total.max(shown),
            hint,
        }
    }

    fn words(&self, asked: &Asked) -> String {
        let words = match (asked.query.is_empty(), self.total) {
            (true, total) => counted(total, "tool"),
            (false, total) if total > self.shown => {
                format!("The best {} of {}", grouped(self.shown as u64), counted(total, "match"))
            }
            (false, total) if asked.order == Order::Best && total > 1 => {
                format!("{}, the best first", counted(total, "match"))
            }
            (false, total) => counted(total, "match"),
        };
        let unused = if asked.used == Used::Never { " never called" } else { "" };
        format!("{words}{unused}")
    }

    fn nothing(&self, asked: &Asked, no_sources: bool) -> Markup {
        html! {
            div.empty {
                @if no_sources {
                    p { "There are no tools, for there are no sources. " a href="/sources#add" { "Add one" } "." }
                }
                @else if let Some(hint) = &self.hint { p { (hint) } }
                @else if asked.narrows() { p { "No tool fits these filters. " a href="/tools" { "Show all" } "." } }
                @else { p { "No tools are known yet: " a href="/sources" { "refresh a source" } "." } }
            }
        }
    }
}

fn last_page(shown: usize) -> usize {
    shown.div_ceil(A_PAGE).max(1)
}

/// An address that somebody kept, or edited.
fn beyond(asked: &Asked, shown: usize) -> Markup {
    let last = last_page(shown);
    html! {
        div.empty {
            p {
                "There is no page " (grouped(asked.page as u64)) ": "
                @if last == 1 { "all of it is on the " a href=(asked.address(1)) { "first page" } "." }
                @else {
                    "go to the " a href=(asked.address(1)) { "first page" } " or to the last, "
                    a href=(asked.address(last)) { "page " (grouped(last as u64)) } "."
                }
            }
        }
    }
}

fn pages(asked: &Asked, shown: usize) -> Markup {
    let last = last_page(shown);
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages of the list" {
                @if asked.page > 1 { a href=(asked.address(asked.page - 1)) rel="prev" { "Previous" } }
                span { "Page " (grouped(asked.page as u64)) " of " (grouped(last as u64)) }
                @if asked.page < last { a href=(asked.address(asked.page + 1)) rel="next" { "Next" } }
            }
        }
    }
}
