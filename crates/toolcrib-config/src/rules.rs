//! Groups, access rules and policies of a configuration file, and single definitions of them from a command or a
//! request.
//!
//! ```text
//! groups:
//!   support: { select: { source: "zendesk*", risk: read_only }, tools: [github__get_issue] }
//! access:
//!   - { name: support-desk, when: [{ claim: realm_access.roles, contains: support }], groups: [support] }
//! policies:
//!   - { name: ask-destructive, match: { group: support, risk: destructive }, verdict: ask }
//! ```
//!
//! Unlike a source, a rule with an error makes the whole file invalid: without one of its rules, a file could give more
//! than its author wants. Rules may refer to groups of another file, so [`check_merged`] looks at the rules of all files
//! together. What a rule means is defined by `toolcrib_core::access_rules`.

mod condition;
mod group;
mod single;
mod write;

use std::collections::BTreeMap;

use toolcrib_core::access_rules::{
    AccessRule, MAX_RULES_PER_KIND, NamedRule, Pattern, Policy, PolicyMatch, RuleKind, check_rule_name,
};
use toolcrib_core::text::{did_you_mean, sanitize_truncated};

use super::ConfigDiagnostic;
use super::reader::{ConfigReader, Section};
use super::settings::read_verdict;
use super::syntax::{ConfigNode, NodeEntry, NodeValue, join_key};

#[cfg(test)]
pub(super) use group::{GROUP_KEYS, SELECTOR_KEYS};
pub use single::{ParsedRule, REQUEST_BODY, parse_rule};
pub use write::rule_to_json;
pub(super) use write::{is_empty_section, rules_to_sections};

/// Top-level keys of the rules. Like other settings, they occur only in Toolcrib's own files.
pub(super) const RULE_SECTION_KEYS: [&str; 3] = ["groups", "access", "policies"];
/// Keys of an access rule.
pub(super) const ACCESS_KEYS: [&str; 4] = ["name", "when", "groups", "active"];
/// Keys of a policy.
pub(super) const POLICY_KEYS: [&str; 3] = ["name", "match", "verdict"];
/// Keys of `match` of a policy beside those of a selector.
pub(super) const MATCH_ONLY_KEYS: [&str; 2] = ["group", "when"];

/// Group, access rule or policy of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredRule {
    pub rule: NamedRule,
    /// Display name of the file that defines it.
    pub file: String,
    /// Line of its name, or of its start in a list, counted from one.
    pub line: usize,
}

/// Place where an access rule or a policy names a group, which may be defined in another file.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupReference {
    pub group: String,
    pub file: String,
    pub line: usize,
    /// Key path such as `access[0].groups[1]`.
    pub key: String,
}

/// Rules of one file, and the groups that they refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadRules {
    pub(super) rules: Vec<ConfiguredRule>,
    pub(super) references: Vec<GroupReference>,
}

/// Reads one of the sections in [`RULE_SECTION_KEYS`]. Errors are those of the file.
pub(super) fn read_section(reader: &mut ConfigReader<'_>, entry: &NodeEntry) -> ReadRules {
    let mut read = ReadRules::default();
    match entry.key.as_str() {
        "groups" => read_groups(reader, &entry.node, &mut read),
        "access" => read_list(reader, &entry.node, RuleKind::Access, &mut read),
        _ => read_list(reader, &entry.node, RuleKind::Policy, &mut read),
    }
    if read.rules.len() > MAX_RULES_PER_KIND {
        let message = format!("at most {MAX_RULES_PER_KIND} are allowed, found {}", read.rules.len());
        reader.error(entry.line, &entry.key, message);
    }
    read
}

/// Reads `groups`: a map by name.
fn read_groups(reader: &mut ConfigReader<'_>, node: &ConfigNode, into: &mut ReadRules) {
    let Some(section) = reader.as_section(node, "groups") else { return };
    for entry in section.entries {
        if let Err(error) = check_rule_name(RuleKind::Group, &entry.key) {
            reader.error(entry.line, "groups", error.message);
        }
        let path = join_key("groups", &entry.key);
        let Some(group) = reader.as_section(&entry.node, &path) else { continue };
        let group = group::read(reader, &group);
        let rule = NamedRule::Group(entry.key.clone(), group);
        into.rules.push(ConfiguredRule { rule, file: reader.file.to_owned(), line: entry.line });
    }
}

/// Reads `access` or `policies`: a list of maps with a name each.
fn read_list(reader: &mut ConfigReader<'_>, node: &ConfigNode, kind: RuleKind, into: &mut ReadRules) {
    let key = kind.plural();
    let items = match &node.value {
        NodeValue::Null => return,
        NodeValue::List(items) => items,
        NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::Map(_) => {
            reader.type_error("a list", node, key);
            return;
        }
    };
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{key}[{index}]");
        let Some(section) = reader.as_section(item, &path) else { continue };
        let name = read_name(reader, &section, kind);
        let Some(rule) = read_definition(reader, &section, kind, name.clone().unwrap_or_default(), into) else {
            continue;
        };
        let Some(name) = name else { continue };
        if let Some(first) = lines.insert(name.clone(), section.line) {
            let message = format!("there is another {} `{name}` in line {first}; rename one", kind.noun());
            reader.error(section.line, &join_key(&path, "name"), message);
        }
        into.rules.push(ConfiguredRule { rule, file: reader.file.to_owned(), line: section.line });
    }
}

/// Reads the name of an item of `access` or `policies`.
fn read_name(reader: &mut ConfigReader<'_>, section: &Section<'_>, kind: RuleKind) -> Option<String> {
    let Some(node) = section.get("name") else {
        reader.error(section.line, &section.path, "needs `name`: it stands in messages, commands and the history");
        return None;
    };
    let name = reader.read_text(section, "name")?;
    if let Err(error) = check_rule_name(kind, &name) {
        reader.error(node.line, &join_key(&section.path, "name"), error.message);
    }
    Some(name)
}

/// Reads a definition of any kind. Its name was read by the caller.
fn read_definition(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    kind: RuleKind,
    name: String,
    into: &mut ReadRules,
) -> Option<NamedRule> {
    match kind {
        RuleKind::Group => Some(NamedRule::Group(name, group::read(reader, section))),
        RuleKind::Access => Some(NamedRule::Access(name, read_access(reader, section, &mut into.references))),
        RuleKind::Policy => Some(NamedRule::Policy(name, read_policy(reader, section, &mut into.references)?)),
    }
}

/// Reads an access rule.
fn read_access(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    references: &mut Vec<GroupReference>,
) -> AccessRule {
    report_unknown_keys(reader, section, &ACCESS_KEYS);
    let when = condition::read_conditions(reader, section);
    let items = read_items(reader, section, "groups");
    if items.is_empty() && !matches!(section.get("groups"), Some(node) if !matches!(node.value, NodeValue::List(_))) {
        let line = section.entry("groups").map_or(section.line, |entry| entry.line);
        let message = "needs `groups`: an access rule gives at least one group";
        reader.error(line, &section.path, message);
    }
    let mut groups = Vec::new();
    for Item { text, line, path } in items {
        if groups.contains(&text) {
            continue;
        }
        references.push(GroupReference { group: text.clone(), file: reader.file.to_owned(), line, key: path });
        groups.push(text);
    }
    AccessRule { when, groups, active: reader.read_bool(section, "active").unwrap_or(true) }
}

/// Reads a policy. `None` without a valid verdict.
fn read_policy(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    references: &mut Vec<GroupReference>,
) -> Option<Policy> {
    report_unknown_keys(reader, section, &POLICY_KEYS);
    report_null(reader, section, &["match"]);
    let matches = match section.get("match") {
        Some(node) => read_match(reader, node, &join_key(&section.path, "match"), references),
        None => PolicyMatch::default(),
    };
    let Some(node) = section.get("verdict") else {
        reader.error(section.line, &section.path, "needs `verdict`: `allow`, `ask`, `deny` or `hide`");
        return None;
    };
    let verdict = read_verdict(reader, node, &join_key(&section.path, "verdict"))?;
    Some(Policy { matches, verdict })
}

/// Reads `match` of a policy.
fn read_match(
    reader: &mut ConfigReader<'_>,
    node: &ConfigNode,
    path: &str,
    references: &mut Vec<GroupReference>,
) -> PolicyMatch {
    let Some(section) = reader.as_section(node, path) else { return PolicyMatch::default() };
    let known: Vec<&str> = group::SELECTOR_KEYS.into_iter().chain(MATCH_ONLY_KEYS).collect();
    report_unknown_keys(reader, &section, &known);
    report_null(reader, &section, &["group"]);
    let group = reader.read_resolved_text(&section, "group");
    if let Some((group, node)) = group.as_ref().zip(section.get("group")) {
        let (group, file, key) = (group.clone(), reader.file.to_owned(), join_key(path, "group"));
        references.push(GroupReference { group, file, line: node.line, key });
    }
    let when = condition::read_conditions(reader, &section);
    PolicyMatch { selector: group::read_selector(reader, &section), group, when }
}

/// Checks the rules of all files together. Reports names that two files define, and groups that no file defines.
pub(super) fn check_merged(rules: &[ConfiguredRule], references: &[GroupReference]) -> Vec<ConfigDiagnostic> {
    let mut errors = Vec::new();
    let mut first: BTreeMap<(RuleKind, &str), &ConfiguredRule> = BTreeMap::new();
    for configured in rules {
        let (kind, name) = (configured.rule.kind(), configured.rule.name());
        let Some(other) = first.insert((kind, name), configured) else { continue };
        let message =
            format!("there is another {} `{name}` in `{}:{}`; rename one", kind.noun(), other.file, other.line);
        errors.push(ConfigDiagnostic::new(&configured.file, configured.line, kind.plural(), message));
    }
    let groups = rules.iter().filter(|known| known.rule.kind() == RuleKind::Group).map(|known| known.rule.name());
    errors.extend(find_unknown_groups(references, &groups.collect::<Vec<_>>()));
    errors
}

/// Reports references to groups that are not among `groups`.
fn find_unknown_groups(references: &[GroupReference], groups: &[&str]) -> Vec<ConfigDiagnostic> {
    let unknown = references.iter().filter(|reference| !groups.contains(&reference.group.as_str()));
    let report = |GroupReference { group, file, line, key }: &GroupReference| {
        let near = did_you_mean(group, groups.iter().copied());
        ConfigDiagnostic::new(file, *line, key, format!("unknown group `{}`{near}", sanitize_truncated(group, 80)))
    };
    unknown.map(report).collect()
}

/// Reports keys that are not in `known`, in files of every client: a rule that is read in part could allow more.
fn report_unknown_keys(reader: &mut ConfigReader<'_>, section: &Section<'_>, known: &[&str]) {
    for entry in section.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let near = did_you_mean(&entry.key, known.iter().copied());
        reader.error(entry.line, &section.path, format!("unknown key `{}`{near}", entry.key));
    }
}

/// Reports keys without a value. Elsewhere they count as absent; a condition that counts as absent selects more tools or
/// callers than its author wants.
fn report_null(reader: &mut ConfigReader<'_>, section: &Section<'_>, keys: &[&str]) {
    for entry in section.entries.iter().filter(|entry| entry.node.is_null() && keys.contains(&entry.key.as_str())) {
        reader.error(entry.line, &join_key(&section.path, &entry.key), "has no value; write one, or remove the key");
    }
}

/// Text of a list with its place.
struct Item {
    text: String,
    line: usize,
    path: String,
}

/// Reads a list of texts that are not empty. References are resolved now, as in other texts that are compared and never
/// sent.
fn read_items(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Vec<Item> {
    let Some(node) = section.get(key) else { return Vec::new() };
    let path = join_key(&section.path, key);
    let NodeValue::List(items) = &node.value else {
        reader.type_error("a list", node, &path);
        return Vec::new();
    };
    let items = items.iter().enumerate();
    items.filter_map(|(index, item)| read_item(reader, item, format!("{path}[{index}]"))).collect()
}

/// Like [`read_items`], for a key that may have a single text too.
fn read_text_or_items(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Vec<Item> {
    let Some(node) = section.get(key) else { return Vec::new() };
    let path = join_key(&section.path, key);
    match &node.value {
        NodeValue::List(_) => read_items(reader, section, key),
        NodeValue::Map(_) => {
            reader.type_error("text or a list", node, &path);
            Vec::new()
        }
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) => {
            read_item(reader, node, path).into_iter().collect()
        }
    }
}

fn read_item(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: String) -> Option<Item> {
    let text = reader.read_scalar(node, &path)?;
    if text.trim().is_empty() {
        reader.error(node.line, &path, "expected text, found an empty string");
        return None;
    }
    let text = reader.resolve_text(text, node.line, &path)?;
    Some(Item { text, line: node.line, path })
}

/// Reads a pattern.
fn read_pattern(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Option<Pattern> {
    let node = section.get(key)?;
    let text = reader.read_resolved_text(section, key)?;
    parse_pattern(reader, &text, node.line, &join_key(&section.path, key))
}

/// Parses a pattern and reports why it is invalid.
fn parse_pattern(reader: &mut ConfigReader<'_>, text: &str, line: usize, path: &str) -> Option<Pattern> {
    Pattern::parse(text).map_err(|reason| reader.error(line, path, reason)).ok()
}

/// Reports a list that is too long.
fn check_count(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str, count: usize, max: usize) {
    if count > max {
        let line = section.entry(key).map_or(section.line, |entry| entry.line);
        reader.error(line, &join_key(&section.path, key), format!("at most {max} are allowed, found {count}"));
    }
}

#[cfg(test)]
mod tests;
