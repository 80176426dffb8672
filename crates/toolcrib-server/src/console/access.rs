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
use toolcrib::core::access_rules::RuleKind;
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
    html! {
        section id="groups" aria-labelledby="groups-title" {
            (render_heading(RuleKind::Group, "groups-title", "Groups", "Add a group"))
            @if rules.count(RuleKind::Group) == 0 {
                p.empty { "No groups yet. A group is a selection of tools, which access rules and tokens give to callers." }
            } @else {
                table.list.rules {
                    caption.unseen { "Groups with their tools" }
                    thead { tr {
                        th scope="col" { "Group" } th.number scope="col" { "Tools" } th scope="col" { "Defined" }
                        th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody {
                        @for group in rules.groups() {
                            @let found = definitions.members(group);
                            tr id=(format!("group-{}", group.name)) {
                                th scope="row" {
                                    a href=(rule_url(RuleKind::Group, &group.name)) { (group.name) }
                                    @if let Some(title) = &group.definition.title { " " span.faint { (sanitize_truncated(title, 60)) } }
                                    @if !found.missing.is_empty() {
                                        span.under.bad-text { "not there: " (sanitize_truncated(&found.missing.join(", "), 160)) }
                                    }
                                }
                                td.number data-label="Tools" { (format_number(found.members.len() as u64)) }
                                td data-label="Defined" { (render_origin(context, RuleKind::Group, &group.name, group.origin)) }
                                td.actions { (render_actions(RuleKind::Group, &group.name, group.origin, html! {})) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn render_access_rules(context: &PageContext<'_>) -> Markup {
    let rules = context.app.registry.rules().in_force();
    html! {
        section id="rules" aria-labelledby="rules-title" {
            (render_heading(RuleKind::Access, "rules-title", "Access rules", "Add an access rule"))
            @if rules.count(RuleKind::Access) == 0 {
                p.empty { "No access rules: every admitted caller without groups of its own sees every tool." }
            } @else {
                table.list.rules {
                    caption.unseen { "Access rules with their conditions and groups" }
                    thead { tr {
                        th scope="col" { "Rule" } th scope="col" { "State" } th scope="col" { "Defined" }
                        th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody {
                        @for rule in rules.access() {
                            @let is_active = rule.definition.active;
                            tr id=(format!("rule-{}", rule.name)) {
                                th scope="row" {
                                    a href=(rule_url(RuleKind::Access, &rule.name)) { (rule.name) }
                                    span.under {
                                        (render_conditions(&rule.definition.when, "every caller")) " → "
                                        @for (index, group) in rule.definition.groups.iter().enumerate() {
                                            @if index > 0 { ", " } code { (group) }
                                        }
                                    }
                                }
                                td data-label="State" {
                                    @if is_active { (state_badge(Tone::Good, "active")) } @else { (state_badge(Tone::Quiet, "inactive")) }
                                }
                                td data-label="Defined" { (render_origin(context, RuleKind::Access, &rule.name, rule.origin)) }
                                td.actions {
                                    @let label = if is_active { "Deactivate…" } else { "Activate…" };
                                    @let url = format!("{}&active={}", rule_url(RuleKind::Access, &rule.name), !is_active);
                                    (render_actions(RuleKind::Access, &rule.name, rule.origin, html! {
                                        a href=(url) { (label) span.unseen { " " (rule.name) } }
                                    }))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn render_policies(context: &PageContext<'_>) -> Markup {
    let rules = context.app.registry.rules().in_force();
    html! {
        section id="policies" aria-labelledby="policies-title" {
            (render_heading(RuleKind::Policy, "policies-title", "Policies", "Add a policy"))
            @if rules.count(RuleKind::Policy) == 0 {
                p.empty { "No policies: the rules of each source decide which calls are allowed, need consent, or are denied." }
            } @else {
                table.list.rules {
                    caption.unseen { "Policies with their verdicts" }
                    thead { tr {
                        th scope="col" { "Policy" } th scope="col" { "Verdict" } th scope="col" { "Defined" }
                        th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody {
                        @for policy in rules.policies() {
                            tr id=(format!("policy-{}", policy.name)) {
                                th scope="row" {
                                    a href=(rule_url(RuleKind::Policy, &policy.name)) { (policy.name) }
                                    span.under { (render_match(&policy.definition.matches)) }
                                }
                                td data-label="Verdict" { (callers::render_verdict(policy.definition.verdict)) }
                                td data-label="Defined" { (render_origin(context, RuleKind::Policy, &policy.name, policy.origin)) }
                                td.actions { (render_actions(RuleKind::Policy, &policy.name, policy.origin, html! {})) }
                            }
                        }
                    }
                }
            }
            (verdict_filter::render_form(context))
        }
    }
}

fn render_heading(kind: RuleKind, id: &str, title: &str, add: &str) -> Markup {
    html! { div.row { h2 id=(id) { (title) } a href=(section_path(kind)) { (add) } } }
}

/// Renders where a rule is defined: here, or in a file with its line.
fn render_origin(context: &PageContext<'_>, kind: RuleKind, name: &str, origin: Origin) -> Markup {
    html! {
        @match context.app.registry.rules().configured_at(kind, name) {
            _ if origin == Origin::Runtime => { span.faint { "here" } }
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
