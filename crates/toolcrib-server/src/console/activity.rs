//! `/activity`: what happened since this server started, the newest first; it goes on by itself.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use url::form_urlencoded;

use super::activity_list::render_entries;
use super::chart;
use super::page::{NavItem, PageContext};
use super::text::now;
use crate::activity::{ActivityEntry, ActivityEvent};
use crate::auth::Principal;
use crate::state::AppState;

const MAX_ENTRIES_SHOWN: usize = 100;
const KIND_OPTIONS: [(&str, &str); 5] = [
    ("", "everything"),
    ("calls", "calls"),
    ("errors", "what failed"),
    ("discoveries", "discoveries"),
    ("records", "what changed"),
];

pub(super) async fn show(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    RawQuery(query): RawQuery,
) -> Markup {
    let context = PageContext { app: &app, principal: &principal };
    let asked = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
        pairs.find(|(name, _)| name == key).map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (kind, source) = (asked("kind"), asked("source"));
    let sources = app.registry.sources();
    let found = app.activity.recent_entries(|moment| matches_filter(moment, &kind, &source), MAX_ENTRIES_SHOWN);
    let content = html! {
        header.head {
            h1 { "Activity" }
            p.faint { "Since this server started; what changed before is on the page of each source." }
        }
        section.card aria-labelledby="calls-title" {
            h2 id="calls-title" { "Calls, last hour" }
            (chart::render_calls_chart(&app.activity.calls_in_last_hour(now())))
        }
        form.filters method="get" action="/activity" data-search {
            label {
                span.unseen { "What" }
                select name="kind" {
                    @for (value, words) in KIND_OPTIONS { option value=(value) selected[value == kind] { (words) } }
                }
            }
            label { span.unseen { "Source" } select name="source" {
                option value="" { "all sources" }
                @for one in &sources { option value=(one.id) selected[one.id.as_str() == source] { (one.id) } }
            } }
            button.no-script { "Show" }
        }
        div id="found" {
            @if found.is_empty() {
                p.empty {
                    @if kind.is_empty() && source.is_empty() {
                        "Nothing has happened yet. " a href="/tools" { "Try a tool" } ", and the call appears here."
                    } @else {
                        "Nothing of this kind has happened."
                    }
                }
            } @else { (render_entries(&found)) }
        }
    };
    context.render_page(NavItem::Activity, "Activity", content)
}

fn matches_filter(moment: &ActivityEntry, kind: &str, source: &str) -> bool {
    let (own, failed, of) = match &moment.event {
        ActivityEvent::Called(called) => ("calls", called.code != "OK", called.source.as_ref()),
        ActivityEvent::Discovered(outcome) => ("discoveries", outcome.error.is_some(), Some(&outcome.source)),
        ActivityEvent::Recorded(record) => ("records", false, record.event.source()),
    };
    let kind_fits = match kind {
        "" => true,
        "errors" => failed,
        kind => kind == own,
    };
    kind_fits && (source.is_empty() || of.is_some_and(|of| of.as_str() == source))
}
