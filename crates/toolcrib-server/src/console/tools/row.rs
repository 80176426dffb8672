//! One row of the tool list.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::catalog::outline::first_sentence;
use toolcrib::catalog::{ToolRef, ToolStatus};
use toolcrib::core::Timestamp;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tool::ToolListing;
use toolcrib::registry::ToolStats;
use url::form_urlencoded;

use crate::console::activity_list::tool_path;
use crate::console::history::render_code_spans;
use crate::console::text::{Tone, format_number, state_badge, time_ago_or};

/// Data of one row. Owned, because it is collected on another thread than the one that renders it.
#[derive(Debug)]
pub(super) struct ToolRow {
    name: String,
    source: String,
    title: Option<String>,
    summary: String,
    hints: ListedHints,
    tags: Vec<String>,
    verdict: Verdict,
    state: ToolStatus,
    /// Token count of the definition; `None` until it is counted.
    tokens: Option<u32>,
    calls: u64,
    errors: u64,
    last_called: Option<Timestamp>,
}

/// Hints of a source about the effects of a tool. They are claims and not enforced.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::console) struct ListedHints {
    pub(in crate::console) read_only: bool,
    pub(in crate::console) destructive: bool,
}

impl ListedHints {
    /// Parses the annotations of a tool. Values of other types than boolean count as false.
    pub(in crate::console) fn parse(listing: &ToolListing) -> ListedHints {
        let annotations = listing.annotations.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let annotations: Value = annotations.unwrap_or_default();
        let is_true = |key: &str| annotations.get(key).and_then(Value::as_bool).unwrap_or(false);
        ListedHints { read_only: is_true("readOnlyHint"), destructive: is_true("destructiveHint") }
    }

    /// Renders the hints as tags.
    pub(in crate::console) fn render(self) -> Markup {
        html! {
            @if self.read_only { span.tag { "read-only" } }
            @if self.destructive { span.tag.warning { "destructive" } }
        }
    }
}

/// Returns the hints of a tool in the catalogue.
pub(super) fn tool_hints(tool: &ToolRef<'_>) -> ListedHints {
    tool.tool().map(|tool| ListedHints::parse(&tool.listing)).unwrap_or_default()
}

impl ToolRow {
    /// Collects the data of a row. A tool whose definition cannot be read from the store has its name only.
    pub(super) fn from_tool(tool: &ToolRef<'_>, tokens: Option<u32>, stats: Option<&ToolStats>) -> ToolRow {
        let content = tool.tool().ok();
        let listing = content.as_ref().map(|tool| &tool.listing);
        let title = listing.and_then(|listing| listing.title.as_deref());
        ToolRow {
            name: tool.name().to_string(),
            source: tool.source().to_string(),
            title: title.map(|title| sanitize_truncated(title, 80)),
            // The first sentence has to do; the whole description is on the page of the tool.
            summary: listing.map(|listing| first_sentence(&listing.description)).unwrap_or_default(),
            hints: listing.map(ListedHints::parse).unwrap_or_default(),
            tags: tool.tags().map(|tag| sanitize_truncated(tag, 40)).collect(),
            verdict: tool.verdict(),
            state: tool.status(),
            tokens,
            calls: stats.map_or(0, |stats| stats.calls),
            errors: stats.map_or(0, |stats| stats.errors),
            last_called: stats.and_then(|stats| stats.last_called),
        }
    }

    /// Returns the name without its prefix; the source has a column of its own.
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
                    @for tag in &self.tags { a.tag href=(tag_url(tag)) { (tag) } }
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

/// Returns the URL of the list of tools with a tag.
fn tag_url(tag: &str) -> String {
    format!("/tools?{}", form_urlencoded::Serializer::new(String::new()).append_pair("tag", tag).finish())
}

/// Renders the policy of a tool as a tag, unless it is `allow`.
pub(in crate::console) fn verdict_badge(verdict: Verdict) -> Markup {
    match verdict {
        Verdict::Allow => html! {},
        Verdict::Ask => html! { span.tag { "needs consent" } },
        Verdict::Deny => html! { span.tag.warning { "denied" } },
        Verdict::Hide => html! { span.tag { "hidden" } },
    }
}

/// Renders the table of tools.
pub(super) fn render_table(rows: &[ToolRow]) -> Markup {
    html! {
        table.list.tools {
            caption.unseen { "Tools with their token costs and calls" }
            thead { tr {
                th scope="col" { "Tool" } th scope="col" { "Source" } th.number scope="col" { "Tokens" }
                th.number scope="col" { "Calls" } th scope="col" { "Last used" }
            } }
            tbody { @for row in rows { (row.render()) } }
        }
    }
}
