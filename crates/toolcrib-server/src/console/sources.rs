//! `/sources`: every source, what can be done with it, and the form that adds one.

use axum::Extension;
use axum::extract::State;
use maud::{Markup, html};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::SourceView;

use super::history::render_code_spans;
use super::page::{NavItem, PageContext};
use super::text::{format_count, format_number, source_kind, source_state, state_badge, time_ago_or};
use super::{add_form, csrf_field};
use crate::auth::{Permission, Principal};
use crate::state::AppState;

pub(super) async fn show(State(app): State<AppState>, Extension(principal): Extension<Principal>) -> Markup {
    let context = PageContext { app: &app, principal: &principal };
    let sources = app.registry.sources();
    let content = html! {
        header.head {
            h1 { "Sources" }
            div.actions {
                @if !sources.is_empty() && context.is_allowed(Permission::Use) {
                    form method="post" action="/refresh" data-act { (csrf_field(&principal)) button { "Refresh all" } }
                }
                @if !sources.is_empty() && context.is_allowed(Permission::Manage) {
                    a.button href="#add" { "Add a source" }
                }
            }
        }
        @if sources.is_empty() {
            p.empty {
                "No sources yet. "
                @if context.is_allowed(Permission::Manage) {
                    "Add one below: an MCP server, an API with an OpenAPI document, or a workflow."
                }
            }
        } @else {
            (render_table(&context, &sources))
        }
        @if context.is_allowed(Permission::Manage) { (add_form::render_form(&context, sources.is_empty())) }
        @else {
            p.empty id="add" {
                "To add sources or change them, " a href="/login" { "sign in" }
                " with a token, or open the link that " code { "toolcrib serve" } " printed when it started."
            }
        }
    };
    context.render_page(NavItem::Sources, "Sources", content)
}

fn render_table(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    html! {
        table.list.sources {
            caption.unseen { "Sources, how they stand and what can be done with them" }
            thead { tr {
                th scope="col" { "Source" } th scope="col" { "State" } th.number scope="col" { "Tools" }
                th scope="col" { "Checked" } th scope="col" { span.unseen { "Actions" } }
            } }
            tbody id="source-rows" { @for source in sources { (render_row(context, source)) } }
        }
    }
}

fn render_row(context: &PageContext<'_>, source: &SourceView) -> Markup {
    let (tone, word) = source_state(source, context.app.activity.discovery_stage(&source.id));
    html! {
        tr id=(format!("source-{}", source.id)) {
            th scope="row" {
                a href=(format!("/sources/{}", source.id)) { (source.id) }
                @if let Some(title) = &source.title { " " span.faint { (sanitize_truncated(title, 60)) } }
                span.under { (source_kind(source)) " · " (sanitize_truncated(&source_location(source), 120)) }
            }
            td data-label="State" {
                (state_badge(tone, &word))
            }
            td.number data-label="Tools" {
                (format_number(source.tool_count as u64))
                @if !source.set_aside.is_empty() {
                    span.under { (format_count(source.set_aside.len(), "set aside").trim_end_matches('s')) }
                }
            }
            td data-label="Checked" { (time_ago_or(source.last_checked, "never")) }
            td.actions { (render_actions(context, source)) }
        }
        // A row of its own, for in a column among others it would be one word wide.
        @if let Some(error) = source.last_error.as_ref().filter(|_| source.enabled) {
            tr.more id=(format!("error-{}", source.id)) {
                td.message colspan="5" { (render_code_spans(&sanitize_truncated(&error.message, 300))) }
            }
        }
    }
}

/// Where it is, in one line.
pub(super) fn source_location(source: &SourceView) -> String {
    match (&source.command, &source.url) {
        (Some(command), _) => format!("{command} {}", source.args.as_deref().unwrap_or_default().join(" ")),
        (None, Some(url)) => url.clone(),
        (None, None) => "part of Toolcrib".into(),
    }
}

/// What this visitor may do with a source.
pub(super) fn render_actions(context: &PageContext<'_>, source: &SourceView) -> Markup {
    let (id, managing) = (&source.id, context.is_allowed(Permission::Manage));
    // What enables and what disables is one button to who presses it: it keeps its place and its focus.
    let button = |action: &str, word: &str| {
        let place = if matches!(action, "enable" | "disable") { "switch" } else { action };
        html! {
            form id=(format!("{place}-form-{id}")) method="post" action=(format!("/sources/{id}/{action}")) data-act
                data-follow=[(action == "remove").then_some("")] {
                (csrf_field(context.principal)) button id=(format!("{place}-{id}")) { (word) span.unseen { " " (id) } }
            }
        }
    };
    html! {
        div.actions {
            @if source.enabled && context.is_allowed(Permission::Use) { (button("refresh", "Refresh")) }
            @if managing && source.kind != "unknown" {
                @if source.enabled { (button("disable", "Disable")) } @else { (button("enable", "Enable")) }
            }
            @if managing && source.origin == Origin::Runtime {
                details.sure id=(format!("sure-{id}")) name="sure" {
                    summary { "Remove…" span.unseen { " " (id) } }
                    div {
                        p { "Its tools leave the catalogue; what happened stays in the history." }
                        (button("remove", "Remove for good"))
                    }
                }
            }
        }
    }
}
