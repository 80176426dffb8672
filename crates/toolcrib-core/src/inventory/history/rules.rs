//! Describes changes of groups, access rules and policies in English.

use super::{describe_origin, join_names};
use crate::access_rules::{AccessRule, ClaimCondition, Group, Pattern, Policy, Risk, RuleKind, Selector};
use crate::inventory::Origin;
use crate::text::sanitize_truncated;

/// Describes the definition of a rule; `definition` is its text.
pub(super) fn describe_defined(
    (kind, name): (RuleKind, &str),
    origin: Origin,
    replaces: bool,
    definition: String,
) -> String {
    let verb = if replaces { "changed" } else { "defined" };
    format!("{} `{name}` {verb} {}: {definition}", kind.noun(), describe_origin(origin))
}

/// Describes the removal of a rule.
pub(super) fn describe_removed(kind: RuleKind, name: &str) -> String {
    format!("{} `{name}` removed", kind.noun())
}

/// ``tools with source `zendesk*` and name `get_*`; `github__get_issue`; without `*delete*`; mode `search` ``.
pub(super) fn describe_group(group: &Group) -> String {
    let Group { title, select, tools, exclude, instructions, essential, mode } = group;
    let mut parts: Vec<String> = Vec::new();
    if !select.is_empty() {
        let selectors: Vec<String> = select.iter().map(describe_selector).collect();
        parts.push(join_names(&selectors));
    }
    if !tools.is_empty() {
        let names: Vec<String> = tools.iter().map(|name| quote(name)).collect();
        parts.push(join_names(&names));
    }
    if parts.is_empty() {
        parts.push("no tools".to_owned());
    }
    if !exclude.is_empty() {
        let patterns: Vec<String> = exclude.iter().map(|pattern| quote(pattern.as_str())).collect();
        parts.push(format!("without {}", join_names(&patterns)));
    }
    let mode = mode.map(|mode| mode.as_str().to_owned());
    for (key, text) in [("title", title), ("instructions", instructions), ("mode", &mode)] {
        parts.extend(text.as_ref().map(|text| format!("{key} {}", quote(text))));
    }
    if !essential.is_empty() {
        let globs: Vec<String> = essential.iter().map(|glob| quote(glob)).collect();
        parts.push(format!("essential {}", join_names(&globs)));
    }
    parts.join("; ")
}

/// ``gives `support` to callers with `realm_access.roles` contains "support" ``.
pub(super) fn describe_access_rule(rule: &AccessRule) -> String {
    let groups: Vec<String> = rule.groups.iter().map(|group| quote(group)).collect();
    let inactive = if rule.active { "" } else { "; inactive" };
    format!("gives {} to {}{inactive}", join_names(&groups), describe_callers(&rule.when))
}

/// ``ask for tools with risk `destructive` in group `support`, for every caller``.
pub(super) fn describe_policy(policy: &Policy) -> String {
    let matches = &policy.matches;
    let group = matches.group.as_ref().map(|group| format!(" in group {}", quote(group))).unwrap_or_default();
    let (verdict, tools) = (policy.verdict.as_str(), describe_selector(&matches.selector));
    format!("{verdict} for {tools}{group}, for {}", describe_callers(&matches.when))
}

/// ``tools with source `zendesk*` and tags `read` ``.
fn describe_selector(selector: &Selector) -> String {
    let Selector { source, name, tags, without_tags, method, path, risk } = selector;
    let pattern = |label: &str, pattern: &Option<Pattern>| {
        pattern.as_ref().map(|pattern| format!("{label} {}", quote(pattern.as_str())))
    };
    let list = |label: &str, names: Vec<&str>| {
        (!names.is_empty())
            .then(|| format!("{label} {}", names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")))
    };
    let risks = risk.iter().map(|risk| Risk::as_str(*risk)).collect();
    let conditions: Vec<String> = [
        pattern("source", source),
        pattern("name", name),
        list("tags", tags.iter().map(String::as_str).collect()),
        list("no tag of", without_tags.iter().map(String::as_str).collect()),
        method.as_ref().map(|method| format!("method {}", quote(method))),
        pattern("path", path),
        list("risk", risks),
    ]
    .into_iter()
    .flatten()
    .collect();
    if conditions.is_empty() { "every tool".to_owned() } else { format!("tools with {}", conditions.join(" and ")) }
}

/// ``every caller``, or ``callers with `team` equals "a" ``.
fn describe_callers(conditions: &[ClaimCondition]) -> String {
    if conditions.is_empty() {
        return "every caller".to_owned();
    }
    let conditions: Vec<String> = conditions
        .iter()
        .map(|ClaimCondition { claim, test }| {
            let value = sanitize_truncated(&test.value().to_string(), 80);
            format!("{} {} {value}", quote(claim.as_str()), test.name())
        })
        .collect();
    format!("callers with {}", conditions.join(" and "))
}

fn quote(text: &str) -> String {
    format!("`{}`", sanitize_truncated(text, 80))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::inventory::Event;
    use crate::inventory::history::describe;

    #[test]
    fn rules_are_described_in_words() {
        for (event, text) in [
            (
                json!({"type": "GroupDefined", "group": "support", "origin": "runtime", "definition": {
                    "select": [{"source": "zendesk*", "name": "regex:^get_", "tags": ["read"], "risk": ["read_only"]}],
                    "tools": ["github__get_issue"], "exclude": ["*delete*"]}}),
                "group `support` defined at run time: tools with source `zendesk*` and name `regex:^get_` and tags \
                 `read` and risk `read_only`; `github__get_issue`; without `*delete*`",
            ),
            (
                json!({"type": "GroupDefined", "group": "support", "origin": "config", "replaces": true, "definition": {
                    "title": "Desk", "instructions": "Be\nkind", "essential": ["*search*", "get"], "mode": "search"}}),
                "group `support` changed in the configuration: no tools; title `Desk`; instructions `Be kind`; \
                 mode `search`; essential `*search*`, `get`",
            ),
            (
                json!({"type": "AccessRuleDefined", "rule": "desk", "origin": "config", "definition": {
                    "when": [{"claim": "realm_access.roles", "contains": "support"}], "groups": ["support"],
                    "active": false}}),
                "access rule `desk` defined in the configuration: gives `support` to callers with \
                 `realm_access.roles` contains \"support\"; inactive",
            ),
            (
                json!({"type": "PolicyDefined", "policy": "ask", "origin": "runtime", "definition": {
                    "match": {"group": "support", "risk": ["destructive"]}, "verdict": "ask"}}),
                "policy `ask` defined at run time: ask for tools with risk `destructive` in group `support`, for \
                 every caller",
            ),
            (json!({"type": "GroupRemoved", "group": "support"}), "group `support` removed"),
        ] {
            let event: Event = serde_json::from_value(event).unwrap();
            assert_eq!(describe(&event, ""), text);
        }
    }
}
