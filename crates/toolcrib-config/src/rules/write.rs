//! Writes groups, access rules and policies as JSON and as the keys of a file: the inverse of reading.

use serde_json::{Map, Value, json};
use toolcrib_core::access_rules::{NamedRule, RuleKind};

/// Keys of a group that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenKeys {
    /// Every key: what the REST API returns.
    All,
    /// Only the keys that are set: what a file has.
    SetOnly,
}

/// Renders a rule with its name and every key of its definition. [`parse_rule`](super::parse_rule) reads it back.
pub fn rule_to_json(rule: &NamedRule) -> Value {
    definition_to_keys(rule, WrittenKeys::All).into()
}

/// Renders rules as the sections of a file, in the given order: groups by name, access rules and policies in lists. A rule
/// may have an origin, which is shown beside its keys. Sections without rules are empty.
pub(crate) fn rules_to_sections(rules: &[(&NamedRule, Option<String>)]) -> Map<String, Value> {
    let with_origin = |(rule, origin): &(&NamedRule, Option<String>)| {
        let mut keys = definition_to_keys(rule, WrittenKeys::SetOnly);
        keys.extend(origin.iter().map(|origin| ("origin".to_owned(), json!(origin))));
        keys
    };
    let section = |kind: RuleKind| {
        let keys = rules.iter().filter(|(rule, _)| rule.kind() == kind).map(with_origin);
        match kind {
            RuleKind::Group => Value::Object(keys.filter_map(split_name).collect()),
            RuleKind::Access | RuleKind::Policy => keys.map(Value::Object).collect(),
        }
    };
    RuleKind::ALL.into_iter().map(|kind| (kind.plural().to_owned(), section(kind))).collect()
}

/// Whether a section of [`rules_to_sections`] has no rule.
pub(crate) fn is_empty_section(section: &Value) -> bool {
    section.as_object().is_some_and(Map::is_empty) || section.as_array().is_some_and(Vec::is_empty)
}

/// Takes the name out of the keys of a group.
fn split_name(mut keys: Map<String, Value>) -> Option<(String, Value)> {
    let Value::String(name) = keys.shift_remove("name")? else { return None };
    Some((name, keys.into()))
}

fn definition_to_keys(rule: &NamedRule, written: WrittenKeys) -> Map<String, Value> {
    let value = match rule {
        NamedRule::Group(name, group) => json!({
            "name": name, "title": group.title, "select": group.select, "tools": group.tools, "exclude": group.exclude,
            "instructions": group.instructions, "essential": group.essential, "mode": group.mode,
        }),
        NamedRule::Access(name, rule) => {
            json!({ "name": name, "when": rule.when, "groups": rule.groups, "active": rule.active })
        }
        NamedRule::Policy(name, policy) => {
            json!({ "name": name, "match": policy.matches, "verdict": policy.verdict.as_str() })
        }
    };
    let is_set = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    let Value::Object(mut keys) = value else { return Map::new() };
    keys.retain(|_, value| written == WrittenKeys::All || is_set(value));
    keys
}
