//! One line of the list of tools.

use maud::{Markup, html};
use serde::Deserialize;
use toolcrib::core::Timestamp;
use toolcrib::core::catalog::{State, ToolRef};
use toolcrib::core::outline::first_sentence;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::shown_short;
use toolcrib::registry::ToolStats;

use crate::console::happened::tool_path;
use crate::console::past::named;
use crate::console::words::{Tone, ago_or, grouped, state};

#[derive(Debug)]
pub(super) struct Row {
    name: String,
    source: String,
    title: Option<String>,
    summary: String,
    hints: Hints,
    verdict: Verdict,
    state: State,
    tokens: Option<u32>,
    calls: u64,
    errors: u64,
    last_called: Option<Timestamp>,
}

/// What a tool's source says of its effects; nothing holds it to that.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::console) struct Hints {
    pub(in crate::console) read_only: bool,
    pub(in crate::console) destructive: bool,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "readOnlyHint")]
    read_only: Option<serde_json::Value>,
    #[serde(rename = "destructiveHint")]
    destructive: Option<serde_json::Value>,
}

impl Hints {
    pub(in crate::console) fn read(annotations: Option<&str>) -> Hints {
        let said: Option<Annotations> = annotations.and_then(|text| serde_json::from_str(text).ok());
        let is_true = |value: Option<serde_json::Value>| value.and_then(|value| value.as_bool()).unwrap_or(false);
        said.map(|said| Hints { read_only: is_true(said.read_only), destructive: is_true(said.destructive) })
            .unwrap_or_default()
    }

    pub(in crate::console) fn shown(self) -> Markup {
        html! {
            @if self.read_only { span.tag { "read-only" } }
            @if self.destructive { span.tag.warning { "destructive" } }
        }
    }
}

pub(super) fn hints(tool: &ToolRef<'_>) -> Hints {
    let annotations = tool.tool().ok().and_then(|tool| tool.face.annotations);
    Hints::read(annotations.as_deref().map(|raw| raw.get()))
}

impl Row {
    pub(super) fn of(tool: &ToolRef<'_>, tokens: Option<u32>, count: Option<&ToolStats>) -> Row {
        let face = tool.tool().ok().map(|content| content.face);
        let described = face.as_ref().map(|face| first_sentence(&face.description)).unwrap_or_default();
        Row {
            name: tool.name().to_string(),
            source: tool.source().to_string(),
            title: face.as_ref().and_then(|face| face.title.as_deref()).map(|title| shown_short(title, 80)),
            summary: described,
            hints: Hints::read(face.as_ref().and_then(|face| face.annotations.as_deref()).map(|raw| raw.get())),
            verdict: tool.verdict(),
            state: tool.state(),
            tokens,
            calls: count.map_or(0, |count| count.calls),
            errors: count.map_or(0, |count| count.errors),
            last_called: count.and_then(|count| count.last_called),
        }
    }

    /// The part after the prefix, which the source's name already tells.
    fn short(&self) -> &str {
        self.name.strip_prefix(&self.source).and_then(|rest| rest.strip_prefix("__")).unwrap_or(&self.name)
    }

    fn shown(&self) -> Markup {
        html! {
            tr {
                th scope="row" {
                    a.name href=(tool_path(&self.name)) { (self.short()) }
                    @if let Some(title) = &self.title { " " span.faint { (title) } }
                    " " (self.hints.shown()) (verdict(self.verdict))
                    @if self.state == State::Disabled { " " (state(Tone::Quiet, "disabled")) }
                    span.under { (named(&self.summary)) }
                }
                td data-label="Source" { a href=(format!("/sources/{}", self.source)) { (self.source) } }
                td.number data-label="Tokens" {
                    @match self.tokens { Some(tokens) => { (grouped(u64::from(tokens))) } None => { "…" } }
                }
                td.number data-label="Calls" {
                    (grouped(self.calls))
                    @if self.errors > 0 { span.under.bad-text { (grouped(self.errors)) " failed" } }
                }
                td data-label="Last used" { (ago_or(self.last_called, "never")) }
            }
        }
    }
}

pub(in crate::console) fn verdict(verdict: Verdict) -> Markup {
    match verdict {
        Verdict::Allow => html! {},
        Verdict::Ask => html! { span.tag { "asks first" } },
        Verdict::Deny => html! { span.tag.warning { "denied" } },
        Verdict::Hide => html! { span.tag { "hidden" } },
    }
}

pub(super) fn table(rows: &[Row]) -> Markup {
    html! {
        table.list.tools {
            caption.unseen { "Tools, what they cost and how they are used" }
            thead { tr {
                th scope="col" { "Tool" } th scope="col" { "Source" } th.number scope="col" { "Tokens" }
                th.number scope="col" { "Calls" } th scope="col" { "Last used" }
            } }
            tbody { @for row in rows { (row.shown()) } }
        }
    }
}
