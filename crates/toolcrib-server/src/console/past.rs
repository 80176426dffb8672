//! What changed, from the journal: of a source, and of one tool with what it was before.

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::core::text::shown;
use toolcrib::registry::{HistoryRecord, Wanted};

use super::words::ago;
use crate::house::House;

const MOST: usize = 30;

pub(super) async fn of_source(house: &House, id: &SourceId) -> Markup {
    let wanted = Wanted { source: Some(id.clone()), limit: Some(MOST), ..Wanted::default() };
    list(&house.registry.history(&wanted).await.unwrap_or_default())
}

pub(super) async fn of_tool(house: &House, id: &SourceId, tool: &str) -> Markup {
    let wanted =
        Wanted { source: Some(id.clone()), tool: Some(tool.to_owned()), limit: Some(MOST), ..Wanted::default() };
    list(&house.registry.history(&wanted).await.unwrap_or_default())
}

/// The newest first.
fn list(records: &[HistoryRecord]) -> Markup {
    html! {
        @if records.is_empty() { p.empty { "Nothing is recorded." } }
        @else {
            ol.moments {
                @for record in records.iter().rev() {
                    li {
                        span.text { (named(&record.text)) " " span.faint { "by " (record.actor) } }
                        span.when { (ago(record.at)) }
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
    let paired = text.matches('`').count() % 2 == 0;
    html! {
        @if paired {
            @for (index, piece) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (piece) } } @else { (piece) }
            }
        } @else { (text) }
    }
}
