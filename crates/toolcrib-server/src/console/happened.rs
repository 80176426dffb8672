//! Calls, discoveries and records as lines that people read.

use maud::{Markup, html};
use toolcrib::call::Called;
use toolcrib::core::history::told;
use toolcrib::core::inventory::Record;
use toolcrib::core::text::shown_short;
use toolcrib::refresh::Refreshed;
use toolcrib::{Outcome, SourceId};

use super::past::named;
use super::words::{Tone, ago, counted, grouped, lasted, state};
use crate::activity::{Moment, What};

/// The newest first.
pub(super) fn moments(moments: &[Moment]) -> Markup {
    html! {
        ol.moments {
            @for moment in moments {
                li {
                    @match &moment.what {
                        What::Called(called) => { (call(called)) }
                        What::Discovered(outcome) => { (discovery(outcome)) }
                        What::Recorded(record) => { (fact(record)) }
                    }
                    span.when { (ago(moment.at)) }
                }
            }
        }
    }
}

fn call(called: &Called) -> Markup {
    let well = called.code == "OK";
    html! {
        span.what { "call" }
        span.text {
            @match &called.source {
                Some(_) => { a.name href=(tool_path(&called.tool)) { (called.tool) } }
                None => { span.name { (called.tool) } }
            }
            " " @if well { (state(Tone::Good, "done")) } @else { (state(Tone::Bad, called.code)) }
            " " span.faint { (lasted(called.elapsed_ms)) " · by " (called.caller) }
        }
    }
}

fn discovery(outcome: &Outcome) -> Markup {
    let (tone, words) = match outcome.status {
        Refreshed::Success => (Tone::Good, delta(outcome)),
        Refreshed::Unchanged => (Tone::Good, format!("{}, as before", counted(outcome.unchanged, "tool"))),
        Refreshed::Fresh => (Tone::Good, "fresh".into()),
        Refreshed::Disabled => (Tone::Quiet, "disabled".into()),
        Refreshed::Failed => (Tone::Bad, "failed".into()),
    };
    html! {
        span.what { "discovery" }
        span.text {
            (source_link(&outcome.source)) " " (state(tone, &words)) " " span.faint { (lasted(outcome.elapsed_ms)) }
            @if let Some(error) = &outcome.error { span.message { (named(&shown_short(&error.message, 200))) } }
        }
    }
}

fn delta(outcome: &Outcome) -> String {
    let parts =
        [(outcome.added.len(), "added"), (outcome.changed.len(), "changed"), (outcome.removed.len(), "removed")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", grouped(*count as u64)))
        .collect();
    if parts.is_empty() { "no change".into() } else { parts.join(", ") }
}

fn fact(record: &Record) -> Markup {
    html! {
        span.what { "record " (record.seq) }
        span.text { (named(&told(&record.event, ""))) " " span.faint { "by " (record.actor) } }
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
