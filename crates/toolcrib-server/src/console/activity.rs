//! `/activity`: activity since the server started, newest first. The console's script updates it live.

use axum::extract::RawQuery;
use maud::{Markup, html};

use super::activity_list::render_entries;
use super::chart;
use super::form_data::FormData;
use super::page::{NavItem, PageContext};
use crate::activity::{ActivityEntry, ActivityEvent};
use crate::auth::AuthorizedRequest;

/// Entries on the page, after filtering; the server remembers more.
const MAX_ENTRIES_SHOWN: usize = 100;
/// Values and labels of the filter by kind.
const KIND_OPTIONS: [(&str, &str); 5] = [
    ("", "everything"),
    ("calls", "calls"),
    ("errors", "errors"),
    ("discoveries", "discoveries"),
    ("records", "changes"),
];

/// Renders the page.
pub(super) async fn show(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    RawQuery(query): RawQuery,
) -> Markup {
    let context = PageContext { app: &app, client: &client };
    let params = FormData::parse(query.as_deref().unwrap_or_default());
    // Unknown values match nothing, which the page says.
    let kind = params.get("kind").unwrap_or_default();
    let source = params.get("source").unwrap_or_default();
    let sources = context.sources();
    let entries = context.recent_entries(|entry| matches_filter(entry, kind, source), MAX_ENTRIES_SHOWN);
    let content = html! {
        header.head {
            h1 { "Activity" }
            p.faint { "Since this server started. Earlier changes are on the page of each source." }
        }
        section.card aria-labelledby="calls-title" {
            h2 id="calls-title" { "Calls, last hour" }
            (chart::render_calls_chart(&context.calls_in_last_hour()))
        }
        form.filters method="get" action="/activity" data-search {
            label {
                span.unseen { "Kind" }
                select name="kind" {
                    @for (value, label) in KIND_OPTIONS { option value=(value) selected[value == kind] { (label) } }
                }
            }
            label { span.unseen { "Source" } select name="source" {
                option value="" { "all sources" }
                @for view in &sources { option value=(view.id) selected[view.id.as_str() == source] { (view.id) } }
            } }
            button.no-script { "Show" }
        }
        div id="found" {
            @if entries.is_empty() {
                p.empty {
                    @if kind.is_empty() && source.is_empty() {
                        "No activity yet. " a href="/tools" { "Try a tool" } ", and the call appears here."
                    } @else {
                        "No activity matches these filters."
                    }
                }
            } @else { (render_entries(&entries)) }
        }
    };
    context.render_page(NavItem::Activity, "Activity", content)
}

/// True when an entry matches the filters; an empty filter matches all. `errors` is not a kind of entry but a property
/// of calls and discoveries.
fn matches_filter(entry: &ActivityEntry, kind: &str, source: &str) -> bool {
    let (entry_kind, failed, entry_source) = match &entry.event {
        ActivityEvent::Called(call) => ("calls", call.code != "OK", call.source.as_ref()),
        ActivityEvent::Discovered(outcome) => ("discoveries", outcome.error.is_some(), Some(&outcome.source)),
        ActivityEvent::Recorded(record) => ("records", false, record.event.source()),
    };
    let kind_matches = match kind {
        "" => true,
        "errors" => failed,
        kind => kind == entry_kind,
    };
    kind_matches && (source.is_empty() || entry_source.is_some_and(|id| id.as_str() == source))
}
