//! Calls, discoveries and records as lines that people read.

use maud::{Markup, html};
use toolcrib::call::CallFinished;
use toolcrib::core::history::describe;
use toolcrib::core::inventory::Record;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{RefreshOutcome, SourceId};

use super::history::render_code_spans;
use super::text::{Tone, format_count, format_millis, format_number, state_badge, time_ago};
use crate::activity::{ActivityEntry, ActivityEvent};

/// The newest first.
pub(super) fn render_entries(moments: &[ActivityEntry]) -> Markup {
    html! {
        ol.moments {
            @for moment in moments {
                li {
                    @match &moment.event {
                        ActivityEvent::Called(called) => { (render_call(called)) }
                        ActivityEvent::Discovered(outcome) => { (render_discovery(outcome)) }
                        ActivityEvent::Recorded(record) => { (render_record(record)) }
                    }
                    span.when { (time_ago(moment.at)) }
                }
            }
        }
    }
}

fn render_call(called: &CallFinished) -> Markup {
    let well = called.code == "OK";
    html! {
        span.what { "call" }
        span.text {
            @match &called.source {
                Some(_) => { a.name href=(tool_path(&called.tool)) { (called.tool) } }
                None => { span.name { (called.tool) } }
            }
            " " @if well { (state_badge(Tone::Good, "done")) } @else { (state_badge(Tone::Bad, called.code)) }
            " " span.faint { (format_millis(called.elapsed_ms)) " · by " (called.caller) }
        }
    }
}

fn render_discovery(outcome: &RefreshOutcome) -> Markup {
    let (tone, words) = match outcome.status {
        RefreshStatus::Success => (Tone::Good, describe_delta(outcome)),
        RefreshStatus::Unchanged => (Tone::Good, format!("{}, as before", format_count(outcome.unchanged, "tool"))),
        RefreshStatus::Fresh => (Tone::Good, "fresh".into()),
        RefreshStatus::Disabled => (Tone::Quiet, "disabled".into()),
        RefreshStatus::Failed => (Tone::Bad, "failed".into()),
    };
    html! {
        span.what { "discovery" }
        span.text {
            (source_link(&outcome.source)) " " (state_badge(tone, &words)) " " span.faint { (format_millis(outcome.elapsed_ms)) }
            @if let Some(error) = &outcome.error { span.message { (render_code_spans(&sanitize_truncated(&error.message, 200))) } }
        }
    }
}

fn describe_delta(outcome: &RefreshOutcome) -> String {
    let parts =
        [(outcome.added.len(), "added"), (outcome.changed.len(), "changed"), (outcome.removed.len(), "removed")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", format_number(*count as u64)))
        .collect();
    if parts.is_empty() { "no change".into() } else { parts.join(", ") }
}

fn render_record(record: &Record) -> Markup {
    html! {
        span.what { "record " (record.seq) }
        span.text { (render_code_spans(&describe(&record.event, ""))) " " span.faint { "by " (record.actor) } }
    }
}

fn source_link(id: &SourceId) -> Markup {
    html! { a.name href=(format!("/sources/{id}")) { (id) } }
}

/// The page of a tool, whatever its name is made of.
pub(super) fn tool_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/tools/{}", encoded.replace('+', "%20"))
}
