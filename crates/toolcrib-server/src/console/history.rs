//! What changed, from the journal: of a source, and of one tool with what it was before.

use maud::{Markup, html};
use serde_json::value::RawValue;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::{HistoryQuery, HistoryRecord, ToolVersion};
use toolcrib::{Error, SourceId};

use super::diff;
use super::text::time_ago;
use super::tool::pretty_json;
use crate::state::AppState;

const MAX_RECORDS_SHOWN: usize = 30;
/// Each version of a tool is read from the store, and compared with the one before.
const DEFAULT_VERSIONS_SHOWN: usize = 5;
const MAX_VERSIONS_SHOWN: usize = 50;

pub(super) async fn render_source_history(app: &AppState, id: &SourceId) -> Markup {
    let wanted = HistoryQuery { source: Some(id.clone()), limit: Some(MAX_RECORDS_SHOWN), ..HistoryQuery::default() };
    match app.registry.history(&wanted).await {
        Ok(records) => render_list(&records.iter().rev().map(HistoryLine::from_record).collect::<Vec<_>>()),
        Err(error) => render_unavailable("What changed", &error),
    }
}

/// The last versions, or all that can be shown, with what differs from the one before.
pub(super) async fn render_tool_history(app: &AppState, name: &str, all: bool) -> Markup {
    let most = if all { MAX_VERSIONS_SHOWN } else { DEFAULT_VERSIONS_SHOWN };
    // One more tells whether there are more.
    let mut versions = match app.registry.tool_history(name, most + 1).await {
        Ok(versions) => versions,
        Err(error) => return render_unavailable("What changed", &error),
    };
    let more = versions.len() > most;
    versions.truncate(most);
    // Comparing takes as long as definitions are, which their sources decide: others want to be answered meanwhile.
    let shown = tokio::task::spawn_blocking(move || {
        render_list(&versions.iter().map(HistoryLine::from_version).collect::<Vec<_>>())
    });
    html! {
        (shown.await.unwrap_or_else(|_| html! { p.empty { "What changed cannot be shown now." } }))
        @if more && all { p.faint { "What is older is told by " code { "toolcrib history" } "." } }
        @else if more { p { a href="?versions=all#past-title" { "Older versions" } } }
    }
}

/// Something is known, but not to be had now.
pub(super) fn render_unavailable(what: &str, error: &Error) -> Markup {
    html! { p.empty { (what) " cannot be read now: " (render_code_spans(&sanitize_truncated(&error.message, 200))) "." } }
}

/// One line of a past.
struct HistoryLine<'a> {
    at: toolcrib::core::Timestamp,
    actor: &'a str,
    text: &'a str,
    details: Markup,
}

impl<'a> HistoryLine<'a> {
    fn from_record(record: &'a HistoryRecord) -> HistoryLine<'a> {
        HistoryLine { at: record.at, actor: &record.actor, text: &record.text, details: html! {} }
    }

    fn from_version(version: &'a ToolVersion) -> HistoryLine<'a> {
        let text = |raw: &RawValue| {
            sanitize(&pretty_json(&serde_json::from_str::<serde_json::Value>(raw.get()).unwrap_or_default()))
        };
        let more = html! {
            @if let (Some(before), Some(after)) = (&version.before, &version.after) {
                details { summary { "What differs" } (diff::render_diff(&text(before), &text(after))) }
            }
        };
        HistoryLine { at: version.at, actor: &version.actor, text: &version.text, details: more }
    }
}

/// The newest first.
fn render_list(lines: &[HistoryLine<'_>]) -> Markup {
    html! {
        @if lines.is_empty() { p.empty { "Nothing is recorded." } }
        @else {
            ol.moments {
                @for line in lines {
                    li {
                        span.text { (render_code_spans(line.text)) " " span.faint { "by " (line.actor) } }
                        span.when { (time_ago(line.at)) }
                        (line.details)
                    }
                }
            }
        }
    }
}

/// A text in which what stands in backticks is a name.
pub(super) fn render_code_spans(text: &str) -> Markup {
    let text = sanitize(text);
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
