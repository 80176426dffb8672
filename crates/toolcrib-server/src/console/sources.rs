//! `/sources`: all sources with their state and actions, and the form that adds one.

use maud::{Markup, html};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::SourceView;

use super::history::render_code_spans;
use super::page::{NavItem, PageContext};
use super::text::{format_number, source_kind, source_state, state_badge, time_ago_or};
use super::{add_form, csrf_field};
use crate::auth::{AuthorizedRequest, Permission};

/// Renders the page.
pub(super) async fn show(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> Markup {
    let context = PageContext { app: &app, client: &client };
    let sources = context.sources();
    let content = html! {
        header.head {
            h1 { "Sources" }
            div.actions {
                @if !sources.is_empty() && context.is_allowed(Permission::Use) {
                    form method="post" action="/refresh" data-act { (csrf_field(&client)) button { "Refresh all" } }
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

/// The id `source-rows` is used by the script to count failing sources after a refresh of all.
fn render_table(context: &PageContext<'_>, sources: &[SourceView]) -> Markup {
    html! {
        table.list.sources {
            caption.unseen { "Sources with their state and actions" }
            thead { tr {
                th scope="col" { "Source" } th scope="col" { "State" } th.number scope="col" { "Tools" }
                th scope="col" { "Checked" } th scope="col" { span.unseen { "Actions" } }
            } }
            tbody id="source-rows" { @for source in sources { (render_row(context, source)) } }
        }
    }
}

/// Renders the row of a source, and a second row with its error.
fn render_row(context: &PageContext<'_>, source: &SourceView) -> Markup {
    let (tone, label) = source_state(source, context.discovery_stage(&source.id));
    html! {
        tr id=(format!("source-{}", source.id)) {
            th scope="row" {
                a href=(format!("/sources/{}", source.id)) { (source.id) }
                @if let Some(title) = &source.title { " " span.faint { (sanitize_truncated(title, 60)) } }
                span.under { (source_kind(source)) " · " (sanitize_truncated(&source_location(source), 120)) }
            }
            td data-label="State" {
                (state_badge(tone, &label))
            }
            td.number data-label="Tools" {
                (format_number(source.tool_count as u64))
                @if !source.skipped.is_empty() {
                    span.under { (format_number(source.skipped.len() as u64)) " skipped" }
                }
            }
            td data-label="Checked" { (time_ago_or(source.last_checked, "never")) }
            td.actions { (render_actions(context, source)) }
        }
        // A separate row, because the error would be one word wide in a column.
        @if let Some(error) = source.last_error.as_ref().filter(|_| source.enabled) {
            tr.more id=(format!("error-{}", source.id)) {
                td.message colspan="5" { (render_code_spans(&sanitize_truncated(&error.message, 300))) }
            }
        }
    }
}

/// Returns the command line or URL of a source. Untrusted and of any length: callers sanitise it.
pub(super) fn source_location(source: &SourceView) -> String {
    match (&source.command, &source.url) {
        (Some(command), _) => format!("{command} {}", source.args.as_deref().unwrap_or_default().join(" ")),
        (None, Some(url)) => url.clone(),
        (None, None) => "built in".into(),
    }
}

/// Renders the actions on a source that the principal may use.
pub(super) fn render_actions(context: &PageContext<'_>, source: &SourceView) -> Markup {
    let id = &source.id;
    let can_manage = context.is_allowed(Permission::Manage);
    // Enable and disable share an id, so that the button keeps its focus when the script replaces one by the other.
    let button = |action: &str, label: &str| {
        let key = if matches!(action, "enable" | "disable") { "switch" } else { action };
        html! {
            form id=(format!("{key}-form-{id}")) method="post" action=(format!("/sources/{id}/{action}")) data-act
                // Tells the script that the page may vanish with its subject, so that it follows the redirect.
                data-follow=[(action == "remove").then_some("")] {
                (csrf_field(context.client)) button id=(format!("{key}-{id}")) { (label) span.unseen { " " (id) } }
            }
        }
    };
    // Another node has to start it.
    let is_elsewhere = context.app.registry.sources().ensure_may_start(id).is_err();
    html! {
        div.actions {
            @if source.enabled && context.is_allowed(Permission::Use) {
                @if is_elsewhere { span.faint { "refreshed on " (source.nodes.join(", ")) } }
                @else { (button("refresh", "Refresh")) }
            }
            @if can_manage && source.kind != "unknown" {
                @if source.enabled { (button("disable", "Disable")) } @else { (button("enable", "Enable")) }
            }
            @if can_manage && source.origin == Origin::Runtime {
                // The common `name` closes one confirmation when another one opens.
                details.sure id=(format!("sure-{id}")) name="sure" {
                    summary { "Remove…" span.unseen { " " (id) } }
                    div {
                        p { "Its tools are removed from the catalogue; its history stays." }
                        (button("remove", "Remove permanently"))
                    }
                }
            }
        }
    }
}
