//! Section "Who may use this" of a tool's page, for administrators: the groups that have the tool with the access rules
//! that give them, and the verdict for each known caller with its reasons.

use maud::{Markup, html};
use toolcrib::core::access_rules::{ExplainedRule, Explanation, RuleKind};
use toolcrib::registry::{CallerVerdict, ToolGroup};

use super::callers::render_verdict;
use super::rule_url;
use crate::auth::Permission;
use crate::console::history::render_code_spans;
use crate::console::page::PageContext;
use crate::console::text::{Tone, format_count, format_number, state_badge};

/// Maximum number of callers that are listed.
const MAX_CALLERS: usize = 100;

/// Renders the section; empty for clients that may not manage access, and for a tool that was removed.
pub(in crate::console) fn render_section(context: &PageContext<'_>, tool: &str) -> Markup {
    if !context.is_allowed(Permission::Manage) {
        return html! {};
    }
    let others = context.app.auth.known_jwt_callers();
    let Ok(access) = context.rules().access_to(tool, &others) else { return html! {} };
    let (listed, count) = (access.callers.iter().take(MAX_CALLERS), access.callers.len());
    html! {
        section id="callers" aria-labelledby="callers-title" {
            div.row { h2 id="callers-title" { "Who may use this" } a href="/access" { "Access" } }
            (render_groups(context, &access.groups))
            table.list.rules {
                caption.unseen { "Known callers with their verdicts" }
                thead { tr {
                    th scope="col" { "Caller" } th scope="col" { "Sees it" } th scope="col" { "Verdict" }
                } }
                tbody { @for caller in listed { (render_row(caller)) } }
            }
            @if count > MAX_CALLERS { p.faint { "The first " (format_number(MAX_CALLERS as u64)) " of " (format_count(count, "known caller")) "." } }
        }
    }
}

/// Renders which groups have the tool, and which access rules give them: this holds for callers that are not known, too.
fn render_groups(context: &PageContext<'_>, groups: &[ToolGroup]) -> Markup {
    if !context.rules().in_force().restrict_access() {
        return html! { p { "There is no access rule: every caller without groups of its own may see it." } };
    }
    html! {
        @if groups.is_empty() { p { "No group has it, so that no access rule gives it to a caller." } }
        @else {
            ul {
                @for group in groups {
                    li {
                        "Group " a href=(rule_url(RuleKind::Group, &group.name)) { (group.name) }
                        @if group.access.is_empty() { ", which no active access rule gives" } @else { ", given by " }
                        @for (index, rule) in group.access.iter().enumerate() {
                            @if index > 0 { ", " }
                            a href=(rule_url(RuleKind::Access, rule)) { (rule) }
                        }
                    }
                }
            }
        }
    }
}

fn render_row(caller: &CallerVerdict) -> Markup {
    let explanation = &caller.explanation;
    html! {
        tr {
            th scope="row" {
                (caller.caller) " "
                span.faint { @if caller.kind != caller.caller { (caller.kind) ", " } (caller.role) }
                span.under {
                    (render_rules(explanation))
                }
            }
            td data-label="Sees it" {
                @if explanation.visible { (state_badge(Tone::Good, "yes")) } @else { (state_badge(Tone::Quiet, "no")) }
            }
            td data-label="Verdict" { (render_verdict(explanation.verdict)) }
        }
    }
}

/// Renders the rules that led to a verdict, in the order in which they are applied.
pub(super) fn render_rules(explanation: &Explanation) -> Markup {
    html! {
        @if explanation.rules.is_empty() { "no rule applies" }
        @for (index, rule) in explanation.rules.iter().enumerate() {
            @if index > 0 { " · " }
            (render_rule(rule))
        }
    }
}

/// Renders a rule with a link to its page, if it has one.
fn render_rule(rule: &ExplainedRule) -> Markup {
    let kind = RuleKind::parse(rule.kind).filter(|_| !rule.name.is_empty());
    html! {
        @match kind {
            Some(kind) => { (kind.noun()) " " a href=(rule_url(kind, &rule.name)) { (rule.name) } " " }
            None if rule.name.is_empty() => {}
            None => { (rule.kind) " " code { (rule.name) } " " }
        }
        (render_code_spans(&rule.effect))
    }
}
