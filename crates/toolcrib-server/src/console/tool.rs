//! `/tools/{name}`: one tool: what it does, what it takes, a form to try it, how to hand it to a model, its past.

pub(super) mod form;
mod result;
mod schema_tree;
mod snippets;

mod example;
mod schema_type;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::catalog;
use toolcrib::core::outline;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::ToolDetail;
use toolcrib::{CallOptions, Code, Error};

use super::activity_list::tool_path;
use super::form_data::FormData;
use super::page::{NavItem, PageContext};
use super::text::{Tone, format_millis, format_number, kind_name, state_badge, time_ago, time_ago_or};
use super::tools::{EffectHints, verdict_badge};
use super::{csrf_field, history};
use crate::auth::{Permission, Principal};
use crate::rest::ApiError;
use crate::state::AppState;
use form::ArgumentForm;

pub(super) async fn show(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Markup, ApiError> {
    let detail = app.registry.tool_detail(&name)?;
    let all = FormData::parse(query.as_deref().unwrap_or_default()).get("versions").is_some();
    let past = match headers.contains_key(KEEP_HISTORY_HEADER) {
        true => html! { section id="past" data-kept {} },
        false => render_history(&app, &detail, all).await,
    };
    let asked = ToolPageContent {
        host: request_host(&app, &headers),
        history: past,
        form_data: FormData::default(),
        result: result::render_empty(),
    };
    render_blocking(app, principal, move |context| render_page(context, &detail, &asked)).await
}

/// A page takes as long as schemas and results are, which their sources decide: others want to be answered meanwhile.
async fn render_blocking<T: Send + 'static>(
    app: AppState,
    principal: Principal,
    make: impl FnOnce(&PageContext<'_>) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let made = tokio::task::spawn_blocking(move || make(&PageContext { app: &app, principal: &principal })).await;
    made.map_err(|error| ApiError(Error::new(Code::Internal, "the page could not be made").with_cause(error)))
}

/// The form was sent: the same page, with what came of it.
pub(super) async fn call_tool(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    headers: HeaderMap,
    filled: FormData,
) -> Result<Markup, ApiError> {
    let detail = app.registry.tool_detail(&name)?;
    let (filled, read) = render_blocking(app.clone(), principal.clone(), move |_| {
        let read = ArgumentForm::from_schema(&input_schema(&detail)).parse(&filled);
        (filled, read)
    })
    .await?;
    let detail = app.registry.tool_detail(&name)?;
    let answered = match (filled.get(result::PAGE_FIELD_NAME), read) {
        // Reads on in a large result; nothing is called.
        (Some(cursor), _) => app.registry.result_page(None, cursor),
        (None, Ok(arguments)) => {
            let context = PageContext { app: &app, principal: &principal };
            let consent = filled.get("consent").is_some() && context.is_allowed(Permission::Manage);
            let options = CallOptions { consent, stateless: true, ..CallOptions::default() };
            app.registry.call(&principal.caller(), detail.view.name.as_str(), arguments, options).await
        }
        (None, Err(error)) => Err(error),
    };
    let detail = app.registry.tool_detail(&name)?;
    let past = render_history(&app, &detail, false).await;
    let host = request_host(&app, &headers);
    render_blocking(app, principal, move |context| {
        let answer = result::render_result(context, detail.view.name.as_str(), &answered);
        render_page(context, &detail, &ToolPageContent { host, history: past, form_data: filled, result: answer })
    })
    .await
}

/// What the script sends when only numbers can have changed: it keeps the past as it is shown.
const KEEP_HISTORY_HEADER: &str = "x-past-kept";

async fn render_history(app: &AppState, detail: &ToolDetail, all: bool) -> Markup {
    let history = history::render_tool_history(app, detail.view.name.as_str(), all).await;
    html! { section id="past" aria-labelledby="past-title" { h2 id="past-title" { "What changed" } (history) } }
}

/// Where this visitor reaches us, for the commands that the page shows.
fn request_host(app: &AppState, headers: &HeaderMap) -> String {
    let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let plain = asked.filter(|host| host.parse::<Authority>().is_ok());
    plain.map_or_else(|| app.auth.address.to_string(), str::to_owned)
}

/// What a page shows beside the tool.
struct ToolPageContent {
    host: String,
    history: Markup,
    form_data: FormData,
    result: Markup,
}

fn input_schema(detail: &ToolDetail) -> Value {
    serde_json::from_str(detail.input_schema().get()).unwrap_or_default()
}

fn render_page(context: &PageContext<'_>, detail: &ToolDetail, asked: &ToolPageContent) -> Markup {
    let (view, schema) = (&detail.view, input_schema(detail));
    let output: Option<Value> = detail.output_schema().and_then(|raw| serde_json::from_str(raw.get()).ok());
    let hints = EffectHints::parse(view.annotations.as_deref().map(|raw| raw.get()));
    let content = html! {
        nav.trail aria-label="Where you are" {
            a href="/tools" { "Tools" } " / "
            a href=(format!("/sources/{}", view.source)) { (view.source) }
            " / "
            span { (sanitize_truncated(&view.original_name, 80)) }
        }
        header.head data-source=(view.source) data-tool=(view.name) data-own=(view.original_name) {
            h1.code { (view.name) @if let Some(title) = &view.title { " " small { (sanitize_truncated(title, 120)) } } }
            (render_enable_button(context, detail))
        }
        p.standing {
            @match view.state {
                catalog::ToolStatus::Active => {
                    (state_badge(Tone::Good, "active"))
                } catalog::ToolStatus::Disabled => {
                    (state_badge(Tone::Quiet, "disabled"))
                }
            }
            " " (hints.render()) (verdict_badge(view.policy)) @if detail.is_deprecated() {
                span.tag.warning { "deprecated" }
            }
        }
        div.split {
            div {
                div.description { (render_paragraphs(&view.description)) }
                pre.signature tabindex="0" { code { (sanitize(&outline::call_signature(view.name.as_str(), &schema))) } }
                section aria-labelledby="arguments-title" {
                    h2 id="arguments-title" { "Arguments" } (schema_tree::render_schema(&schema, "It takes no arguments."))
                    @for note in &detail.notes { p.faint { "Note: " (history::render_code_spans(note)) } }
                }
                @if let Some(output) = &output {
                    section aria-labelledby="answer-title" {
                        h2 id="answer-title" { "Answer" } (schema_tree::render_schema(output, "Its shape is not told."))
                    }
                }
                section aria-labelledby="use-title" {
                    h2 id="use-title" { "Use it" } (snippets::render_snippets(context.app, &asked.host, detail, &schema))
                }
            }
            div {
                (render_try_form(context, detail, &schema, asked))
                section.card aria-labelledby="facts-title" { h2 id="facts-title" { "Facts" } (render_facts(context, detail)) }
            }
        }
        (asked.history)
        section aria-labelledby="raw-title" {
            h2 id="raw-title" { "As its source defines it" }
            details { summary { "Raw definition" } pre tabindex="0" { code { (sanitize(&pretty_json(&detail.definition))) } } }
        }
    };
    context.render_page(NavItem::Tools, view.name.as_str(), content)
}

fn render_paragraphs(description: &str) -> Markup {
    let clean = sanitize(description);
    html! {
        @if clean.trim().is_empty() { p.faint { "Its source does not say what it does." } }
        @else {
            @for paragraph in clean.split("\n\n").filter(|text| !text.trim().is_empty()) {
                p { (history::render_code_spans(paragraph.trim())) }
            }
        }
    }
}

fn render_enable_button(context: &PageContext<'_>, detail: &ToolDetail) -> Markup {
    let (action, word) = match detail.view.state {
        catalog::ToolStatus::Active => ("disable", "Disable"),
        catalog::ToolStatus::Disabled => ("enable", "Enable"),
    };
    html! {
        @if context.is_allowed(Permission::Manage) {
            form method="post" action=(format!("{}/{action}", tool_path(detail.view.name.as_str()))) data-act {
                (csrf_field(context.principal)) button id="switch" { (word) }
            }
        }
    }
}

fn render_try_form(context: &PageContext<'_>, detail: &ToolDetail, schema: &Value, asked: &ToolPageContent) -> Markup {
    let view = &detail.view;
    // What somebody is filling in stays while the page follows what happens, unless it fits the tool no more.
    let kept = format!("{} {} {}", view.state.as_str(), view.policy.as_str(), detail.fingerprint);
    html! {
        section.card.attempt id="try" aria-labelledby="try-title" data-keep=(kept) {
            h2 id="try-title" { "Try it" }
            @if !context.is_allowed(Permission::Use) { p.empty { "Calls need the agent role: " a href="/login" { "sign in" } "." } }
            @else if view.policy == Verdict::Deny { p.empty { "A rule denies every call of this tool." } }
            @else if view.state == catalog::ToolStatus::Disabled { p.empty { "It is disabled; enable it to call it." } }
            @else {
                form.stack method="post" action=(format!("{}/call#try", tool_path(view.name.as_str()))) data-call {
                    (csrf_field(context.principal))
                    (ArgumentForm::from_schema(schema).render(&asked.form_data))
                    @if view.policy == Verdict::Ask {
                        label.check {
                            input type="checkbox" name="consent" value="yes" required;
                            span { "I have looked at the arguments: call it" }
                        }
                    }
                    p { button.primary { "Call" } }
                }
            }
            div id="answer" data-keep { (asked.result) }
        }
    }
}

fn render_facts(context: &PageContext<'_>, detail: &ToolDetail) -> Markup {
    let (view, catalog) = (&detail.view, context.app.registry.catalog());
    // Asked for so that counting begins.
    let _ = context.app.activity.token_costs.get_or_request(&context.app.registry);
    let tool = catalog.find(view.name.as_str()).ok().filter(|tool| tool.catalog_source.segment.has_token_counts());
    let tokens = tool.map(|tool| tool.catalog_source.segment.token_count(tool.entry));
    html! {
        dl.facts {
            div {
                dt { "Source" }
                dd { a href=(format!("/sources/{}", view.source)) { (view.source) } " (" (kind_name(&detail.kind)) ")" }
            }
            @if view.original_name != view.name.as_str() {
                div { dt { "Its own name" } dd { code { (sanitize_truncated(&view.original_name, 120)) } } }
            }
            div {
                dt { "Costs" }
                dd {
                    @match tokens {
                        Some(tokens) => { (format_number(u64::from(tokens))) " tokens" }
                        None => { span data-pending { "being counted…" } }
                    }
                }
            }
            div { dt { "Calls" } dd { (format_number(detail.calls)) ", " (format_number(detail.errors)) " failed" } }
            div { dt { "Last used" } dd { (time_ago_or(detail.last_called, "never")) } }
            @if let Some(error) = &detail.last_error {
                div {
                    dt { "Last error" }
                    dd.message { code { (error.code.as_str()) } " " (history::render_code_spans(&sanitize_truncated(&error.message, 200))) }
                }
            }
            @if let (Some(method), Some(url)) = (&detail.execution.method, &detail.execution.url_template) {
                div { dt { "Carried out by" } dd { code { (method) " " (sanitize_truncated(url, 160)) } } }
            }
            @else { div { dt { "Carried out by" } dd { (detail.execution.mode.replace('_', " ")) } } }
            @if !detail.tags.is_empty() {
                div { dt { "Tags" } dd { @for tag in &detail.tags { span.tag { (sanitize_truncated(tag, 40)) } } } }
            }
            div { dt { "First seen" } dd { (time_ago(detail.created_at)) } }
            div { dt { "Last changed" } dd { (time_ago(detail.updated_at)) } }
            div { dt { "Fingerprint" } dd { code { (detail.fingerprint.short_hex(12)) } } }
        }
    }
}

/// JSON in lines, whatever it is.
pub(super) fn pretty_json(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

/// What a visitor did wrong in a form, where a call never began.
pub(super) fn invalid_input(message: String) -> Error {
    Error::new(Code::ToolInvalidInput, message)
}

/// How long a call took, for a line below its result.
fn elapsed_text(millis: u64) -> String {
    format!("took {}", format_millis(millis))
}
