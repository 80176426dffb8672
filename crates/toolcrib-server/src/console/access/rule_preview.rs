//! Effect of a draft: the tools that it matches, and what changes for the callers that are known.

use std::collections::BTreeSet;

use maud::{Markup, html};
use toolcrib::Result;
use toolcrib::core::access_rules::{AccessRules, Group, NamedRule};
use toolcrib::core::inventory::Origin;
use toolcrib::core::tool::ToolName;
use toolcrib::registry::{CallerChange, GroupMembers, RuleChange, RuleChangePreview, RuleDefinitions, ToolChanges};

use crate::console::page::PageContext;
use crate::console::text::format_count;

/// Maximum number of tools that are listed before a preview is cut off.
const MAX_NAMES: usize = 100;
/// Maximum number of tools that are listed for each caller.
const MAX_NAMES_PER_CALLER: usize = 30;
/// Maximum number of callers whose changes are listed.
const MAX_CALLERS: usize = 20;

/// Finds out what a change would do to the callers that are known.
pub(super) fn preview_change(context: &PageContext<'_>, change: &RuleChange) -> Result<RuleChangePreview> {
    context.rules().preview(change, &context.app.auth.known_jwt_callers())
}

/// Returns the tools that a rule matches; `None` for an access rule, which matches callers.
pub(super) fn matching_tools(rules: &RuleDefinitions<'_>, rule: &NamedRule) -> Option<GroupMembers> {
    match rule {
        NamedRule::Group(_, group) => Some(members(rules, group.clone())),
        NamedRule::Policy(_, policy) => {
            let selected = Group { select: vec![policy.matches.selector.clone()], ..Group::default() };
            let mut found = members(rules, selected);
            if let Some(name) = &policy.matches.group {
                let in_force = rules.in_force();
                let group = in_force.group(name).map(|group| rules.members(group).members);
                let group: BTreeSet<ToolName> = group.unwrap_or_default().into_iter().collect();
                found.members.retain(|tool| group.contains(tool));
            }
            Some(found)
        }
        NamedRule::Access(..) => None,
    }
}

/// Returns the tools of a group that is not defined yet.
fn members(rules: &RuleDefinitions<'_>, group: Group) -> GroupMembers {
    const NAME: &str = "preview";
    let mut draft = AccessRules::default();
    draft.define(NamedRule::Group(NAME.to_owned(), group), Origin::Runtime);
    let none = GroupMembers { members: Vec::new(), missing: Vec::new() };
    draft.group(NAME).map_or(none, |group| rules.members(group))
}

/// Renders the tools that a rule matches. The id is used by the script for the form on the Access page.
pub(super) fn render_matches(found: &GroupMembers) -> Markup {
    html! {
        div id="matches" {
            p data-announce { b { (format_count(found.members.len(), "tool")) } @if found.members.is_empty() { " match." } @else { ":" } }
            (render_names("Matching tools", &found.members, MAX_NAMES, found.members.len()))
            @if !found.missing.is_empty() {
                p.message { "Named, but not there: " @for name in &found.missing { code { (name) } " " } }
            }
        }
    }
}

/// Renders what changes for the callers that are known.
pub(super) fn render_effect(preview: &RuleChangePreview) -> Markup {
    let listed = &preview.callers[..preview.callers.len().min(MAX_CALLERS)];
    html! {
        h3 { "Effect on known callers" }
        @if preview.changed == 0 {
            p.faint data-announce { "Nothing changes for the callers that are known." }
        } @else {
            p data-announce {
                "Changes for " (format_count(preview.changed, "caller")) ", not for " (format_count(preview.unchanged, "other")) "."
            }
            ul.effects { @for change in listed { li { (render_change(change)) } } }
            @if preview.changed > listed.len() {
                p.faint { "And " (format_count(preview.changed - listed.len(), "more caller")) "." }
            }
        }
    }
}

fn render_change(change: &CallerChange) -> Markup {
    let ToolChanges { gains, gains_count, loses, loses_count, verdicts, verdicts_count } = &change.tools;
    let list = |verb: &str, class: &str, tools: &[ToolName], count: usize| {
        html! {
            @if count > 0 {
                details {
                    summary { span.(class) { (verb) " " (format_count(count, "tool")) } }
                    (render_names(&format!("{} {verb}", change.caller), tools, MAX_NAMES_PER_CALLER, count))
                }
            }
        }
    };
    html! {
        p { b { (change.caller) } @if change.kind != change.caller { " " span.faint { (change.kind) } } }
        (list("gains", "gained", gains, *gains_count))
        (list("loses", "lost", loses, *loses_count))
        @if *verdicts_count > 0 {
            details {
                summary { (format_count(*verdicts_count, "tool")) " with another verdict" }
                ul.tool-names tabindex="0" aria-label=(format!("Other verdicts for {}", change.caller)) {
                    @for verdict in verdicts.iter().take(MAX_NAMES_PER_CALLER) {
                        li { code { (verdict.tool) } " " (verdict.before.as_str()) " → " b { (verdict.after.as_str()) } }
                    }
                    (render_rest(*verdicts_count, MAX_NAMES_PER_CALLER))
                }
            }
        }
    }
}

/// Renders the first of `count` tools. The list scrolls, so it can be focused for the keyboard.
fn render_names(label: &str, tools: &[ToolName], max: usize, count: usize) -> Markup {
    html! {
        @if !tools.is_empty() {
            ul.tool-names tabindex="0" aria-label=(label) {
                @for tool in tools.iter().take(max) { li.name { (tool) } }
                (render_rest(count, max))
            }
        }
    }
}

fn render_rest(count: usize, max: usize) -> Markup {
    html! { @if count > max { li.faint { "and " (format_count(count - max, "more tool")) } } }
}
