//! `/sources/{id}`: state, declaration, checks, tools, skipped tools and history of one source.
//!
//! Checks and history are read from the store. If that fails, the page says so in their place and shows the rest.

use axum::extract::Path;
use maud::{Markup, html};
use toolcrib::catalog;
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::core::time::format_duration;
use toolcrib::registry::{ConnectionState, SourceView};
use toolcrib::store::DiscoveryCheck;
use toolcrib::{Error, SourceId};

use super::activity_list::{render_entries, tool_path};
use super::history::render_code_spans;
use super::page::{NavItem, PageContext};
use super::sources::{render_actions, source_location};
use super::text::{Tone, format_count, format_millis, format_number, source_kind, source_state, state_badge, time_ago};
use super::{alerts, history};
use crate::activity::ActivityEvent;
use crate::auth::{AuthorizedRequest, Permission};
use crate::rest::{ApiError, find_source};

/// Tools on the page; the others are behind a link to the tool list.
const MAX_TOOLS_SHOWN: usize = 200;
/// Discovery checks on the page, newest first.
const MAX_CHECKS_SHOWN: usize = 10;
/// Calls and discoveries since the start of the server.
const MAX_ENTRIES_SHOWN: usize = 10;

/// Renders the page.
pub(super) async fn show(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    Path(id): Path<String>,
) -> Result<Markup, ApiError> {
    let context = PageContext { app: &app, client: &client };
    // The name in the URL may be anything, so it is shortened before it appears in the message.
    let source = find_source(&app.registry, &client.principal, &id)?;
    let checks = app.registry.history_for(&client.principal).checks(&source.id).await;
    let records = history::render_source_history(&context, &source.id).await;
    let (tone, label) = source_state(&source, context.discovery_stage(&source.id));
    let recent = context.recent_entries(|entry| involves_source(&entry.event, &source.id), MAX_ENTRIES_SHOWN);
    let content = html! {
        nav.trail aria-label="Breadcrumb" { a href="/sources" { "Sources" } " / " span { (source.id) } }
        header.head data-source=(source.id) {
            h1 { (source.id) @if let Some(title) = &source.title { " " small { (sanitize_truncated(title, 80)) } } }
            (render_actions(&context, &source))
        }
        p.standing id="standing" {
            (state_badge(tone, &label))
            span {
                (source_kind(&source)) " · " (format_count(source.tool_count, "tool")) " · " (render_feature_counts(&source))
                @match source.last_checked { Some(at) => { "checked " (time_ago(at)) } None => { "never checked" } }
            }
            @if tone == Tone::Aged { span { "· refreshed on the next use" } }
        }
        (alerts::render_last_error(&source))
        div.columns.two {
            section.card aria-labelledby="declared-title" {
                h2 id="declared-title" { "Declaration" }
                (render_declaration(&context, &source))
            }
            section.card aria-labelledby="checks-title" { h2 id="checks-title" { "Last checks" } (render_checks(&checks)) }
        }
        @if let Some(instructions) = &source.instructions { (render_instructions(instructions)) }
        @if !source.skipped.is_empty() { (render_skipped(&source)) }
        (render_tools(&context, &source))
        section aria-labelledby="history-title" { h2 id="history-title" { "Changes" } (records) }
        @if !recent.is_empty() {
            section aria-labelledby="lately-title" { h2 id="lately-title" { "Recent" } (render_entries(&recent)) }
        }
    };
    Ok(context.render_page(NavItem::Sources, source.id.as_str(), content))
}

/// Renders the numbers of prompts and resources, each followed by a separator; nothing for a source without any.
fn render_feature_counts(source: &SourceView) -> Markup {
    let counts = [
        (source.prompt_count, "prompt"),
        (source.resource_count, "resource"),
        (source.resource_template_count, "resource template"),
    ];
    html! { @for (count, noun) in counts.iter().filter(|(count, _)| *count > 0) { (format_count(*count, noun)) " · " } }
}

/// Renders the instructions that an MCP server gives to models.
fn render_instructions(instructions: &str) -> Markup {
    html! {
        section aria-labelledby="instructions-title" {
            h2 id="instructions-title" { "Instructions" }
            p.faint { "Written by the server, for models. In full mode clients get them, shortened if they are long." }
            pre tabindex="0" { (sanitize(instructions)) }
        }
    }
}

/// True for calls and discoveries of a source.
fn involves_source(event: &ActivityEvent, id: &SourceId) -> bool {
    match event {
        ActivityEvent::Called(call) => call.source.as_ref() == Some(id),
        ActivityEvent::Discovered(outcome) => outcome.source == *id,
        // Records are in the history section of the page.
        ActivityEvent::Recorded(_) => false,
    }
}

/// Renders the effective settings of a source; secrets are masked.
fn render_declaration(context: &PageContext<'_>, source: &SourceView) -> Markup {
    // With the defaults filled in, so that the page shows what is in effect and not only what was written.
    let configuration = context.app.registry.configuration();
    let keys = configuration.show_source_for(&context.client.principal, &source.id);
    let text = keys.and_then(|keys| serde_json::to_string_pretty(&keys).ok());
    let millis = |millis: u64| format_duration(std::time::Duration::from_millis(millis));
    html! {
        dl.facts {
            div {
                dt { "Origin" }
                dd {
                    @match source.origin {
                        Origin::Config => { "the configuration" }
                        Origin::Runtime => { "added at run time" }
                    }
                }
            }
            div { dt { "Location" } dd { code { (sanitize(&source_location(source))) } } }
            @if !source.nodes.is_empty() {
                div { dt { "Runs on the nodes" } dd { (source.nodes.join(", ")) } }
            }
            div { dt { "TTL" } dd { (millis(source.ttl_ms)) } }
            div { dt { "Discovery timeout" } dd { (millis(source.discovery_timeout_ms)) } }
            div {
                dt { "Connection" }
                dd {
                    @match source.connection {
                        ConnectionState::None => { "none" }
                        ConnectionState::Connected => { "open" }
                        ConnectionState::BreakerOpen => {
                            "circuit breaker open"
                            @if let Some(retry_at) = source.breaker.retry_at { ", retry at " (retry_at.to_string()) }
                        }
                    }
                }
            }
            @if source.failures > 0 {
                div {
                    dt { "Consecutive failures" }
                    dd {
                        (source.failures)
                        @if let Some(since) = source.failing_since { ", first " (time_ago(since)) }
                    }
                }
            }
            @if let Some(hash) = &source.inventory_hash { div { dt { "Inventory" } dd { code { (hash.short_hex(12)) } } } }
        }
        @if let Some(text) = text {
            details { summary { "As keys of a configuration file" } pre tabindex="0" { code { (sanitize(&text)) } } }
        }
    }
}

/// Renders the last discovery checks, newest first.
fn render_checks(checks: &Result<Vec<DiscoveryCheck>, Error>) -> Markup {
    let checks = match checks {
        Ok(checks) => checks,
        Err(error) => return history::render_unavailable("The checks", error),
    };
    html! {
        @if checks.is_empty() { p.faint { "It has not been contacted yet." } }
        @else {
            ol.checks { @for check in checks.iter().take(MAX_CHECKS_SHOWN) {
                li {
                    @match (&check.error, check.tool_count) {
                        (Some(error), _) => {
                            (state_badge(Tone::Bad, error.code.as_str()))
                            span.message { (render_code_spans(&sanitize_truncated(&error.message, 160))) }
                        }
                        (None, Some(count)) => { (state_badge(Tone::Good, &format_count(count, "tool"))) }
                        (None, None) => { (state_badge(Tone::Good, "answered")) }
                    }
                    span.when { (format_millis(check.duration_ms)) " · " (time_ago(check.at)) }
                }
            } }
        }
    }
}

/// Renders the tools that are not offered to agents, with the reasons.
fn render_skipped(source: &SourceView) -> Markup {
    html! {
        section aria-labelledby="aside-title" {
            h2 id="aside-title" { "Skipped" }
            p.faint { "Offered by the source, but not listed for agents, or not readable." }
            dl.aside {
                @for tool in &source.skipped {
                    div { dt { code { (sanitize_truncated(&tool.name, 120)) } } dd { (sanitize(&tool.reason)) } }
                }
            }
        }
    }
}

/// Explains why no tools are listed. The order of the cases matters: a disabled source may have an error as well.
fn empty_reason(source: &SourceView) -> &'static str {
    match (source.enabled, &source.last_error, source.last_checked) {
        (false, _, _) if source.tool_count > 0 => "The source is disabled, so its tools are hidden from agents.",
        (false, _, _) => "The source is disabled; enable it to discover its tools.",
        (true, Some(_), _) => "No tools are known: every discovery has failed so far.",
        (true, None, None) => "No tools are known yet: refresh the source to discover them.",
        (true, None, Some(_)) => "The source answers and offers no tools.",
    }
}

/// Renders the first tools of a source, with a link to all of them.
fn render_tools(context: &PageContext<'_>, source: &SourceView) -> Markup {
    let view = context.catalog_view();
    let all: Vec<_> = view.listed_tools().filter(|tool| *tool.source() == source.id).collect();
    let shown = &all[..all.len().min(MAX_TOOLS_SHOWN)];
    html! {
        section aria-labelledby="tools-title" {
            div.row {
                h2 id="tools-title" { "Tools" }
                @if !shown.is_empty() {
                    a href=(format!("/tools?source={}", source.id)) { "Search these tools" }
                    @if context.is_allowed(Permission::Manage) {
                        a href=(format!("/access/policies?match.source={}&verdict=ask", source.id)) { "Add a policy" }
                    }
                }
            }
            @if shown.is_empty() { p.empty { (empty_reason(source)) } }
            @else { ul.names { @for tool in shown {
                li {
                    a.name href=(tool_path(tool.name().as_str())) { (sanitize_truncated(tool.original_name(), 100)) }
                    @if tool.status() == catalog::ToolStatus::Disabled {
                        " " (state_badge(Tone::Quiet, "disabled"))
                    }
                    @if tool.catalog_source.segment.has_token_counts() {
                        span.when { (format_number(u64::from(tool.catalog_source.segment.token_count(tool.entry)))) " tokens" }
                    }
                }
            } } }
            @if all.len() > shown.len() {
                p {
                    a href=(format!("/tools?source={}", source.id)) {
                        (format_count(all.len() - shown.len(), "more tool"))
                    }
                }
            }
        }
    }
}
