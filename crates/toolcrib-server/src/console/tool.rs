//! `/tools/{name}`: description, arguments, a form to call it, snippets, facts and history of one tool.
//!
//! The page is rendered on a blocking thread, because schemas, definitions and results may be large. Its parts:
//! - `schema_tree`: the arguments and the result, to read;
//! - `form`: the arguments, to fill in; it parses the submitted form too;
//! - `result`: the outcome of a call;
//! - `tool_callers` of the Access page: who may use it, for administrators;
//! - `snippets`: the call as a command, and the definition for each provider, with arguments of `example`.

pub(super) mod form;
mod result;
mod schema_tree;
mod snippets;

mod example;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use maud::{Markup, html};
use serde_json::Value;
use toolcrib::catalog;
use toolcrib::catalog::outline;
use toolcrib::core::json::{parse_exact, to_exact_string_pretty};
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::{FoundTool, ToolView};
use toolcrib::{CallContext, Code, Error};

use super::access::tool_callers;
use super::activity_list::tool_path;
use super::form_data::FormData;
use super::page::{NavItem, PageContext};
use super::text::{Tone, format_millis, format_number, kind_name, state_badge, time_ago, time_ago_or};
use super::tools::{ListedHints, verdict_badge};
use super::{csrf_field, history};
use crate::auth::{AuthenticatedClient, Permission};
use crate::rest::ApiError;
use crate::state::AppState;
use form::ArgumentForm;

/// Renders the page.
pub(super) async fn show(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Markup, ApiError> {
    let view = match app.registry.history().find_tool(&client.principal, &name).await? {
        FoundTool::Offered(tool) => *tool,
        FoundTool::Removed(tool) => match tool.definition {
            Some(definition) => definition,
            // Its last definition is lost; the error says when it was removed.
            None => app.registry.tool_for(&client.principal, &name)?,
        },
    };
    let all = FormData::parse(query.as_deref().unwrap_or_default()).get("versions").is_some();
    let history = if headers.contains_key(KEEP_HISTORY_HEADER) {
        html! { section id="history" data-kept {} }
    } else {
        render_history(&PageContext { app: &app, client: &client }, &view, all).await
    };
    let page_content = ToolPageContent {
        host: request_host(&app, &headers),
        history,
        form_data: FormData::default(),
        result: result::render_empty(),
    };
    render_blocking(app, client, move |context| render_page(context, &view, &page_content)).await
}

/// Renders on a blocking thread. Sources decide how large schemas and results are, so rendering may take too long for an
/// async thread.
pub(super) async fn render_blocking<T: Send + 'static>(
    app: AppState,
    client: AuthenticatedClient,
    render: impl FnOnce(&PageContext<'_>) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let rendered = tokio::task::spawn_blocking(move || render(&PageContext { app: &app, client: &client })).await;
    rendered.map_err(|error| ApiError(Error::new(Code::Internal, "rendering the page failed").with_cause(error)))
}

/// Handles the submitted form: calls the tool, or reads a page of an earlier result, and renders the page with the result.
pub(super) async fn call_tool(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form_data: FormData,
) -> Result<Markup, ApiError> {
    let view = app.registry.tool_for(&client.principal, &name)?;
    let (form_data, arguments) = render_blocking(app.clone(), client.clone(), move |_| {
        // The form is built again from the schema, because it decides how each text is parsed.
        let arguments = ArgumentForm::from_schema(&input_schema(&view)).parse(&form_data);
        (form_data, arguments)
    })
    .await?;
    let view = app.registry.tool_for(&client.principal, &name)?;
    // As for REST: only an administrator may consent.
    let may_consent = PageContext { app: &app, client: &client }.is_allowed(Permission::Manage);
    let consent = form_data.get("consent").is_some() && may_consent;
    let context = CallContext { caller: client.caller(), consent, stateless: true, ..CallContext::default() };
    let result = match (form_data.get(result::PAGE_FIELD_NAME), arguments) {
        // A further page of a large result; nothing is called.
        (Some(cursor), _) => app.registry.result_page(cursor, &context),
        (None, Ok(arguments)) => app.registry.call(view.name.as_str(), arguments).context(context).await,
        (None, Err(error)) => Err(error),
    };
    // Read again, because the call changed the counters.
    let view = app.registry.tool_for(&client.principal, &name)?;
    let history = render_history(&PageContext { app: &app, client: &client }, &view, false).await;
    let host = request_host(&app, &headers);
    render_blocking(app, client, move |context| {
        let result = result::render_result(context, view.name.as_str(), &result);
        render_page(context, &view, &ToolPageContent { host, history, form_data, result })
    })
    .await
}

/// Sent by the script when only counters can have changed: it keeps the history that is on the page, which is expensive
/// to render.
const KEEP_HISTORY_HEADER: &str = "x-keep-history";

/// Renders the section with the versions of the tool.
async fn render_history(context: &PageContext<'_>, view: &ToolView, all: bool) -> Markup {
    let history = history::render_tool_history(context, view.name.as_str(), all).await;
    html! { section id="history" aria-labelledby="history-title" { h2 id="history-title" { "Changes" } (history) } }
}

/// Returns the host and port by which the browser reaches the server, for the commands on the page.
fn request_host(app: &AppState, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // The header is under the control of the client and ends up in a command that a person copies.
    let valid = host.filter(|host| host.parse::<Authority>().is_ok());
    valid.map_or_else(|| app.auth.address.to_string(), str::to_owned)
}

/// Parts of the page that do not come from the tool itself.
struct ToolPageContent {
    host: String,
    history: Markup,
    /// Values of the form, to fill it in again after a call.
    form_data: FormData,
    /// The rendered result of the last call.
    result: Markup,
}

/// Returns the complete input schema; `null` for one that is not valid JSON.
fn input_schema(view: &ToolView) -> Value {
    parse_exact(view.input_schema().get()).unwrap_or_default()
}

/// Renders the page. That of a removed tool has its last definition, and nothing to do with it. Runs on a blocking thread.
fn render_page(context: &PageContext<'_>, view: &ToolView, page_content: &ToolPageContent) -> Markup {
    let schema = input_schema(view);
    let output: Option<Value> = view.output_schema().and_then(|raw| parse_exact(raw.get()).ok());
    let hints = ListedHints::parse(&view.tool.listing);
    let is_removed = view.history.deprecated;
    let content = html! {
        nav.trail aria-label="Breadcrumb" {
            a href="/tools" { "Tools" } " / "
            a href=(format!("/sources/{}", view.source)) { (view.source) }
            " / "
            span { (sanitize_truncated(&view.tool.name, 80)) }
        }
        header.head data-source=(view.source) data-tool=(view.name) data-own=(view.tool.name) {
            h1.code { (view.name) @if let Some(title) = &view.tool.listing.title { " " small { (sanitize_truncated(title, 120)) } } }
            @if !is_removed { (render_enable_button(context, view)) }
        }
        p.standing {
            @match view.state() {
                _ if is_removed => {
                    (state_badge(Tone::Bad, "removed"))
                } catalog::ToolStatus::Active => {
                    (state_badge(Tone::Good, "active"))
                } catalog::ToolStatus::Disabled => {
                    (state_badge(Tone::Quiet, "disabled"))
                }
            }
            " " (hints.render()) @if let Some(policy) = view.policy { (verdict_badge(policy)) } @if view.is_deprecated() {
                span.tag.warning { "deprecated" }
            }
        }
        @if is_removed {
            p { "Removed " (time_ago(view.history.updated_at)) ": its source no longer offers it. This is its last definition." }
        }
        div.split {
            div {
                div.description { (render_paragraphs(&view.tool.listing.description)) }
                pre.signature tabindex="0" { code { (sanitize(&outline::call_signature(view.name.as_str(), &schema))) } }
                section aria-labelledby="arguments-title" {
                    h2 id="arguments-title" { "Arguments" } (schema_tree::render_schema(&schema, "It takes no arguments."))
                    @for note in &view.notes() { p.faint { "Note: " (history::render_code_spans(note)) } }
                }
                @if let Some(output) = &output {
                    section aria-labelledby="answer-title" {
                        h2 id="answer-title" { "Result" } (schema_tree::render_schema(output, "The schema has no properties."))
                    }
                }
                @if !is_removed {
                    section aria-labelledby="use-title" {
                        h2 id="use-title" { "Use it" } (snippets::render_snippets(context, &page_content.host, view, &schema))
                    }
                }
            }
            div {
                @if !is_removed { (render_try_form(context, view, &schema, page_content)) }
                section.card aria-labelledby="facts-title" { h2 id="facts-title" { "Facts" } (render_facts(context, view)) }
            }
        }
        @if !is_removed { (tool_callers::render_section(context, view.name.as_str())) }
        (page_content.history)
        section aria-labelledby="raw-title" {
            h2 id="raw-title" { "Definition by the source" }
            details { summary { "Raw definition" } pre tabindex="0" { code { (sanitize(&pretty_json(&view.tool.to_offered_fields()))) } } }
        }
    };
    context.render_page(NavItem::Tools, view.name.as_str(), content)
}

/// Renders the description, with a paragraph for each blank line.
fn render_paragraphs(description: &str) -> Markup {
    let text = sanitize(description);
    html! {
        @if text.trim().is_empty() { p.faint { "The source gives no description." } }
        @else {
            @for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
                p { (history::render_code_spans(paragraph.trim())) }
            }
        }
    }
}

/// Renders the button that enables or disables the tool, for those who may.
fn render_enable_button(context: &PageContext<'_>, view: &ToolView) -> Markup {
    let (action, label) = match view.state() {
        catalog::ToolStatus::Active => ("disable", "Disable"),
        catalog::ToolStatus::Disabled => ("enable", "Enable"),
    };
    html! {
        @if context.is_allowed(Permission::Manage) {
            form method="post" action=(format!("{}/{action}", tool_path(view.name.as_str()))) data-act {
                (csrf_field(context.client)) button id="switch" { (label) }
            }
        }
    }
}

/// Renders the form that calls the tool, or the reason why it cannot be called.
fn render_try_form(
    context: &PageContext<'_>,
    view: &ToolView,
    schema: &Value,
    page_content: &ToolPageContent,
) -> Markup {
    // On a live update the script keeps the form with its input as long as this key stays the same.
    let keep_key =
        format!("{} {} {}", view.state().as_str(), view.policy.map_or("", Verdict::as_str), view.fingerprint);
    html! {
        section.card.attempt id="try" aria-labelledby="try-title" data-keep=(keep_key) {
            h2 id="try-title" { "Try it" }
            @if !context.is_allowed(Permission::Use) { p.empty { "Calls need the agent role: " a href="/login" { "sign in" } "." } }
            @else if view.policy == Some(Verdict::Deny) { p.empty { "A rule of its source or a policy denies every call of this tool." } }
            @else if view.state() == catalog::ToolStatus::Disabled { p.empty { "The tool is disabled; enable it to call it." } }
            @else {
                form.stack method="post" action=(format!("{}/call#try", tool_path(view.name.as_str()))) data-call {
                    (csrf_field(context.client))
                    (ArgumentForm::from_schema(schema).render(&page_content.form_data))
                    @if view.policy == Some(Verdict::Ask) {
                        label.check {
                            input type="checkbox" name="consent" value="yes" required;
                            span { "I have checked the arguments and consent to the call" }
                        }
                    }
                    p { button.primary { "Call" } }
                }
            }
            // Kept on live updates, which would otherwise replace the result by an empty one.
            div id="answer" data-keep { (page_content.result) }
        }
    }
}

/// Renders source, costs, counters and dates of the tool.
fn render_facts(context: &PageContext<'_>, view: &ToolView) -> Markup {
    let catalog_view = context.catalog_view();
    // The result is not needed; this starts the count if necessary.
    let _ = context.app.activity.token_costs.get_or_request(&catalog_view);
    let tool = catalog_view.find(view.name.as_str()).ok().filter(|tool| tool.catalog_source.segment.has_token_counts());
    let tokens = tool.map(|tool| tool.catalog_source.segment.token_count(tool.entry));
    let execution = view.execution();
    let tags = view.tags();
    html! {
        dl.facts {
            div {
                dt { "Source" }
                dd { a href=(format!("/sources/{}", view.source)) { (view.source) } " (" (kind_name(&view.kind)) ")" }
            }
            @if view.tool.name != view.name.as_str() {
                div { dt { "Original name" } dd { code { (sanitize_truncated(&view.tool.name, 120)) } } }
            }
            // Lists do not have a removed tool, so it costs nothing.
            @if !view.history.deprecated {
                div {
                    dt { "Cost" }
                    dd {
                        @match tokens {
                            Some(tokens) => { (format_number(u64::from(tokens))) " tokens" }
                            None => { span data-pending { "counting…" } }
                        }
                    }
                }
            }
            @if let Some(usage) = &view.usage {
                div { dt { "Calls" } dd { (format_number(usage.calls)) ", " (format_number(usage.errors)) " failed" } }
                div { dt { "Last used" } dd { (time_ago_or(usage.last_called, "never")) } }
            }
            @if let Some(error) = view.usage.as_ref().and_then(|usage| usage.last_error.as_ref()) {
                div {
                    dt { "Last error" }
                    dd.message { code { (error.code.as_str()) } " " (history::render_code_spans(&sanitize_truncated(&error.message, 200))) }
                }
            }
            @if let (Some(method), Some(url)) = (&execution.method, &execution.url_template) {
                div { dt { "Execution" } dd { code { (method) " " (sanitize_truncated(url, 160)) } } }
            }
            @if let Some(request) = &execution.request {
                div {
                    dt { "Headers" }
                    dd {
                        @for (name, value) in &request.headers {
                            code { (sanitize_truncated(&format!("{name}: {}", value.as_str().unwrap_or_default()), 160)) } " "
                        }
                    }
                }
                @if let Some(body) = &request.body {
                    div { dt { "Body" } dd { code { (sanitize_truncated(&body.template, 160)) } " as " (body.content_type) } }
                }
            }
            @if execution.method.is_none() { div { dt { "Execution" } dd { (execution.mode.replace('_', " ")) } } }
            @if !tags.is_empty() {
                div { dt { "Tags" } dd { @for tag in &tags { span.tag { (sanitize_truncated(tag, 40)) } } } }
            }
            div { dt { "First seen" } dd { (time_ago(view.history.created_at)) } }
            div { dt { "Last changed" } dd { (time_ago(view.history.updated_at)) } }
            div { dt { "Fingerprint" } dd { code { (view.fingerprint.short_hex(12)) } } }
        }
    }
}

/// Formats a value as indented JSON.
pub(super) fn pretty_json(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    to_exact_string_pretty(&value).unwrap_or_default()
}

/// Error of a form with invalid input, before any call.
pub(super) fn invalid_input(message: String) -> Error {
    Error::new(Code::ToolInvalidInput, message)
}

/// Formats the duration of a call.
fn elapsed_text(millis: u64) -> String {
    format!("took {}", format_millis(millis))
}
