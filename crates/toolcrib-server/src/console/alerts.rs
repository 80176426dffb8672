//! Alerts: failing sources with their error and the next step, problems of store and configuration, and sources that were
//! never discovered.
//!
//! Messages of errors come from sources and may be long: they are sanitised, and truncated in lists.

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

/// Maximum number of failing sources in the alert; the others are on `/sources`, which the alert links.
const MAX_SOURCES_SHOWN: usize = 6;

/// True for an enabled source whose last discovery or call failed. A disabled source is not used, so its
/// error needs no action.
pub(super) fn needs_attention(source: &SourceView) -> bool {
    source.enabled && source.last_error.is_some()
}

/// Renders the sources that need attention, each with its error and the next step.
pub(super) fn render_failing_sources(sources: &[SourceView]) -> Markup {
    let failing: Vec<&SourceView> = sources.iter().filter(|source| needs_attention(source)).collect();
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
                                p.faint { (render_code_spans(&next_step(source, error.code))) }
                            }
                        }
                    }
                }
                @if failing.len() > MAX_SOURCES_SHOWN { p { a href="/sources" { (format_count(failing.len() - MAX_SOURCES_SHOWN, "more source")) } } }
            }
        }
    }
}

/// Renders an alert while the store is damaged, missing or unavailable. Shown on every page.
pub(super) fn render_store_alert(registry: &Registry) -> Markup {
    let (title, message) = if let Err(error) = registry.store().check_ready() {
        ("The store cannot be used", render_code_spans(&sanitize(&error.message)))
    } else if registry.store().health().state == StoreState::Down {
        let message = "Lists and calls continue from memory. Changes are refused until it answers again; see the log for the reason.";
        ("The store does not answer", html! { (message) })
    } else {
        return html! {};
    };
    html! {
        section.attention role="alert" aria-labelledby="store-title" {
            h2 id="store-title" { (title) }
            p.message { (message) }
        }
    }
}

/// Renders an alert while the configuration is invalid. Shown on every page.
pub(super) fn render_config_alert(context: &PageContext<'_>) -> Markup {
    html! {
        @if let Some(reason) = context.app.config_error_for(&context.client.principal) {
            section.attention role="alert" aria-labelledby="config-title" {
                h2 id="config-title" { "The configuration is invalid" }
                p.message { (render_code_spans(&sanitize(&reason))) }
                p.faint { "The last valid one stays in effect. Correct the file; it is reloaded automatically." }
            }
        }
    }
}

/// Renders a notice about sources that were never discovered, so that their tools are unknown.
pub(super) fn render_undiscovered(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    // A source that failed has its own alert, so it is not counted here.
    let is_missing =
        |source: &&SourceView| source.enabled && source.last_error.is_none() && source.freshness == Freshness::Missing;
    let is_discovering = |source: &SourceView| context.discovery_stage(&source.id).is_some();
    let undiscovered = sources.iter().filter(is_missing).filter(|source| !is_discovering(source)).count();
    let pronoun = if undiscovered == 1 { "it" } else { "them" };
    html! {
        @if undiscovered > 0 {
            section.notice aria-label="Not discovered yet" {
                p { (format_count(undiscovered, "source")) " not discovered yet; the first list, search or call discovers " (pronoun) "." }
                @if context.is_allowed(Permission::Use) {
                    form method="post" action="/refresh" data-act {
                        (csrf_field(context.client)) button { "Discover now" }
                    }
                }
            }
        }
    }
}

/// Renders the last error of a source in full.
pub(super) fn render_last_error(source: &SourceView) -> Markup {
    html! {
        @if let Some(error) = &source.last_error {
            section.attention aria-labelledby="error-title" {
                h2 id="error-title" { "Last error" }
                p { code { (error.code.as_str()) } " " span.faint { (time_ago_or(source.last_checked, "")) } }
                pre.message tabindex="0" role="group" aria-label="Error details" { (sanitize(&error.message)) }
                p.faint { (render_code_spans(&next_step(source, error.code))) }
            }
        }
    }
}

/// A source with a stored tool list keeps serving it, which is only a warning. Without a list the source offers
/// nothing, which is an error.
fn failure_badge(source: &SourceView) -> Markup {
    match source.tool_count {
        0 => state_badge(Tone::Bad, "failed"),
        tools => state_badge(Tone::Warning, &format!("failing; serving the last {}", format_count(tools, "tool"))),
    }
}

/// Next step for errors that have no better one.
const READ_THE_ERROR: &str = "Read the error; `toolcrib doctor` helps to find the cause. Then refresh.";

/// Returns what the user can do about an error. Only a server on stdio has stderr output for `toolcrib logs` to show.
fn next_step(source: &SourceView, code: Code) -> String {
    let is_stdio = source.transport == Some("stdio");
    let step = match code {
        Code::ConfigInvalid if source.origin == Origin::Config => {
            "Correct its declaration in the configuration file, which is reloaded automatically."
        }
        Code::ConfigInvalid => "Its declaration is invalid: remove the source and add it again.",
        Code::Forbidden => "It has to be trusted first: run `toolcrib trust`.",
        Code::Unauthorized | Code::AuthRequired => "Check its credentials: the source rejects them.",
        Code::ToolUnavailable if !is_stdio => {
            "Check that it answers at its URL and can be reached from this machine. Then refresh."
        }
        Code::ToolUnavailable => {
            let id = &source.id;
            return format!(
                "Check that the server starts; `toolcrib logs {id}` shows its last stderr output. Then refresh."
            );
        }
        Code::RateLimited => "The source limits requests: wait, then refresh.",
        Code::StoreUnavailable => "Toolcrib's store is not available; `toolcrib doctor` shows why.",
        Code::ToolExecutionFailed if is_stdio => {
            let id = &source.id;
            return format!(
                "Read the error; `toolcrib logs {id}` shows the last stderr output of the server. Then refresh."
            );
        }
        Code::ToolNotImplemented
        | Code::ToolInvalidInput
        | Code::ToolExecutionFailed
        | Code::NotFound
        | Code::Conflict
        | Code::BadRequest
        | Code::Internal => READ_THE_ERROR,
        _ => READ_THE_ERROR,
    };
    step.to_owned()
}
