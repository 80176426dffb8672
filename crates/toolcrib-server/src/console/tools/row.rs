//! One line of the list of tools.

use maud::{Markup, html};
use serde::Deserialize;
use toolcrib::core::Timestamp;
use toolcrib::core::catalog::{ToolRef, ToolStatus};
use toolcrib::core::outline::first_sentence;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::ToolStats;

use crate::console::activity_list::tool_path;
use crate::console::history::render_code_spans;
use crate::console::text::{Tone, format_number, state_badge, time_ago_or};

#[derive(Debug)]
pub(super) struct ToolRow {
    name: String,
    source: String,
    title: Option<String>,
    summary: String,
    hints: EffectHints,
    verdict: Verdict,
    state: ToolStatus,
    tokens: Option<u32>,
    calls: u64,
    errors: u64,
    last_called: Option<Timestamp>,
}

/// What a tool's source says of its effects; nothing holds it to that.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::console) struct EffectHints {
    pub(in crate::console) read_only: bool,
    pub(in crate::console) destructive: bool,
}

#[derive(Deserialize)]
struct AnnotationHints {
    #[serde(rename = "readOnlyHint")]
    read_only: Option<serde_json::Value>,
    #[serde(rename = "destructiveHint")]
    destructive: Option<serde_json::Value>,
}

impl EffectHints {
    pub(in crate::console) fn parse(annotations: Option<&str>) -> EffectHints {
        let said: Option<AnnotationHints> = annotations.and_then(|text| serde_json::from_str(text).ok());
        let is_true = |value: Option<serde_json::Value>| value.and_then(|value| value.as_bool()).unwrap_or(false);
        said.map(|said| EffectHints { read_only: is_true(said.read_only), destructive: is_true(said.destructive) })
            .unwrap_or_default()
    }

    pub(in crate::console) fn render(self) -> Markup {
        html! {
            @if self.read_only { span.tag { "read-only" } }
            @if self.destructive { span.tag.warning { "destructive" } }
        }
    }
}

pub(super) fn tool_hints(tool: &ToolRef<'_>) -> EffectHints {
    let annotations = tool.tool().ok().and_then(|tool| tool.listing.annotations);
    EffectHints::parse(annotations.as_deref().map(|raw| raw.get()))
}

impl ToolRow {
    pub(super) fn from_tool(tool: &ToolRef<'_>, tokens: Option<u32>, count: Option<&ToolStats>) -> ToolRow {
        let face = tool.tool().ok().map(|content| content.listing);
        let described = face.as_ref().map(|face| first_sentence(&face.description)).unwrap_or_default();
        ToolRow {
            name: tool.name().to_string(),
            source: tool.source().to_string(),
            title: face.as_ref().and_then(|face| face.title.as_deref()).map(|title| sanitize_truncated(title, 80)),
            summary: described,
            hints: EffectHints::parse(face.as_ref().and_then(|face| face.annotations.as_deref()).map(|raw| raw.get())),
            verdict: tool.verdict(),
            state: tool.status(),
            tokens,
            calls: count.map_or(0, |count| count.calls),
            errors: count.map_or(0, |count| count.errors),
            last_called: count.and_then(|count| count.last_called),
        }
    }

    /// The part after the prefix, which the source's name already tells.
    fn short_name(&self) -> &str {
        self.name.strip_prefix(&self.source).and_then(|rest| rest.strip_prefix("__")).unwrap_or(&self.name)
    }

    fn render(&self) -> Markup {
        html! {
            tr {
                th scope="row" {
                    a.name href=(tool_path(&self.name)) { (self.short_name()) }
                    @if let Some(title) = &self.title { " " span.faint { (title) } }
                    " " (self.hints.render()) (verdict_badge(self.verdict))
                    @if self.state == ToolStatus::Disabled { " " (state_badge(Tone::Quiet, "disabled")) }
                    span.under { (render_code_spans(&self.summary)) }
                }
                td data-label="Source" { a href=(format!("/sources/{}", self.source)) { (self.source) } }
                td.number data-label="Tokens" {
                    @match self.tokens { Some(tokens) => { (format_number(u64::from(tokens))) } None => { "…" } }
                }
                td.number data-label="Calls" {
                    (format_number(self.calls))
                    @if self.errors > 0 { span.under.bad-text { (format_number(self.errors)) " failed" } }
                }
                td data-label="Last used" { (time_ago_or(self.last_called, "never")) }
            }
        }
    }
}

pub(in crate::console) fn verdict_badge(verdict: Verdict) -> Markup {
    match verdict {
        Verdict::Allow => html! {},
        Verdict::Ask => html! { span.tag { "asks first" } },
        Verdict::Deny => html! { span.tag.warning { "denied" } },
        Verdict::Hide => html! { span.tag { "hidden" } },
    }
}

pub(super) fn render_table(rows: &[ToolRow]) -> Markup {
    html! {
        table.list.tools {
            caption.unseen { "Tools, what they cost and how they are used" }
            thead { tr {
                th scope="col" { "Tool" } th scope="col" { "Source" } th.number scope="col" { "Tokens" }
                th.number scope="col" { "Calls" } th scope="col" { "Last used" }
            } }
            tbody { @for row in rows { (row.render()) } }
        }
    }
}
