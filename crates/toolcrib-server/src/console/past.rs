//! What changed, from the journal: of a source, and of one tool with what it was before.

use maud::{Markup, html};
use serde_json::value::RawValue;
use toolcrib::SourceId;
use toolcrib::core::text::shown;
use toolcrib::registry::{HistoryRecord, Version, Wanted};

use super::diff;
use super::tool::pretty;
use super::words::ago;
use crate::house::House;

const MOST: usize = 30;
/// Each version of a tool is read from the store.
const MOST_VERSIONS: usize = 20;

pub(super) async fn of_source(house: &House, id: &SourceId) -> Markup {
    let wanted = Wanted { source: Some(id.clone()), limit: Some(MOST), ..Wanted::default() };
    let records = house.registry.history(&wanted).await.unwrap_or_default();
    list(&records.iter().rev().map(Line::of_record).collect::<Vec<_>>())
}

/// Every version, with what differs from the one before.
pub(super) async fn of_tool(house: &House, name: &str) -> Markup {
    let versions = house.registry.tool_history(name, MOST_VERSIONS).await.unwrap_or_default();
    list(&versions.iter().map(Line::of_version).collect::<Vec<_>>())
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
    // One that stands alone is no more than itself.
    let paired = text.matches('`').count().is_multiple_of(2);
    html! {
        @if paired {
            @for (index, piece) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (piece) } } @else { (piece) }
            }
        } @else { (text) }
    }
}
