//! `/sources`: every source, what can be done with it, and the form that adds one.

use axum::Extension;
use axum::extract::State;
use maud::{Markup, html};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::shown_short;
use toolcrib::registry::SourceView;

use super::page::{Frame, Here};
use super::past::named;
use super::words::{ago_or, counted, grouped, kind_of, standing, state};
use super::{add, guarded};
use crate::access::{Needs, Visitor};
use crate::house::House;

pub(super) async fn show(State(house): State<House>, Extension(visitor): Extension<Visitor>) -> Markup {
    let frame = Frame { house: &house, visitor: &visitor };
    let sources = house.registry.sources();
    let content = html! {
        header.head {
            h1 { "Sources" }
            div.actions {
                @if !sources.is_empty() && frame.may(Needs::Using) {
                    form method="post" action="/refresh" data-act { (guarded(&visitor)) button { "Refresh all" } }
                }
                @if !sources.is_empty() && frame.may(Needs::Managing) {
                    a.button href="#add" { "Add a source" }
                }
            }
        }
        @if sources.is_empty() {
            p.empty {
                "No sources yet. "
                @if frame.may(Needs::Managing) {
                    "Add one below: an MCP server, an API with an OpenAPI document, or a workflow."
                }
            }
        } @else {
            (table(&frame, &sources))
        }
        @if frame.may(Needs::Managing) { (add::form(&frame, sources.is_empty())) }
        @else {
            p.empty id="add" {
                "To add sources or change them, " a href="/login" { "sign in" }
                " with a token, or open the link that " code { "toolcrib serve" } " printed when it started."
            }
        }
    };
    frame.page(Here::Sources, "Sources", content)
}

fn table(frame: &Frame<'_>, sources: &[SourceView]) -> Markup {
    html! {
        table.list.sources {
            caption.unseen { "Sources, how they stand and what can be done with them" }
            thead { tr {
                th scope="col" { "Source" } th scope="col" { "State" } th.number scope="col" { "Tools" }
                th scope="col" { "Checked" } th scope="col" { span.unseen { "Actions" } }
            } }
            tbody id="source-rows" { @for source in sources { (row(frame, source)) } }
        }
    }
}

fn row(frame: &Frame<'_>, source: &SourceView) -> Markup {
    let (tone, word) = standing(source, frame.house.activity.stage(&source.id));
    html! {
        tr id=(format!("source-{}", source.id)) {
            th scope="row" {
                a href=(format!("/sources/{}", source.id)) { (source.id) }
                @if let Some(title) = &source.title { " " span.faint { (shown_short(title, 60)) } }
                span.under { (kind_of(source)) " · " (shown_short(&whence(source), 120)) }
            }
            td data-label="State" {
                (state(tone, &word))
            }
            td.number data-label="Tools" {
                (grouped(source.tool_count as u64))
                @if !source.set_aside.is_empty() {
                    span.under { (counted(source.set_aside.len(), "set aside").trim_end_matches('s')) }
                }
            }
            td data-label="Checked" { (ago_or(source.last_checked, "never")) }
            td.actions { (actions(frame, source)) }
        }
        // A row of its own, for in a column among others it would be one word wide.
        @if let Some(error) = source.last_error.as_ref().filter(|_| source.enabled) {
            tr.more id=(format!("error-{}", source.id)) {
                td.message colspan="5" { (named(&shown_short(&error.message, 300))) }
            }
        }
    }
}

/// Where it is, in one line.
pub(super) fn whence(source: &SourceView) -> String {
    match (&source.command, &source.url) {
        (Some(command), _) => format!("{command} {}", source.args.as_deref().unwrap_or_default().join(" ")),
        (None, Some(url)) => url.clone(),
        (None, None) => "part of Toolcrib".into(),
    }
}

/// What this visitor may do with a source.
pub(super) fn actions(frame: &Frame<'_>, source: &SourceView) -> Markup {
    let (id, managing) = (&source.id, frame.may(Needs::Managing));
    // What enables and what disables is one button to who presses it: it keeps its place and its focus.
    let button = |action: &str, word: &str| {
        let place = if matches!(action, "enable" | "disable") { "switch" } else { action };
        html! {
            form id=(format!("{place}-form-{id}")) method="post" action=(format!("/sources/{id}/{action}")) data-act
                data-follow=[(action == "remove").then_some("")] {
                (guarded(frame.visitor)) button id=(format!("{place}-{id}")) { (word) span.unseen { " " (id) } }
            }
        }
    };
    html! {
        div.actions {
            @if source.enabled && frame.may(Needs::Using) { (button("refresh", "Refresh")) }
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
