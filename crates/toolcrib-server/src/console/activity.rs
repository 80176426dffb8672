//! `/activity`: what happened since this server started, the newest first; it goes on by itself.

use axum::Extension;
use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use url::form_urlencoded;

use super::chart;
use super::happened::moments;
use super::page::{Frame, Here};
use super::words::now;
use crate::access::Visitor;
use crate::activity::{Moment, What};
use crate::house::House;

const MOST: usize = 100;
const KINDS: [(&str, &str); 5] = [
    ("", "everything"),
    ("calls", "calls"),
    ("errors", "what failed"),
    ("discoveries", "discoveries"),
    ("records", "what changed"),
];

pub(super) async fn show(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    RawQuery(query): RawQuery,
) -> Markup {
    let frame = Frame { house: &house, visitor: &visitor };
    let asked = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
        pairs.find(|(name, _)| name == key).map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (kind, source) = (asked("kind"), asked("source"));
    let sources = house.registry.sources();
    let found = house.activity.moments(|moment| fits(moment, &kind, &source), MOST);
    let content = html! {
        header.head {
            h1 { "Activity" }
            p.faint { "Since this server started; what changed before is on the page of each source." }
        }
        section.card aria-labelledby="calls-title" {
            h2 id="calls-title" { "Calls, last hour" }
            (chart::minutes(&house.activity.minutes(now())))
        }
        form.filters method="get" action="/activity" data-search {
            label {
                span.unseen { "What" }
                select name="kind" {
                    @for (value, words) in KINDS { option value=(value) selected[value == kind] { (words) } }
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
            } @else { (moments(&found)) }
        }
    };
    frame.page(Here::Activity, "Activity", content)
}

fn fits(moment: &Moment, kind: &str, source: &str) -> bool {
    let (own, failed, of) = match &moment.what {
        What::Called(called) => ("calls", called.code != "OK", called.source.as_ref()),
        What::Discovered(outcome) => ("discoveries", outcome.error.is_some(), Some(&outcome.source)),
        What::Recorded(record) => ("records", false, record.event.source()),
    };
    let kind_fits = match kind {
        "" => true,
        "errors" => failed,
        kind => kind == own,
    };
    kind_fits && (source.is_empty() || of.is_some_and(|of| of.as_str() == source))
}
