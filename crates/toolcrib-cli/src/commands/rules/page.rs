//! Tables and pages of rules.

use toolcrib::Registry;
use toolcrib::core::access_rules::{NamedRule, Pattern, RuleKind};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::registry::GroupMembers;

use super::words::{describe_conditions, describe_match, describe_selector};
use crate::color;
use crate::plural::pluralize;
use crate::table::Table;

/// Renders the table of the rules of one kind.
pub(super) fn render_list(registry: &Registry, kind: RuleKind, rules: &[(NamedRule, Origin)]) -> String {
    if rules.is_empty() {
        let noun = match kind {
            RuleKind::Group => "groups",
            RuleKind::Access => "access rules",
            RuleKind::Policy => "policies",
        };
        return format!("there are no {noun}; `toolcrib {} set NAME --file FILE` defines one", kind.as_str());
    }
    let mut table = Table::new(match kind {
        RuleKind::Group => &["name", "title", "tools", "missing", "origin"],
        RuleKind::Access => &["name", "when", "groups", "active", "origin"],
        RuleKind::Policy => &["name", "match", "verdict", "origin"],
    });
    for (rule, origin) in rules {
        let mut cells = vec![rule.name().to_owned()];
        match rule {
            NamedRule::Group(name, group) => {
                let GroupMembers { members, missing } = group_members(registry, name);
                let title =
                    group.title.as_deref().map_or_else(|| "-".to_owned(), |title| sanitize_truncated(title, 60));
                cells.extend([title, members.len().to_string(), missing.len().to_string()]);
            }
            NamedRule::Access(_, rule) => {
                let active = if rule.active { "yes" } else { "no" };
                cells.extend([describe_conditions(&rule.when), rule.groups.join(", "), active.to_owned()]);
            }
            NamedRule::Policy(_, policy) => {
                cells.extend([describe_match(&policy.matches), policy.verdict.as_str().to_owned()]);
            }
        }
        cells.push(describe_origin(registry, rule, *origin));
        table.add_row(cells);
    }
    table.render()
}

/// Renders the page of one rule.
pub(super) fn render_rule(registry: &Registry, rule: &NamedRule, origin: Origin) -> String {
    let mut page = Page { text: String::new() };
    let heading = format!("{} {}", rule.kind().noun(), color::bold(rule.name()));
    page.text.push_str(&format!("{heading} ({})\n", describe_origin(registry, rule, origin)));
    match rule {
        NamedRule::Group(name, group) => {
            let patterns: Vec<&str> = group.exclude.iter().map(Pattern::as_str).collect();
            page.add("title", group.title.as_deref().unwrap_or_default());
            group.select.iter().for_each(|selector| page.add("select", &describe_selector(selector)));
            page.add("tools", &group.tools.join(", "));
            page.add("exclude", &patterns.join(", "));
            page.add("instructions", group.instructions.as_deref().unwrap_or_default());
            page.add("essential", &group.essential.join(", "));
            page.add("mode", group.mode.map_or("", |mode| mode.as_str()));
            let GroupMembers { members, missing } = group_members(registry, name);
            page.text.push_str(&format!("{}\n", pluralize(members.len(), "tool")));
            members.iter().for_each(|name| page.text.push_str(&format!("  {name}\n")));
            if !missing.is_empty() {
                page.text.push_str(&format!("{} missing: no source offers\n", missing.len()));
                missing.iter().for_each(|name| page.text.push_str(&format!("  {}\n", sanitize(name))));
            }
        }
        NamedRule::Access(_, rule) => {
            page.add("when", &describe_conditions(&rule.when));
            page.add("groups", &rule.groups.join(", "));
            page.add("active", if rule.active { "yes" } else { "no: it gives nothing, but counts as a rule" });
        }
        NamedRule::Policy(_, policy) => {
            page.add("match", &describe_match(&policy.matches));
            page.add("verdict", policy.verdict.as_str());
        }
    }
    page.text
}

/// Text with a line per property.
struct Page {
    text: String,
}

impl Page {
    /// Adds a property, unless it is empty.
    fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let value = sanitize(value).replace('\n', "\n                ");
            self.text.push_str(&format!("  {name:<12}  {value}\n"));
        }
    }
}

/// Returns file and line of a rule of the configuration, else how it was defined.
pub(super) fn describe_origin(registry: &Registry, rule: &NamedRule, origin: Origin) -> String {
    match (registry.rules().configured_at(rule.kind(), rule.name()), origin) {
        (Some(place), Origin::Config) => place.to_string(),
        (None, Origin::Config) => "config".to_owned(),
        (_, Origin::Runtime) => "runtime".to_owned(),
    }
}

/// Returns the tools of a group that is in force.
fn group_members(registry: &Registry, name: &str) -> GroupMembers {
    let rules = registry.rules();
    let none = GroupMembers { members: Vec::new(), missing: Vec::new() };
    rules.in_force().group(name).map_or(none, |group| rules.members(group))
}
