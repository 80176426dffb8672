//! Section "Who may use this" of a tool's page, for administrators: the verdict for each known caller, with its reasons.

use maud::{Markup, html};
use toolcrib::core::access_rules::{ExplainedRule, RuleKind};
use toolcrib::registry::CallerVerdict;

use super::callers::render_verdict;
use super::rule_url;
use crate::auth::Permission;
use crate::console::history::render_code_spans;
use crate::console::page::PageContext;
use crate::console::text::{Tone, state_badge};

/// Renders the section; empty for clients that may not manage access, and for a tool that was removed.
pub(in crate::console) fn render_section(context: &PageContext<'_>, tool: &str) -> Markup {
    if !context.is_allowed(Permission::Manage) {
        return html! {};
    }
    let Ok(callers) = context.app.registry.rules().callers_of(tool, &[]) else { return html! {} };
    html! {
        section id="callers" aria-labelledby="callers-title" {
            div.row { h2 id="callers-title" { "Who may use this" } a href="/access" { "Access" } }
            table.list.rules {
                caption.unseen { "Known callers with their verdicts" }
                thead { tr {
                    th scope="col" { "Caller" } th scope="col" { "Sees it" } th scope="col" { "Verdict" }
                } }
                tbody { @for caller in &callers { (render_row(caller)) } }
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
                    @if explanation.rules.is_empty() { "no rule applies" }
                    @for (index, rule) in explanation.rules.iter().enumerate() {
                        @if index > 0 { " · " }
                        (render_rule(rule))
                    }
                }
            }
            td data-label="Sees it" {
                @if explanation.visible { (state_badge(Tone::Good, "yes")) } @else { (state_badge(Tone::Quiet, "no")) }
            }
            td data-label="Verdict" { (render_verdict(explanation.verdict)) }
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
