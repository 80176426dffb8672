//! `/sources/{id}`: one source: how it stands, how it is declared, what it offers, what was set aside, its past.

use axum::Extension;
use axum::extract::{Path, State};
use maud::{Markup, html};
use toolcrib::core::catalog;
use toolcrib::core::config::show::show_keys;
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::{shown, shown_short};
use toolcrib::core::time::format_duration;
use toolcrib::registry::{Connection, SourceView};
use toolcrib::store::Check;
use toolcrib::{Caller, Error, SourceId};

use super::happened::{moments, tool_path};
use super::page::{Frame, Here};
use super::past::named;
use super::sources::{actions, whence};
use super::words::{Tone, ago, counted, grouped, kind_of, lasted, standing, state};
use super::{attention, past};
use crate::access::Visitor;
use crate::activity::What;
use crate::api::Fault;
use crate::house::House;

const MOST_TOOLS: usize = 200;
const MOST_CHECKS: usize = 10;
const MOST_MOMENTS: usize = 10;

pub(super) async fn show(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let frame = Frame { house: &house, visitor: &visitor };
    let unknown = || Fault(house.registry.unknown_source(&shown_short(&id, 80)));
    let source = SourceId::from_name(&id).ok().and_then(|id| house.registry.source(&id)).ok_or_else(unknown)?;
    let checks = house.registry.checks(&source.id).await;
    let records = past::of_source(&house, &source.id).await;
    let (tone, word) = standing(&source, house.activity.stage(&source.id));
    let lately = house.activity.moments(|moment| concerns(&moment.what, &source.id), MOST_MOMENTS);
    let content = html! {
        nav.trail aria-label="Where you are" { a href="/sources" { "Sources" } " / " span { (source.id) } }
        header.head data-source=(source.id) {
            h1 { (source.id) @if let Some(title) = &source.title { " " small { (shown_short(title, 80)) } } }
            (actions(&frame, &source))
        }
        p.standing id="standing" {
            (state(tone, &word))
            span {
                (kind_of(&source)) " · " (counted(source.tool_count, "tool")) " · "
                @match source.last_checked { Some(at) => { "checked " (ago(at)) } None => { "never checked" } }
            }
            @if tone == Tone::Aged { span { "· the next who needs it renews its list" } }
        }
        (attention::error(&source))
        div.columns.two {
            section.card aria-labelledby="declared-title" {
                h2 id="declared-title" { "Declaration" }
                (declaration(&house, &source))
            }
            section.card aria-labelledby="checks-title" { h2 id="checks-title" { "Last checks" } (checked(&checks)) }
        }
        @if !source.set_aside.is_empty() { (set_aside(&source)) }
        (tools(&house, &source))
        section aria-labelledby="past-title" { h2 id="past-title" { "What changed" } (records) }
        @if !lately.is_empty() {
            section aria-labelledby="lately-title" { h2 id="lately-title" { "Recent" } (moments(&lately)) }
        }
    };
    Ok(frame.page(Here::Sources, source.id.as_str(), content))
}

fn concerns(what: &What, id: &SourceId) -> bool {
    match what {
        What::Called(called) => called.source.as_ref() == Some(id),
        What::Discovered(outcome) => outcome.source == *id,
        // What was recorded is told in full above.
        What::Recorded(_) => false,
    }
}

fn declaration(house: &House, source: &SourceView) -> Markup {
    let keys = house.registry.definition(&source.id).map(|definition| show_keys(&definition));
    let text = keys.and_then(|keys| serde_json::to_string_pretty(&keys).ok());
    let millis = |millis: u64| format_duration(std::time::Duration::from_millis(millis));
    html! {
        dl.facts {
            div {
                dt { "From" }
                dd {
                    @match source.origin {
                        Origin::Config => { "the configuration" }
                        Origin::Runtime => { "added at run time" }
                    }
                }
            }
            div { dt { "Reached by" } dd { code { (shown(&whence(source))) } } }
            div { dt { "Kept fresh for" } dd { (millis(source.ttl_ms)) } }
            div { dt { "Discovery ends after" } dd { (millis(source.discovery_timeout_ms)) } }
            div {
                dt { "Connection" }
                dd {
                    @match source.connection {
                        Connection::None => { "none now" }
                        Connection::Connected => { "open" }
                        Connection::Resting => {
                            "paused after failures"
                            @if let Some(retry_at) = source.breaker.retry_at { ", next try at " (retry_at.to_string()) }
                        }
                    }
                }
            }
            @if source.failures > 0 {
                div {
                    dt { "Failures in a row" }
                    dd {
                        (source.failures)
                        @if let Some(since) = source.failing_since { ", the first " (ago(since)) }
                    }
                }
            }
            @if let Some(hash) = &source.inventory_hash { div { dt { "Inventory" } dd { code { (hash.short(12)) } } } }
        }
        @if let Some(text) = text {
            details { summary { "As it would stand in a file" } pre tabindex="0" { code { (shown(&text)) } } }
        }
    }
}

fn checked(checks: &Result<Vec<Check>, Error>) -> Markup {
    let checks = match checks {
        Ok(checks) => checks,
        Err(error) => return past::unreadable("Its checks", error),
    };
    html! {
        @if checks.is_empty() { p.faint { "It has not been contacted yet." } }
        @else {
            ol.checks { @for check in checks.iter().take(MOST_CHECKS) {
                li {
                    @match (&check.error, check.tool_count) {
                        (Some(error), _) => {
                            (state(Tone::Bad, error.code.as_str()))
                            span.message { (named(&shown_short(&error.message, 160))) }
                        }
                        (None, Some(count)) => { (state(Tone::Good, &counted(count, "tool"))) }
                        (None, None) => { (state(Tone::Good, "answered")) }
                    }
                    span.when { (lasted(check.duration_ms)) " · " (ago(check.at)) }
                }
            } }
        }
    }
}

fn set_aside(source: &SourceView) -> Markup {
    html! {
        section aria-labelledby="aside-title" {
            h2 id="aside-title" { "Set aside" }
            p.faint { "Offered by the source, but not to agents, each for its reason." }
            dl.aside {
                @for tool in &source.set_aside {
                    div { dt { code { (shown_short(&tool.name, 120)) } } dd { (shown(&tool.reason)) } }
                }
            }
        }
    }
}

/// Why nothing is listed.
fn why_none(source: &SourceView) -> &'static str {
    match (source.enabled, &source.last_error, source.last_checked) {
        (false, _, _) if source.tool_count > 0 => "It is disabled: its tools are known, and offered to nobody.",
        (false, _, _) => "It is disabled: enable it, and its tools are discovered.",
        (true, Some(_), _) => "None are known: it has failed before it could tell any.",
        (true, None, None) => "None are known yet: refresh it, or ask for one of its tools.",
        (true, None, Some(_)) => "It answers, and offers none.",
    }
}

fn tools(house: &House, source: &SourceView) -> Markup {
    let view = house.registry.view(&Caller { name: "console".into() });
    let all: Vec<_> = view.listed().filter(|tool| *tool.source() == source.id).collect();
    let own = &all[..all.len().min(MOST_TOOLS)];
    html! {
        section aria-labelledby="tools-title" {
            div.row {
                h2 id="tools-title" { "Tools" }
                @if !own.is_empty() {
                    a href=(format!("/tools?source={}", source.id)) { "Search among them" }
                }
            }
            @if own.is_empty() { p.empty { (why_none(source)) } }
            @else { ul.names { @for tool in own {
                li {
                    a.name href=(tool_path(tool.name().as_str())) { (shown_short(tool.original(), 100)) }
                    @if tool.state() == catalog::State::Disabled {
                        " " (state(Tone::Quiet, "disabled"))
                    }
                    @if tool.part.segment.is_counted() {
                        span.when { (grouped(u64::from(tool.part.segment.tokens(tool.entry)))) " tokens" }
                    }
                }
            } } }
            @if all.len() > own.len() {
                p {
                    a href=(format!("/tools?source={}", source.id)) {
                        (counted(all.len() - own.len(), "more tool"))
                    }
                }
            }
        }
    }
}
