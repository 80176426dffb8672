//! What needs somebody: sources that fail, with their reason and the next step.

use maud::{Markup, html};
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::SourceView;
use toolcrib::store::StoreState;
use toolcrib::{Code, Registry};

use super::csrf_field;
use super::history::render_code_spans;
use super::page::PageContext;
use super::text::{Tone, format_count, state_badge, time_ago_or};
use crate::auth::Permission;

const MAX_SOURCES_SHOWN: usize = 6;

pub(super) fn render_failing_sources(sources: &[SourceView]) -> Markup {
    let failing: Vec<&SourceView> =
        sources.iter().filter(|source| source.enabled && source.last_error.is_some()).collect();
    html! {
        @if !failing.is_empty() {
            section.attention aria-labelledby="attention-title" {
                h2 id="attention-title" { "Needs attention" }
                ul {
                    @for source in failing.iter().take(MAX_SOURCES_SHOWN) {
                        @if let Some(error) = &source.last_error {
                            li {
                                p {
                                    a href=(format!("/sources/{}", source.id)) { (source.id) }
                                    " " (failure_badge(source)) " "
                                    span.faint { (time_ago_or(source.last_checked, "")) }
                                }
                                p.message { (render_code_spans(&sanitize_truncated(&error.message, 300))) }
                                p.faint { (render_code_spans(next_step(source, error.code))) }
                            }
                        }
                    }
                }
                @if failing.len() > MAX_SOURCES_SHOWN { p { a href="/sources" { (format_count(failing.len() - MAX_SOURCES_SHOWN, "more source")) } } }
            }
        }
    }
}

/// What is wrong with the store, and what cannot be done meanwhile.
pub(super) fn render_store_alert(registry: &Registry) -> Markup {
    let is_down = registry.store_health().state == StoreState::Down;
    html! {
        @if let Err(error) = registry.check_ready() {
            section.attention role="alert" aria-labelledby="store-title" {
                h2 id="store-title" { "The store cannot be used" }
                p.message { (render_code_spans(&sanitize(&error.message))) }
            }
        } @else if is_down {
            section.attention role="alert" aria-labelledby="store-title" {
                h2 id="store-title" { "The store does not answer" }
                p.message { "Lists and calls go on from memory. Changes are refused until it answers again; the log says why." }
            }
        }
    }
}

/// Sources that nobody has needed yet: their tools are not known.
pub(super) fn render_undiscovered(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    let missing =
        |source: &&SourceView| source.enabled && source.last_error.is_none() && source.freshness == Freshness::Missing;
    let busy = |source: &SourceView| context.app.activity.discovery_stage(&source.id).is_some();
    let waiting = sources.iter().filter(missing).filter(|source| !busy(source)).count();
    html! {
        @if waiting > 0 {
            section.notice aria-label="Not discovered yet" {
                p { (format_count(waiting, "source")) " not discovered yet: that happens when a tool is first asked for." }
                @if context.is_allowed(Permission::Use) {
                    form method="post" action="/refresh" data-act {
                        (csrf_field(context.principal)) button { "Discover now" }
                    }
                }
            }
        }
    }
}

/// The last error of a source, in full.
pub(super) fn render_last_error(source: &SourceView) -> Markup {
    html! {
        @if let Some(error) = &source.last_error {
            section.attention aria-labelledby="error-title" {
                h2 id="error-title" { "Last error" }
                p { code { (error.code.as_str()) } " " span.faint { (time_ago_or(source.last_checked, "")) } }
                pre.message tabindex="0" role="group" aria-label="What it said" { (sanitize(&error.message)) }
                p.faint { (render_code_spans(next_step(source, error.code))) }
            }
        }
    }
}

fn failure_badge(source: &SourceView) -> Markup {
    match source.tool_count {
        0 => state_badge(Tone::Bad, "failed"),
        tools => state_badge(Tone::Warning, &format!("failing, the last {} still served", format_count(tools, "tool"))),
    }
}

fn next_step(source: &SourceView, code: Code) -> &'static str {
    match code {
        Code::ConfigInvalid if source.origin == Origin::Config => {
            "Put its declaration right in the configuration file; it is read again by itself."
        }
        Code::ConfigInvalid => "Its declaration cannot be used: remove the source and add it again.",
        Code::Forbidden => "Somebody has to allow it first: `toolcrib trust`.",
        Code::Unauthorized | Code::AuthRequired => "Check its credentials: the source refuses them.",
        Code::ToolUnavailable | Code::StoreUnavailable | Code::RateLimited if source.transport != Some("stdio") => {
            "Look whether it answers at its address, and whether this machine reaches it. Then refresh."
        }
        Code::ToolUnavailable | Code::StoreUnavailable | Code::RateLimited => {
            "Look whether it runs and can be reached; `toolcrib logs` has the last words of a server. Then refresh."
        }
        Code::ToolNotImplemented
        | Code::ToolInvalidInput
        | Code::ToolExecutionFailed
        | Code::NotFound
        | Code::Conflict
        | Code::BadRequest
        | Code::Internal => "Look at what it says; `toolcrib doctor` looks for the reason. Then refresh.",
    }
}
