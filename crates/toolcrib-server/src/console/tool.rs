//! `/tools/{name}`: one tool: what it does, what it takes, a form to try it, how to hand it to a model, its past.

pub(super) mod form;
mod result;
mod snippets;
mod tree;

mod example;
mod schema;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::catalog;
use toolcrib::core::outline;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::{shown, shown_short};
use toolcrib::registry::ToolDetail;
use toolcrib::{CallOptions, Code, Error};

use super::fields::Fields;
use super::happened::tool_path;
use super::page::{Frame, Here};
use super::tools::{Hints, verdict};
use super::words::{Tone, ago, ago_or, grouped, kind, lasted, state};
use super::{guarded, past};
use crate::access::{Needs, Visitor};
use crate::api::Fault;
use crate::house::House;
use form::Form;

pub(super) async fn show(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Markup, Fault> {
    let detail = house.registry.tool_detail(&name)?;
    let all = Fields::parse(query.as_deref().unwrap_or_default()).get("versions").is_some();
    let past = match headers.contains_key(PAST_KEPT) {
        true => html! { section id="past" data-kept {} },
        false => past_of(&house, &detail, all).await,
    };
    let asked = Asked { host: host(&house, &headers), past, filled: Fields::default(), answer: result::none() };
    made(house, visitor, move |frame| page(frame, &detail, &asked)).await
}

/// A page takes as long as schemas and results are, which their sources decide: others want to be answered meanwhile.
async fn made<T: Send + 'static>(
    house: House,
    visitor: Visitor,
    make: impl FnOnce(&Frame<'_>) -> T + Send + 'static,
) -> Result<T, Fault> {
    let made = tokio::task::spawn_blocking(move || make(&Frame { house: &house, visitor: &visitor })).await;
    made.map_err(|error| Fault(Error::new(Code::Internal, "the page could not be made").with_cause(error)))
}

/// The form was sent: the same page, with what came of it.
pub(super) async fn call(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
    headers: HeaderMap,
    filled: Fields,
) -> Result<Markup, Fault> {
    let detail = house.registry.tool_detail(&name)?;
    let (filled, read) = made(house.clone(), visitor.clone(), move |_| {
        let read = Form::of(&schema(&detail)).read(&filled);
        (filled, read)
    })
    .await?;
    let detail = house.registry.tool_detail(&name)?;
    let answered = match (filled.get(result::PAGE), read) {
        // Reads on in a large result; nothing is called.
        (Some(cursor), _) => house.registry.page(None, cursor),
        (None, Ok(arguments)) => {
            let frame = Frame { house: &house, visitor: &visitor };
            let consent = filled.get("consent").is_some() && frame.may(Needs::Managing);
            let options = CallOptions { consent, fleeting: true, ..CallOptions::default() };
            house.registry.call(&visitor.caller(), detail.view.name.as_str(), arguments, options).await
        }
        (None, Err(error)) => Err(error),
    };
    let detail = house.registry.tool_detail(&name)?;
    let past = past_of(&house, &detail, false).await;
    let host = host(&house, &headers);
    made(house, visitor, move |frame| {
        let answer = result::shown(frame, detail.view.name.as_str(), &answered);
        page(frame, &detail, &Asked { host, past, filled, answer })
    })
    .await
}

/// What the script sends when only numbers can have changed: it keeps the past as it is shown.
const PAST_KEPT: &str = "x-past-kept";

async fn past_of(house: &House, detail: &ToolDetail, all: bool) -> Markup {
    let history = past::of_tool(house, detail.view.name.as_str(), all).await;
    html! { section id="past" aria-labelledby="past-title" { h2 id="past-title" { "What changed" } (history) } }
}

/// Where this visitor reaches us, for the commands that the page shows.
fn host(house: &House, headers: &HeaderMap) -> String {
    let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let plain = asked.filter(|host| host.parse::<Authority>().is_ok());
    plain.map_or_else(|| house.access.address.to_string(), str::to_owned)
}

/// What a page shows beside the tool.
struct Asked {
    host: String,
    past: Markup,
    filled: Fields,
    answer: Markup,
}

fn schema(detail: &ToolDetail) -> Value {
    serde_json::from_str(detail.input_schema().get()).unwrap_or_default()
}

fn page(frame: &Frame<'_>, detail: &ToolDetail, asked: &Asked) -> Markup {
    let (view, schema) = (&detail.view, schema(detail));
    let output: Option<Value> = detail.output_schema().and_then(|raw| serde_json::from_str(raw.get()).ok());
    let hints = Hints::read(view.annotations.as_deref().map(|raw| raw.get()));
    let content = html! {
        nav.trail aria-label="Where you are" {
            a href="/tools" { "Tools" } " / "
            a href=(format!("/sources/{}", view.source)) { (view.source) }
            " / "
            span { (shown_short(&view.original_name, 80)) }
        }
        header.head data-source=(view.source) data-tool=(view.name) data-own=(view.original_name) {
            h1.code { (view.name) @if let Some(title) = &view.title { " " small { (shown_short(title, 120)) } } }
            (switch(frame, detail))
        }
        p.standing {
            @match view.state {
                catalog::State::Active => {
                    (state(Tone::Good, "active"))
                } catalog::State::Disabled => {
                    (state(Tone::Quiet, "disabled"))
                }
            }
            " " (hints.shown()) (verdict(view.policy)) @if detail.deprecated() {
                span.tag.warning { "deprecated" }
            }
        }
        div.split {
            div {
                div.description { (paragraphs(&view.description)) }
                pre.signature tabindex="0" { code { (shown(&outline::call_form(view.name.as_str(), &schema))) } }
                section aria-labelledby="arguments-title" {
                    h2 id="arguments-title" { "Arguments" } (tree::of(&schema, "It takes no arguments."))
                    @for note in &detail.notes { p.faint { "Note: " (past::named(note)) } }
                }
                @if let Some(output) = &output {
                    section aria-labelledby="answer-title" {
                        h2 id="answer-title" { "Answer" } (tree::of(output, "Its shape is not told."))
                    }
                }
                section aria-labelledby="use-title" {
                    h2 id="use-title" { "Use it" } (snippets::of(frame.house, &asked.host, detail, &schema))
                }
            }
            div {
                (attempt(frame, detail, &schema, asked))
                section.card aria-labelledby="facts-title" { h2 id="facts-title" { "Facts" } (facts(frame, detail)) }
            }
        }
        (asked.past)
        section aria-labelledby="raw-title" {
            h2 id="raw-title" { "As its source defines it" }
            details { summary { "Raw definition" } pre tabindex="0" { code { (shown(&pretty(&detail.definition))) } } }
        }
    };
    frame.page(Here::Tools, view.name.as_str(), content)
}

fn paragraphs(description: &str) -> Markup {
    let clean = shown(description);
    html! {
        @if clean.trim().is_empty() { p.faint { "Its source does not say what it does." } }
        @else {
            @for paragraph in clean.split("\n\n").filter(|text| !text.trim().is_empty()) {
                p { (past::named(paragraph.trim())) }
            }
        }
    }
}

fn switch(frame: &Frame<'_>, detail: &ToolDetail) -> Markup {
    let (action, word) = match detail.view.state {
        catalog::State::Active => ("disable", "Disable"),
        catalog::State::Disabled => ("enable", "Enable"),
    };
    html! {
        @if frame.may(Needs::Managing) {
            form method="post" action=(format!("{}/{action}", tool_path(detail.view.name.as_str()))) data-act {
                (guarded(frame.visitor)) button id="switch" { (word) }
            }
        }
    }
}

fn attempt(frame: &Frame<'_>, detail: &ToolDetail, schema: &Value, asked: &Asked) -> Markup {
    let view = &detail.view;
    // What somebody is filling in stays while the page follows what happens, unless it fits the tool no more.
    let kept = format!("{} {} {}", view.state.as_str(), view.policy.as_str(), detail.fingerprint);
    html! {
        section.card.attempt id="try" aria-labelledby="try-title" data-keep=(kept) {
            h2 id="try-title" { "Try it" }
            @if !frame.may(Needs::Using) { p.empty { "Calls need the agent role: " a href="/login" { "sign in" } "." } }
            @else if view.policy == Verdict::Deny { p.empty { "A rule denies every call of this tool." } }
            @else if view.state == catalog::State::Disabled { p.empty { "It is disabled; enable it to call it." } }
            @else {
                form.stack method="post" action=(format!("{}/call#try", tool_path(view.name.as_str()))) data-call {
                    (guarded(frame.visitor))
                    (Form::of(schema).shown(&asked.filled))
                    @if view.policy == Verdict::Ask {
                        label.check {
                            input type="checkbox" name="consent" value="yes" required;
                            span { "I have looked at the arguments: call it" }
                        }
                    }
                    p { button.primary { "Call" } }
                }
            }
            div id="answer" data-keep { (asked.answer) }
        }
    }
}

fn facts(frame: &Frame<'_>, detail: &ToolDetail) -> Markup {
    let (view, catalog) = (&detail.view, frame.house.registry.catalog());
    // Asked for so that counting begins.
    let _ = frame.house.activity.costs.of(&frame.house.registry);
    let tool = catalog.find(view.name.as_str()).ok().filter(|tool| tool.part.segment.is_counted());
    let tokens = tool.map(|tool| tool.part.segment.tokens(tool.entry));
    html! {
        dl.facts {
            div {
                dt { "Source" }
                dd { a href=(format!("/sources/{}", view.source)) { (view.source) } " (" (kind(&detail.kind)) ")" }
            }
            @if view.original_name != view.name.as_str() {
                div { dt { "Its own name" } dd { code { (shown_short(&view.original_name, 120)) } } }
            }
            div {
                dt { "Costs" }
                dd {
                    @match tokens {
                        Some(tokens) => { (grouped(u64::from(tokens))) " tokens" }
                        None => { span data-pending { "being counted…" } }
                    }
                }
            }
            div { dt { "Calls" } dd { (grouped(detail.calls)) ", " (grouped(detail.errors)) " failed" } }
            div { dt { "Last used" } dd { (ago_or(detail.last_called, "never")) } }
            @if let Some(error) = &detail.last_error {
                div {
                    dt { "Last error" }
                    dd.message { code { (error.code.as_str()) } " " (past::named(&shown_short(&error.message, 200))) }
                }
            }
            @if let (Some(method), Some(url)) = (&detail.execution.method, &detail.execution.url_template) {
                div { dt { "Carried out by" } dd { code { (method) " " (shown_short(url, 160)) } } }
            }
            @else { div { dt { "Carried out by" } dd { (detail.execution.mode.replace('_', " ")) } } }
            @if !detail.tags.is_empty() {
                div { dt { "Tags" } dd { @for tag in &detail.tags { span.tag { (shown_short(tag, 40)) } } } }
            }
            div { dt { "First seen" } dd { (ago(detail.created_at)) } }
            div { dt { "Last changed" } dd { (ago(detail.updated_at)) } }
            div { dt { "Fingerprint" } dd { code { (detail.fingerprint.short(12)) } } }
        }
    }
}

/// JSON in lines, whatever it is.
pub(super) fn pretty(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

/// What a visitor did wrong in a form, where a call never began.
pub(super) fn wrong(message: String) -> Error {
    Error::new(Code::ToolInvalidInput, message)
}

/// How long a call took, for a line below its result.
fn took(millis: u64) -> String {
    format!("took {}", lasted(millis))
}
