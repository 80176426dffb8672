//! `/access/callers`: the tools that a caller sees, with the verdict on each.
//!
//! The caller is a local process, the holder of a token, or the holder of an access token with claims that are pasted.
//! Claims are personal data, so they are posted and never part of an address.

use axum::extract::RawQuery;
use maud::{Markup, html};
use serde_json::{Map, Value};
use toolcrib::catalog::ToolRef;
use toolcrib::catalog::search::Query;
use toolcrib::core::access::Role;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::PreviewCaller;
use toolcrib::{Principal, Registry};

use super::draft::DraftError;
use super::fields::FieldRenderer;
use super::tool_callers::render_rules;
use crate::auth::AuthorizedRequest;
use crate::console::activity_list::tool_path;
use crate::console::csrf_field;
use crate::console::form_data::FormData;
use crate::console::page::{NavItem, PageContext};
use crate::console::text::{format_count, format_number};
use crate::console::tool::render_blocking;
use crate::console::tools::verdict_badge;
use crate::rest::ApiError;

/// Maximum number of tools that are listed.
const MAX_TOOLS: usize = 200;
/// Value of the field `caller` for local processes.
const LOCAL: &str = "local";
/// Value of the field `caller` for claims that are pasted.
const CLAIMS: &str = "claims";
/// Prefix of the field `caller` before the id of a token.
const TOKEN_PREFIX: &str = "token:";

/// Renders the page for the caller in the query, such as `?caller=token:1f2e…`.
pub(super) async fn show(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    RawQuery(query): RawQuery,
) -> Result<Markup, ApiError> {
    let form = CallerForm::from_form(&FormData::parse(query.as_deref().unwrap_or_default()));
    render_blocking(app, client, move |context| render_page(context, &form)).await
}

/// Renders the page for the caller in the form.
pub(super) async fn submit(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    form_data: FormData,
) -> Result<Markup, ApiError> {
    let form = CallerForm::from_form(&form_data);
    render_blocking(app, client, move |context| render_page(context, &form)).await
}

/// Returns the address of the page for a token.
pub(super) fn token_url(id: &str) -> String {
    format!("/access/callers?caller={TOKEN_PREFIX}{id}")
}

/// Fields of the form.
struct CallerForm {
    caller: String,
    claims: String,
    query: String,
}

impl CallerForm {
    fn from_form(form_data: &FormData) -> CallerForm {
        let text = |key: &str| form_data.get_text(key).unwrap_or_default().to_owned();
        let caller = form_data.get_text("caller").unwrap_or(LOCAL).to_owned();
        CallerForm { caller, claims: text("claims"), query: text("q") }
    }

    /// Returns the caller.
    fn principal(&self, registry: &Registry) -> Result<Principal, DraftError> {
        let of_field =
            |field: &str, message: String| DraftError { field: field.to_owned(), ..DraftError::general(message) };
        let caller = match self.caller.strip_prefix(TOKEN_PREFIX) {
            Some(id) => PreviewCaller::Token(id.to_owned()),
            None if self.caller == CLAIMS => {
                let claims = if self.claims.is_empty() { "{}" } else { &self.claims };
                // The error of the parser quotes nothing of the text, which is personal data.
                let claims: Map<String, Value> = serde_json::from_str(claims).map_err(|error| {
                    let (line, column) = (error.line(), error.column());
                    of_field("claims", format!("expected a JSON object; see line {line}, column {column}"))
                })?;
                PreviewCaller::Claims(claims)
            }
            None => return Ok(Principal::local(LOCAL)),
        };
        registry.rules().preview_principal(&caller).map_err(|error| {
            of_field(
                if self.caller == CLAIMS { "claims" } else { "caller" },
                error.message_without_next_step().to_owned(),
            )
        })
    }
}

fn render_page(context: &PageContext<'_>, form: &CallerForm) -> Markup {
    let principal = form.principal(&context.app.registry);
    let errors: &[DraftError] = principal.as_ref().err().map(std::slice::from_ref).unwrap_or_default();
    let fields = FieldRenderer { errors };
    let tokens = context.app.registry.tokens().list();
    let tokens = tokens.iter().map(|token| (format!("{TOKEN_PREFIX}{}", token.id), format!("token {}", token.name)));
    let mut callers = vec![(LOCAL.to_owned(), "a local process without a token".to_owned())];
    callers.extend(tokens);
    callers.push((CLAIMS.to_owned(), "an access token with these claims".to_owned()));
    let content = html! {
        nav.trail aria-label="Breadcrumb" { a href="/access" { "Access" } " / " span { "Preview as a caller" } }
        header.head { h1 { "Preview as a caller" } }
        form.stack.card.narrow.caller id="caller" method="post" action="/access/callers" data-preview="preview" data-static {
            (csrf_field(context.client))
            (fields.select("caller", "Caller", &form.caller, &callers, "Its role, groups and claims decide"))
            div.for-claims {
                (fields.multiline("claims", "Claims", &form.claims, "{ \"realm_access\": { \"roles\": [\"support\"] } }",
                    "Payload of the access token as JSON; the configuration of its issuer gives the role"))
            }
            (fields.text("q", "Search", &form.query, "find a ticket", "The search of agents; empty: all tools"))
            p { button { "Show" } }
        }
        section id="preview" aria-label="Tools of the caller" {
            @match &principal {
                Ok(principal) => { (render_tools(context, principal, &form.query)) }
                Err(error) => { p.message data-announce { (error.message) } }
            }
        }
    };
    context.render_page(NavItem::Access, "Preview as a caller", content)
}

/// Renders the tools that a caller sees, each with the rules that led to its verdict.
fn render_tools(context: &PageContext<'_>, principal: &Principal, query: &str) -> Markup {
    let (registry, reader) = (&context.app.registry, &context.client.principal);
    let mut view = registry.view(principal);
    // The reader's own token may be limited to groups.
    if registry.scope(reader).limits_tools() {
        let own_view = context.catalog_view();
        view = view.restrict(|tool| own_view.included_tool(tool.source(), tool.original_name()).is_some());
    }
    let rules = registry.rules().in_force();
    let scope = rules.scope(principal);
    // Administrators see denied, hidden and disabled tools too.
    let is_admin = principal.role() == Role::Admin;
    let all: Vec<ToolRef<'_>> = if is_admin { view.listed_tools().collect() } else { view.offered_tools().collect() };
    let total = all.len();
    let tools: Vec<ToolRef<'_>> = if query.is_empty() {
        all
    } else {
        let results = view.search(&Query::new(query).with_limit(MAX_TOOLS));
        let names = results.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
        names.filter_map(|name| view.find(name.as_str()).ok()).collect()
    };
    html! {
        p data-announce {
            "Sees " b { (format_count(total, "tool")) }
            @match scope.groups() {
                None => { @if rules.restrict_access() { ", limited by no access rule." } @else { ": no access rule limits it." } }
                Some([]) => { ": no group is given to it." }
                Some(groups) => {
                    " of " @for (index, group) in groups.iter().enumerate() { @if index > 0 { ", " } code { (group.name) } } "."
                }
            }
            @if !query.is_empty() { " " (format_count(tools.len(), "match")) "." }
        }
        @if !tools.is_empty() {
            table.list.rules {
                caption.unseen { "Tools of the caller with verdicts and the rules that led to them" }
                thead { tr { th scope="col" { "Tool" } th scope="col" { "Verdict" } } }
                tbody {
                    @for tool in tools.iter().take(MAX_TOOLS) {
                        tr {
                            th scope="row" {
                                a.name href=(tool_path(tool.name().as_str())) { (sanitize_truncated(tool.name().as_str(), 120)) }
                                @if let Ok(explanation) = registry.rules().explain(reader, principal, tool.name().as_str()) {
                                    span.under { (render_rules(&explanation)) }
                                }
                            }
                            td data-label="Verdict" { (render_verdict(tool.verdict())) }
                        }
                    }
                }
            }
            @if tools.len() > MAX_TOOLS { p.faint { "The first " (format_number(MAX_TOOLS)) " are listed." } }
        }
    }
}

/// Renders a verdict in a word.
pub(in crate::console) fn render_verdict(verdict: Verdict) -> Markup {
    match verdict {
        Verdict::Allow => html! { "allowed" },
        Verdict::Ask | Verdict::Deny | Verdict::Hide => verdict_badge(verdict),
    }
}
