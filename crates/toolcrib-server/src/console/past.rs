//! What changed, from the journal: of a source, and of one tool with what it was before.

use maud::{Markup, html};
use serde_json::value::RawValue;
use toolcrib::core::text::{shown, shown_short};
use toolcrib::registry::{HistoryRecord, Version, Wanted};
use toolcrib::{Error, SourceId};

use super::diff;
use super::tool::pretty;
use super::words::ago;
use crate::house::House;

const MOST: usize = 30;
/// Each version of a tool is read from the store, and compared with the one before.
const VERSIONS: usize = 5;
const MOST_VERSIONS: usize = 50;

pub(super) async fn of_source(house: &House, id: &SourceId) -> Markup {
    let wanted = Wanted { source: Some(id.clone()), limit: Some(MOST), ..Wanted::default() };
    match house.registry.history(&wanted).await {
        Ok(records) => list(&records.iter().rev().map(Line::of_record).collect::<Vec<_>>()),
        Err(error) => unreadable("What changed", &error),
    }
}

/// The last versions, or all that can be shown, with what differs from the one before.
pub(super) async fn of_tool(house: &House, name: &str, all: bool) -> Markup {
    let most = if all { MOST_VERSIONS } else { VERSIONS };
    // One more tells whether there are more.
    let mut versions = match house.registry.tool_history(name, most + 1).await {
        Ok(versions) => versions,
        Err(error) => return unreadable("What changed", &error),
    };
    let more = versions.len() > most;
    versions.truncate(most);
    // Comparing takes as long as definitions are, which their sources decide: others want to be answered meanwhile.
    let shown = tokio::task::spawn_blocking(move || list(&versions.iter().map(Line::of_version).collect::<Vec<_>>()));
    html! {
        (shown.await.unwrap_or_else(|_| html! { p.empty { "What changed cannot be shown now." } }))
        @if more && all { p.faint { "What is older is told by " code { "toolcrib history" } "." } }
        @else if more { p { a href="?versions=all#past-title" { "Older versions" } } }
    }
}

/// Something is known, but not to be had now.
pub(super) fn unreadable(what: &str, error: &Error) -> Markup {
    html! { p.empty { (what) " cannot be read now: " (named(&shown_short(&error.message, 200))) "." } }
}

/// One line of a past.
struct Line<'a> {
    at: toolcrib::core::Timestamp,
    actor: &'a str,
    text: &'a str,
    more: Markup,
}

impl<'a> Line<'a> {
    fn of_record(record: &'a HistoryRecord) -> Line<'a> {
        Line { at: record.at, actor: &record.actor, text: &record.text, more: html! {} }
    }

    fn of_version(version: &'a Version) -> Line<'a> {
        let text =
            |raw: &RawValue| shown(&pretty(&serde_json::from_str::<serde_json::Value>(raw.get()).unwrap_or_default()));
        let more = html! {
            @if let (Some(before), Some(after)) = (&version.before, &version.after) {
                details { summary { "What differs" } (diff::shown(&text(before), &text(after))) }
            }
        };
        Line { at: version.at, actor: &version.actor, text: &version.text, more }
    }
}

/// The newest first.
fn list(lines: &[Line<'_>]) -> Markup {
    html! {
        @if lines.is_empty() { p.empty { "Nothing is recorded." } }
        @else {
            ol.moments {
                @for line in lines {
                    li {
                        span.text { (named(line.text)) " " span.faint { "by " (line.actor) } }
                        span.when { (ago(line.at)) }
                        (line.more)
                    }
                }
            }
        }
    }
}

/// A text in which what stands in backticks is a name.
pub(super) fn named(text: &str) -> Markup {
    let text = shown(text);
    // One that stands alone is no more than itself, but of a text that was cut it began a name.
    let paired = text.matches('`').count().is_multiple_of(2) || text.ends_with('…');
    html! {
        @if paired {
            @for (index, piece) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (piece) } } @else { (piece) }
            }
        } @else { (text) }
    }
}
