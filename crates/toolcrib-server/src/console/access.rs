//! `/access`: groups, access rules, policies and tokens, for administrators.
//!
//! The page lists them; each is created and changed on a page of its own:
//! - `rule_page`: groups, access rules and policies. Their definition is a `draft`, edited with `rule_form` or as `yaml`;
//!   `rule_preview` shows what it would do before it is saved;
//! - `tokens`: tokens, with the secret of a new one;
//! - `callers`: the tools that a caller sees.
//!
//! `verdict_filter` is a form on the page, `tool_callers` a section of the page of a tool.

mod callers;
mod rule_page;
mod tokens;

pub(super) mod tool_callers;
mod verdict_filter;

mod draft;
mod fields;
mod rule_form;
mod rule_preview;
mod words;
mod yaml;

use axum::Router;
use axum::routing::get;
use maud::{Markup, html};
use toolcrib::core::access_rules::{Defined, RuleKind};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::sanitize_truncated;

use super::page::{NavItem, PageContext};
use super::text::{Tone, format_number, state_badge};
use super::tool::render_blocking;
use crate::auth::AuthorizedRequest;
use crate::rest::ApiError;
use crate::state::AppState;
use words::{render_conditions, render_match};

/// Routes below the page. All of them need the permission to manage.
pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/access/callers", get(callers::show).post(callers::submit))
        .route("/access/tokens", get(tokens::show).post(tokens::submit))
        .route("/access/{section}", get(rule_page::show).post(rule_page::submit))
}

/// Renders the page. Counting the members of groups looks at every tool: too slow for an async thread.
pub(super) async fn show(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> Result<Markup, ApiError> {
    render_blocking(app, client, |context| {
        let content = html! {
            header.head {
                h1 { "Access" }
                div.actions { a.button href="/access/callers" { "Preview as a caller" } }
            }
            nav.trail aria-label="Sections" {
                a href="#groups" { "Groups" } " · " a href="#rules" { "Access rules" } " · " a href="#policies" { "Policies" }
                " · " a href="#tokens" { "Tokens" }
            }
            @if context.app.registry.rules().leave_local_without_tools() {
                p.notice { "No access rule gives local processes without a token any tool: they see none." }
            }
            (render_groups(context))
            (render_access_rules(context))
            (render_policies(context))
            (tokens::render_section(context))
        };
        context.render_page(NavItem::Access, "Access", content)
    })
    .await
}

/// Path of the pages about rules of a kind.
fn section_path(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Group => "/access/groups",
        RuleKind::Access => "/access/rules",
        RuleKind::Policy => "/access/policies",
    }
}

fn render_groups(context: &PageContext<'_>) -> Markup {
    let definitions = context.rules();
    let rules = definitions.in_force();
    let rows = rules.groups().map(|group| {
        let found = definitions.members(group);
        let description = html! {
            @if let Some(title) = &group.definition.title { " " span.faint { (sanitize_truncated(title, 60)) } }
            @if !found.missing.is_empty() {
                span.under.bad-text { "not there: " (sanitize_truncated(&found.missing.join(", "), 160)) }
            }
        };
        let tools = html! { td.number data-label="Tools" { (format_number(found.members.len() as u64)) } };
        render_row(context, RuleKind::Group, group, description, tools, html! {})
    });
    let text = SectionText {
        id: "groups",
        title: "Groups",
        add: "Add a group",
        caption: "Groups with their tools",
        empty: "No groups yet. A group is a selection of tools, which access rules and tokens give to callers.",
    };
    let columns = html! { th scope="col" { "Group" } th.number scope="col" { "Tools" } };
    render_section(RuleKind::Group, &text, &columns, &rows.collect::<Vec<Markup>>(), html! {})
}

fn render_access_rules(context: &PageContext<'_>) -> Markup {
    let rules = context.rules().in_force();
    let rows = rules.access().map(|rule| {
        let is_active = rule.definition.active;
        let description = html! {
            span.under {
                (render_conditions(&rule.definition.when, "every caller")) " → "
                @for (index, group) in rule.definition.groups.iter().enumerate() {
                    @if index > 0 { ", " } code { (group) }
                }
            }
        };
        let state = html! {
            td data-label="State" {
                @if is_active { (state_badge(Tone::Good, "active")) } @else { (state_badge(Tone::Quiet, "inactive")) }
            }
        };
        let switch = html! {
            a href=(format!("{}&active={}", rule_url(RuleKind::Access, &rule.name), !is_active)) {
                @if is_active { "Deactivate…" } @else { "Activate…" } span.unseen { " " (rule.name) }
            }
        };
        render_row(context, RuleKind::Access, rule, description, state, switch)
    });
    let text = SectionText {
        id: "rules",
        title: "Access rules",
        add: "Add an access rule",
        caption: "Access rules with their conditions and groups",
        empty: "No access rules: every admitted caller without groups of its own sees every tool.",
    };
    let columns = html! { th scope="col" { "Rule" } th scope="col" { "State" } };
    render_section(RuleKind::Access, &text, &columns, &rows.collect::<Vec<Markup>>(), html! {})
}

fn render_policies(context: &PageContext<'_>) -> Markup {
    let rules = context.rules().in_force();
    let rows = rules.policies().map(|policy| {
        let description = html! { span.under { (render_match(&policy.definition.matches)) } };
        let verdict = html! { td data-label="Verdict" { (callers::render_verdict(policy.definition.verdict)) } };
        render_row(context, RuleKind::Policy, policy, description, verdict, html! {})
    });
    let text = SectionText {
        id: "policies",
        title: "Policies",
        add: "Add a policy",
        caption: "Policies with their verdicts",
        empty: "No policies: the rules of each source decide which calls are allowed, need consent, or are denied.",
    };
    let columns = html! { th scope="col" { "Policy" } th scope="col" { "Verdict" } };
    let filter = verdict_filter::render_form(context);
    render_section(RuleKind::Policy, &text, &columns, &rows.collect::<Vec<Markup>>(), filter)
}

/// Texts of the section about one kind of rule.
struct SectionText {
    id: &'static str,
    title: &'static str,
    /// Label of the link to the form of a new rule.
    add: &'static str,
    /// Name of the table for screen readers.
    caption: &'static str,
    /// Shown in place of a table without rows.
    empty: &'static str,
}

/// Renders the rules of one kind in a table; `columns` are the headings of the first two, `end` is below the table.
fn render_section(kind: RuleKind, text: &SectionText, columns: &Markup, rows: &[Markup], end: Markup) -> Markup {
    let title_id = format!("{}-title", text.id);
    html! {
        section id=(text.id) aria-labelledby=(title_id) {
            div.row { h2 id=(title_id) { (text.title) } a href=(section_path(kind)) { (text.add) } }
            @if rows.is_empty() {
                p.empty { (text.empty) }
            } @else {
                table.list.rules {
                    caption.unseen { (text.caption) }
                    thead { tr { (columns) th scope="col" { "Defined" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for row in rows { (row) } }
                }
            }
            (end)
        }
    }
}

/// Renders a rule: what stands behind its name, its second column, and actions besides editing and removing.
fn render_row<T>(
    context: &PageContext<'_>,
    kind: RuleKind,
    rule: &Defined<T>,
    description: Markup,
    column: Markup,
    actions: Markup,
) -> Markup {
    let prefix = if kind == RuleKind::Access { "rule" } else { kind.as_str() };
    html! {
        tr id=(format!("{prefix}-{}", rule.name)) {
            th scope="row" { a href=(rule_url(kind, &rule.name)) { (rule.name) } (description) }
            (column)
            td data-label="Defined" { (render_origin(context, kind, &rule.name, rule.origin)) }
            td.actions { (render_actions(kind, &rule.name, rule.origin, actions)) }
        }
    }
}

/// Renders where a rule is defined: here, or in a file with its line.
fn render_origin(context: &PageContext<'_>, kind: RuleKind, name: &str, origin: Origin) -> Markup {
    html! {
        @match context.app.registry.rules().configured_at(kind, name) {
            _ if origin == Origin::Runtime => { span.faint { "at run time" } }
            Some(place) => { code { (sanitize_truncated(&place.file, 60)) ":" (place.line) } }
            None => { span.faint { "configuration" } }
        }
    }
}

/// Renders the actions on a rule; one of the configuration has none.
fn render_actions(kind: RuleKind, name: &str, origin: Origin, others: Markup) -> Markup {
    let url = rule_url(kind, name);
    html! {
        @if origin == Origin::Runtime {
            div.actions {
                a href=(url) { "Edit" span.unseen { " " (name) } }
                (others)
                a href=(format!("{url}&remove")) { "Remove…" span.unseen { " " (name) } }
            }
        } @else { span.faint { "read-only" } }
    }
}

/// Returns the address of a rule's page. Names of rules need no encoding.
fn rule_url(kind: RuleKind, name: &str) -> String {
    format!("{}?name={name}", section_path(kind))
}
