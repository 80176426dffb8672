//! What changed, from the journal: of a source, and of one tool with what it was before.

use maud::{Markup, html};
use toolcrib::SourceId;
use toolcrib::registry::HistoryRecord;

use super::words::ago;
use crate::house::House;

const MOST: usize = 30;

pub(super) async fn of_source(house: &House, id: &SourceId) -> Markup {
    let records = house.registry.history(0).await.unwrap_or_default();
    let own: Vec<HistoryRecord> =
        records.into_iter().rev().filter(|record| record.source.as_deref() == Some(id.as_str())).take(MOST).collect();
    list(&own)
}

fn list(records: &[HistoryRecord]) -> Markup {
    html! {
        @if records.is_empty() { p.empty { "Nothing is recorded." } }
        @else {
            ol.moments { @for record in records {
                li { span.what { (record.seq) } span.text { (record.kind) " " span.faint { "by " (record.actor) } } span.when { (ago(record.at)) } }
            } }
        }
    }
}

pub(super) async fn of_tool(house: &House, id: &SourceId, tool: &str) -> Markup {
    let records = house.registry.history(0).await.unwrap_or_default();
    let own: Vec<HistoryRecord> = records
        .into_iter()
        .rev()
        .filter(|record| record.source.as_deref() == Some(id.as_str()) && record.data.to_string().contains(tool))
        .take(MOST)
        .collect();
    list(&own)
}
