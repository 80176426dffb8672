//! Reads groups and selectors.

use toolcrib_core::access_rules::{Group, Pattern, Risk, Selector};
use toolcrib_core::expose::ExposeMode;
use toolcrib_core::text::{did_you_mean, sanitize, sanitize_truncated};
use toolcrib_core::tool::parse_tool_name;

use super::{
    Item, check_count, parse_pattern, read_items, read_pattern, read_text_or_items, report_null, report_unknown_keys,
};
use crate::reader::{ConfigReader, Section, format_alternatives};
use crate::settings::remove_duplicates;
use crate::syntax::{ConfigNode, NodeValue, join_key};

/// Keys of a group.
pub(crate) const GROUP_KEYS: [&str; 7] = ["title", "select", "tools", "exclude", "instructions", "essential", "mode"];
/// Keys of a selector, which `match` of a policy has too.
pub(crate) const SELECTOR_KEYS: [&str; 7] = ["source", "name", "tags", "without_tags", "method", "path", "risk"];

/// HTTP methods of operations.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

// Each list is compared with every tool of the catalogue.
const MAX_SELECTORS: usize = 100;
const MAX_TOOLS: usize = 1_000;
const MAX_EXCLUDE: usize = 100;
const MAX_ESSENTIAL: usize = 100;
/// Maximum length of a title in characters.
const MAX_TITLE_LEN: usize = 200;
/// Maximum length of instructions in bytes: clients put them into the context of a model.
const MAX_INSTRUCTIONS_LEN: usize = 8 * 1024;

/// Reads the keys of a group.
pub(super) fn read(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Group {
    report_unknown_keys(reader, section, &GROUP_KEYS);
    let modes = ExposeMode::ALL.map(|mode| (mode.as_str(), mode));
    let title = read_bounded_text(reader, section, "title", MAX_TITLE_LEN, "characters", |text| text.chars().count());
    let select = read_select(reader, section);
    let tools = read_tools(reader, section);
    let exclude = read_items(reader, section, "exclude");
    check_count(reader, section, "exclude", exclude.len(), MAX_EXCLUDE);
    let exclude: Vec<Pattern> =
        exclude.iter().filter_map(|item| parse_pattern(reader, &item.text, item.line, &item.path)).collect();
    report_excluded_tools(reader, &tools, &exclude);
    let instructions =
        read_bounded_text(reader, section, "instructions", MAX_INSTRUCTIONS_LEN, "bytes", |text| text.len());
    let essential: Vec<String> = read_items(reader, section, "essential").into_iter().map(|item| item.text).collect();
    check_count(reader, section, "essential", essential.len(), MAX_ESSENTIAL);
    Group {
        title: title.map(|title| sanitize(&title)),
        select,
        tools: remove_duplicates(tools.into_iter().map(|item| item.text).collect()),
        exclude,
        instructions,
        essential,
        mode: reader.read_choice_at(section, "mode", &modes),
    }
}

/// Reads `select`: one selector, or a list of them.
fn read_select(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<Selector> {
    let Some(node) = section.get("select") else { return Vec::new() };
    let path = join_key(&section.path, "select");
    let NodeValue::List(items) = &node.value else {
        return read_selector_node(reader, node, &path).into_iter().collect();
    };
    check_count(reader, section, "select", items.len(), MAX_SELECTORS);
    let items = items.iter().enumerate();
    items.filter_map(|(index, item)| read_selector_node(reader, item, &format!("{path}[{index}]"))).collect()
}

fn read_selector_node(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Selector> {
    // An empty item of a list is more likely a mistake than a selector of all tools.
    if node.is_null() {
        reader.type_error("a map of keys", node, path);
        return None;
    }
    let section = reader.as_section(node, path)?;
    report_unknown_keys(reader, &section, &SELECTOR_KEYS);
    Some(read_selector(reader, &section))
}

/// Reads the keys of a selector. Unknown keys are reported by the caller, which may have others beside.
pub(super) fn read_selector(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Selector {
    report_null(reader, section, &SELECTOR_KEYS);
    let mut read_tags = |key: &str| {
        remove_duplicates(read_text_or_items(reader, section, key).into_iter().map(|item| item.text).collect())
    };
    let (tags, without_tags) = (read_tags("tags"), read_tags("without_tags"));
    let selector = Selector {
        source: read_pattern(reader, section, "source"),
        name: read_pattern(reader, section, "name"),
        tags,
        without_tags,
        method: read_method(reader, section),
        path: read_pattern(reader, section, "path"),
        risk: read_risk(reader, section),
    };
    if let Some(reason) = selector.contradiction() {
        reader.error(section.line, &section.path, reason);
    }
    selector
}

/// Reads an HTTP method in any case, as upper case.
fn read_method(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<String> {
    let node = section.get("method")?;
    let text = reader.read_resolved_text(section, "method")?;
    let method = text.to_ascii_uppercase();
    if METHODS.contains(&method.as_str()) {
        return Some(method);
    }
    let near = did_you_mean(&method, METHODS);
    let message =
        format!("expected {}, found `{}`{near}", format_alternatives(&METHODS), sanitize_truncated(&text, 80));
    reader.error(node.line, &join_key(&section.path, "method"), message);
    None
}

/// Reads `risk`: one or a list.
fn read_risk(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<Risk> {
    let Some(node) = section.get("risk") else { return Vec::new() };
    let path = join_key(&section.path, "risk");
    let choices = Risk::ALL.map(|risk| (risk.as_str(), risk));
    let NodeValue::List(items) = &node.value else {
        return reader.read_choice(node, &path, &choices).into_iter().collect();
    };
    let mut risks: Vec<Risk> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let risk = reader.read_choice(item, &format!("{path}[{index}]"), &choices);
        risks.extend(risk.filter(|risk| !risks.contains(risk)));
    }
    risks
}

/// Reads the names of tools.
fn read_tools(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<Item> {
    let tools = read_items(reader, section, "tools");
    check_count(reader, section, "tools", tools.len(), MAX_TOOLS);
    for Item { text, line, path } in &tools {
        if let Err(error) = parse_tool_name(text) {
            reader.error(*line, path, error.message);
        } else if text.contains(['*', '?']) {
            let message = format!("`{}` is a glob; write it as `name` under `select`", sanitize_truncated(text, 80));
            reader.error(*line, path, message);
        }
    }
    tools
}

/// Reports tools that the group names and excludes.
fn report_excluded_tools(reader: &mut ConfigReader<'_>, tools: &[Item], exclude: &[Pattern]) {
    for Item { text, line, path } in tools {
        if exclude.iter().any(|pattern| pattern.as_str() == text) {
            let message = format!("`{}` is both in `tools` and in `exclude`", sanitize_truncated(text, 80));
            reader.error(*line, path, message);
        }
    }
}

/// Reads a text of at most `max` units, as `measure` counts them.
fn read_bounded_text(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    key: &str,
    max: usize,
    unit: &str,
    measure: fn(&str) -> usize,
) -> Option<String> {
    let node = section.get(key)?;
    let text = reader.read_resolved_text(section, key)?;
    let length = measure(&text);
    if length > max {
        let message = format!("has {length} {unit}; at most {max} are allowed");
        reader.error(node.line, &join_key(&section.path, key), message);
        return None;
    }
    Some(text)
}
