//! Renders calls, discoveries and journal records as list items.

use maud::{Markup, html};
use toolcrib::RefreshOutcome;
use toolcrib::call::CallFinished;
use toolcrib::core::inventory::Record;
use toolcrib::core::inventory::history::describe;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::refresh::RefreshStatus;

use super::history::render_code_spans;
use super::text::{Tone, format_count, format_millis, format_number, state_badge, time_ago};
use crate::activity::{ActivityEntry, ActivityEvent};

/// Renders entries in the given order. Used for the activity page, the overview and the page of a source.
pub(super) fn render_entries(entries: &[ActivityEntry]) -> Markup {
    html! {
        ol.moments {
            @for entry in entries {
                li {
                    @match &entry.event {
                        ActivityEvent::Called(call) => { (render_call(call)) }
                        ActivityEvent::Discovered(outcome) => { (render_discovery(outcome)) }
                        ActivityEvent::Recorded(record) => { (render_record(record)) }
                    }
                    span.when { (time_ago(entry.at)) }
                }
            }
        }
    }
}

/// Renders a call with its outcome, duration and caller.
fn render_call(call: &CallFinished) -> Markup {
    let succeeded = call.code == "OK";
    html! {
        span.what { "call" }
        span.text {
            // Without a source the tool is unknown and has no page.
            @match &call.source {
                Some(_) => { a.name href=(tool_path(&call.tool)) { (call.tool) } }
                None => { span.name { (call.tool) } }
            }
            " " @if succeeded { (state_badge(Tone::Good, "done")) } @else { (state_badge(Tone::Bad, call.code)) }
            " " span.faint { (format_millis(call.elapsed_ms)) " · by " (call.caller) }
        }
    }
}

/// Only discoveries that contacted their source are entries.
fn render_discovery(outcome: &RefreshOutcome) -> Markup {
    let (tone, label) = match outcome.status {
        RefreshStatus::Success => (Tone::Good, describe_delta(outcome)),
        RefreshStatus::Unchanged => (Tone::Good, format!("{}, unchanged", format_count(outcome.unchanged, "tool"))),
        RefreshStatus::Fresh => (Tone::Good, "fresh".into()),
        RefreshStatus::Disabled => (Tone::Quiet, "disabled".into()),
        RefreshStatus::Failed => (Tone::Bad, "failed".into()),
        other => (Tone::Quiet, other.name().into()),
    };
    html! {
        span.what { "discovery" }
        span.text {
            a.name href=(format!("/sources/{}", outcome.source)) { (outcome.source) } " " (state_badge(tone, &label)) " " span.faint { (format_millis(outcome.elapsed_ms)) }
            @if let Some(error) = &outcome.error { span.message { (render_code_spans(&sanitize_truncated(&error.message, 200))) } }
        }
    }
}

/// Describes the changes of a discovery, such as "2 added, 1 removed".
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

/// Renders a journal record with its sequence number and actor.
fn render_record(record: &Record) -> Markup {
    html! {
        span.what { "record " (record.seq) }
        span.text { (render_code_spans(&describe(&record.event, ""))) " " span.faint { "by " (record.actor) } }
    }
}

/// Returns the path of a tool's page, with its name percent-encoded.
pub(super) fn tool_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/tools/{}", encoded.replace('+', "%20"))
}
