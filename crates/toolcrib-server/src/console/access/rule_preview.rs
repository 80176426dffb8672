//! Effect of a draft: the tools that it matches, and what changes for the callers that are known.

use std::collections::BTreeSet;

use maud::{Markup, html};
use toolcrib::Registry;
use toolcrib::core::access_rules::{AccessRules, Group, NamedRule};
use toolcrib::core::inventory::Origin;
use toolcrib::core::tool::ToolName;
use toolcrib::registry::{CallerChange, GroupMembers, RuleChangePreview};

use crate::console::text::format_count;

/// Maximum number of tools that are listed before a preview is cut off.
const MAX_NAMES: usize = 100;
/// Maximum number of tools that are listed for each caller.
const MAX_NAMES_PER_CALLER: usize = 30;

/// Returns the tools that a rule matches; `None` for an access rule, which matches callers.
pub(super) fn matching_tools(registry: &Registry, rule: &NamedRule) -> Option<GroupMembers> {
    match rule {
        NamedRule::Group(_, group) => Some(members(registry, group.clone())),
        NamedRule::Policy(_, policy) => {
            let selected = Group { select: vec![policy.matches.selector.clone()], ..Group::default() };
            let mut found = members(registry, selected);
            if let Some(name) = &policy.matches.group {
                let rules = registry.rules().in_force();
                let group = rules.group(name).map(|group| registry.rules().members(group).members);
                let group: BTreeSet<ToolName> = group.unwrap_or_default().into_iter().collect();
                found.members.retain(|tool| group.contains(tool));
            }
            Some(found)
        }
        NamedRule::Access(..) => None,
    }
}

/// Returns the tools of a group that is not defined yet.
fn members(registry: &Registry, group: Group) -> GroupMembers {
    const NAME: &str = "preview";
    let mut rules = AccessRules::default();
    rules.define(NamedRule::Group(NAME.to_owned(), group), Origin::Runtime);
    let none = GroupMembers { members: Vec::new(), missing: Vec::new() };
    rules.group(NAME).map_or(none, |group| registry.rules().members(group))
}

/// Renders the tools that a rule matches. The id is used by the script for the form on the Access page.
pub(super) fn render_matches(found: &GroupMembers) -> Markup {
    html! {
        div id="matches" {
            p { b { (format_count(found.members.len(), "tool")) } @if found.members.is_empty() { " match." } @else { ":" } }
            (render_names(&found.members, MAX_NAMES))
            @if !found.missing.is_empty() {
                p.message { "Named, but not there: " @for name in &found.missing { code { (name) } " " } }
            }
        }
    }
}

/// Renders what changes for the callers that are known.
pub(super) fn render_effect(preview: &RuleChangePreview) -> Markup {
    html! {
        h3 { "Effect on known callers" }
        @if preview.callers.is_empty() {
            p.faint { "Nothing changes for local processes and the holders of tokens." }
        } @else {
            ul.effects { @for change in &preview.callers { li { (render_change(change)) } } }
            @if preview.unchanged > 0 {
                p.faint { "Nothing changes for " (format_count(preview.unchanged, "other caller")) "." }
            }
        }
    }
}

fn render_change(change: &CallerChange) -> Markup {
    let list = |label: &str, class: &str, tools: &[ToolName]| {
        html! {
            @if !tools.is_empty() {
                details {
                    summary { span.(class) { (label) " " (format_count(tools.len(), "tool")) } }
                    (render_names(tools, MAX_NAMES_PER_CALLER))
                }
            }
        }
    };
    html! {
        p { b { (change.caller) } @if change.kind != change.caller { " " span.faint { (change.kind) } } }
        (list("gains", "gained", &change.gains))
        (list("loses", "lost", &change.loses))
        @if !change.verdicts.is_empty() {
            details {
                summary { (format_count(change.verdicts.len(), "tool")) " with another verdict" }
                ul.tool-names {
                    @for verdict in change.verdicts.iter().take(MAX_NAMES_PER_CALLER) {
                        li { code { (verdict.tool) } " " (verdict.before.as_str()) " → " b { (verdict.after.as_str()) } }
                    }
                    (render_rest(change.verdicts.len(), MAX_NAMES_PER_CALLER))
                }
            }
        }
    }
}

fn render_names(tools: &[ToolName], max: usize) -> Markup {
    html! {
        @if !tools.is_empty() {
            ul.tool-names {
                @for tool in tools.iter().take(max) { li.name { (tool) } }
                (render_rest(tools.len(), max))
            }
        }
    }
}

fn render_rest(count: usize, max: usize) -> Markup {
    html! { @if count > max { li.faint { "and " (format_count(count - max, "more tool")) } } }
}
