//! Renders the history of a source or a tool from the journal, with diffs between the versions of a tool.
//!
//! Changes were classified when they were recorded, so a page shows the same for ever.

use maud::{Markup, html};
use serde_json::value::RawValue;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::{HistoryQuery, HistoryRecord, ToolVersion};
use toolcrib::{Error, SourceId};

use super::diff;
use super::page::PageContext;
use super::text::time_ago;
use super::tool::pretty_json;

/// Records of a source on its page; `toolcrib history` shows all.
const MAX_RECORDS_SHOWN: usize = 30;
/// Versions shown at first. Few, because each is read from the store and compared with the previous one.
const DEFAULT_VERSIONS_SHOWN: usize = 5;
/// Versions shown on request. Older ones are left to the command line.
const MAX_VERSIONS_SHOWN: usize = 50;

/// Renders the last records about a source, newest first.
pub(super) async fn render_source_history(context: &PageContext<'_>, id: &SourceId) -> Markup {
    let query = HistoryQuery { source: Some(id.clone()), limit: Some(MAX_RECORDS_SHOWN), ..HistoryQuery::default() };
    match context.app.registry.history_for(&context.client.principal).records(&query).await {
        Ok(records) => render_list(&records.iter().rev().map(HistoryLine::from_record).collect::<Vec<_>>()),
        Err(error) => render_unavailable("The changes", &error),
    }
}

/// Renders the last versions of a tool, or up to [`MAX_VERSIONS_SHOWN`] of them, with their differences.
pub(super) async fn render_tool_history(context: &PageContext<'_>, name: &str, all: bool) -> Markup {
    let limit = if all { MAX_VERSIONS_SHOWN } else { DEFAULT_VERSIONS_SHOWN };
    // One more than shown, to know whether there are older ones.
    let mut versions =
        match context.app.registry.history_for(&context.client.principal).tool_versions(name, limit + 1).await {
            Ok(versions) => versions,
            Err(error) => return render_unavailable("The changes", &error),
        };
    let has_more = versions.len() > limit;
    versions.truncate(limit);
    // Sources decide how long definitions are, so comparing them may take too long for an async thread.
    let list = tokio::task::spawn_blocking(move || {
        render_list(&versions.iter().map(HistoryLine::from_version).collect::<Vec<_>>())
    });
    html! {
        (list.await.unwrap_or_else(|_| html! { p.empty { "The changes cannot be shown now." } }))
        @if has_more && all { p.faint { "For older versions use " code { "toolcrib history" } "." } }
        @else if has_more { p { a href="?versions=all#history-title" { "Older versions" } } }
    }
}

/// Renders that data cannot be read from the store now; `subject` is plural.
pub(super) fn render_unavailable(subject: &str, error: &Error) -> Markup {
    html! { p.empty { (subject) " cannot be read now: " (render_code_spans(&sanitize_truncated(&error.message, 200))) "." } }
}

/// One line of a history. Records and versions are rendered alike; only versions have details.
struct HistoryLine<'a> {
    at: toolcrib::core::Timestamp,
    actor: &'a str,
    text: &'a str,
    details: Markup,
}

impl<'a> HistoryLine<'a> {
    /// A record has no details: its text says all.
    fn from_record(record: &'a HistoryRecord) -> HistoryLine<'a> {
        HistoryLine { at: record.at, actor: &record.actor, text: &record.text, details: html! {} }
    }

    /// The first version and a removal have only one definition, so there is nothing to compare.
    fn from_version(version: &'a ToolVersion) -> HistoryLine<'a> {
        let text = |raw: &RawValue| {
            sanitize(&pretty_json(&serde_json::from_str::<serde_json::Value>(raw.get()).unwrap_or_default()))
        };
        let details = html! {
            @if let (Some(before), Some(after)) = (&version.before, &version.after) {
                details { summary { "Differences" } (diff::render_diff(&text(before), &text(after))) }
            }
        };
        HistoryLine { at: version.at, actor: &version.actor, text: &version.text, details }
    }
}

/// Renders the lines in the given order.
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

/// Renders a text with its parts in backticks as `<code>`. Messages write names in backticks. The text is sanitised
/// here, so callers may pass text of sources.
pub(super) fn render_code_spans(text: &str) -> Markup {
    let text = sanitize(text);
    // An unpaired backtick is literal, except in a truncated text, where its closing one was cut off.
    let is_paired = text.matches('`').count().is_multiple_of(2) || text.ends_with('…');
    html! {
        @if is_paired {
            @for (index, piece) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (piece) } } @else { (piece) }
            }
        } @else { (text) }
    }
}
