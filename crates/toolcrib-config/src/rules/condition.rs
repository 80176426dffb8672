//! Reads conditions on the claims of callers. Values keep their JSON type.

use serde_json::{Map, Value};
use toolcrib_core::access_rules::{ClaimCondition, ClaimPath, ClaimTest, find_contradiction};

use super::{check_count, report_null, report_unknown_keys};
use crate::reader::{ConfigReader, Section, format_alternatives};
use crate::syntax::{ConfigNode, NodeEntry, NodeValue, join_key, node_to_json};

/// Maximum number of conditions of a rule.
const MAX_CONDITIONS: usize = 32;

/// Reads `when`: a list of conditions. Reports one that no caller can meet, alone or with an
/// earlier one.
pub(super) fn read_conditions(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<ClaimCondition> {
    report_null(reader, section, &["when"]);
    let Some(node) = section.get("when") else { return Vec::new() };
    let path = join_key(&section.path, "when");
    let NodeValue::List(items) = &node.value else {
        reader.type_error("a list", node, &path);
        return Vec::new();
    };
    check_count(reader, section, "when", items.len(), MAX_CONDITIONS);
    let mut places = Vec::new();
    let mut conditions = Vec::new();
    for (index, item) in items.iter().enumerate().take(MAX_CONDITIONS) {
        let path = format!("{path}[{index}]");
        if let Some(condition) = read_condition(reader, item, &path) {
            conditions.push(condition);
            places.push((item.line, path));
        }
    }
    if let Some((position, reason)) = find_contradiction(&conditions)
        && let Some((line, path)) = places.get(position)
    {
        reader.error(*line, path, reason);
    }
    conditions
}

/// Reads one condition: a claim and exactly one test.
fn read_condition(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<ClaimCondition> {
    let section = reader.as_section(node, path)?;
    let known: Vec<&str> = std::iter::once("claim").chain(ClaimTest::NAMES).collect();
    report_unknown_keys(reader, &section, &known);
    let claim = read_claim(reader, &section);
    // Null is a value here: the test says that it is none.
    let tests: Vec<&NodeEntry> =
        section.entries.iter().filter(|entry| ClaimTest::NAMES.contains(&entry.key.as_str())).collect();
    let test = match tests.as_slice() {
        [test] => read_test(reader, &section, test),
        [] => {
            // An unknown key is most likely the misspelled test.
            if section.entries.iter().all(|entry| known.contains(&entry.key.as_str())) {
                let message = format!("needs a test: one of {}", format_alternatives(&ClaimTest::NAMES));
                reader.error(section.line, path, message);
            }
            None
        }
        [first, second, ..] => {
            let message = format!("has two tests, `{}` and `{}`; write a condition for each", first.key, second.key);
            reader.error(second.line, path, message);
            None
        }
    };
    Some(ClaimCondition { claim: claim?, test: test? })
}

/// Reads the path of the claim.
fn read_claim(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<ClaimPath> {
    let Some(node) = section.get("claim") else {
        let message = "needs `claim`: the path of a claim, such as `realm_access.roles` or `caller.kind`";
        reader.error(section.line, &section.path, message);
        return None;
    };
    let text = reader.read_resolved_text(section, "claim")?;
    let path = join_key(&section.path, "claim");
    ClaimPath::parse(&text).map_err(|reason| reader.error(node.line, &path, reason)).ok()
}

/// Reads a test with its value.
fn read_test(reader: &mut ConfigReader<'_>, section: &Section<'_>, entry: &NodeEntry) -> Option<ClaimTest> {
    // Like other booleans of a file, it may be written as `yes`, or as a reference.
    if entry.key == "exists" && !entry.node.is_null() {
        return reader.read_bool(section, "exists").map(ClaimTest::Exists);
    }
    let path = join_key(&section.path, &entry.key);
    let value = read_value(reader, &entry.node, &path)?;
    ClaimTest::parse(&entry.key, &value).map_err(|reason| reader.error(entry.node.line, &path, reason)).ok()
}

/// Converts a value to JSON, with references in texts resolved.
fn read_value(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Value> {
    match &node.value {
        NodeValue::Text(text) => reader.resolve_text(text.clone(), node.line, path).map(Value::String),
        NodeValue::List(items) => {
            let items = items.iter().enumerate();
            let values = items.map(|(index, item)| read_value(reader, item, &format!("{path}[{index}]")));
            values.collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        NodeValue::Map(entries) => {
            let values = entries
                .iter()
                .map(|entry| Some((entry.key.clone(), read_value(reader, &entry.node, &join_key(path, &entry.key))?)));
            values.collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) => Some(node_to_json(node.clone())),
    }
}
