//! Renders a diff as SARIF 2.1.0, which code review tools show beside the lines of a lockfile.
//!
//! A result points at the line of the tool in the lockfile, which is the file that a pull request changes. Results of
//! two runs are matched by `partialFingerprints`.

use serde_json::{Value, json};
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::history::describe_change_in_full;
use toolcrib_core::source::SourceId;

use super::{CatalogDiff, SourceDiff};
use crate::lockfile::LockfileLines;

/// The file that results point at: the lockfile.
#[derive(Debug, Clone, Default)]
pub struct Artifact {
    /// Relative to the root of the repository.
    pub uri: String,
    /// Line of each source and tool in the file.
    pub lines: LockfileLines,
}

/// Category of a difference.
struct SarifRule {
    id: &'static str,
    /// In Pascal case, as SARIF recommends.
    name: &'static str,
    /// Whatever may break a caller is an error.
    level: &'static str,
    /// Without a full stop; `fullDescription` adds it.
    meaning: &'static str,
}

/// Returns the rule for changed tools of a class.
const fn changed(class: ChangeClass, name: &'static str, level: &'static str) -> SarifRule {
    SarifRule { id: class.as_str(), name, level, meaning: class.meaning() }
}

const ADDED: &str = "added";
const REMOVED: &str = "removed";
const RENAMED: &str = "renamed";
/// Id of the rule for a source that could not be refreshed or compared.
const UNREADABLE: &str = "unreadable";

/// All rules in a fixed order, since results refer to them by index. Each rule is listed in every report,
/// whether it has results or not.
const RULES: [SarifRule; 11] = [
    changed(ChangeClass::Breaking, "BreakingChange", "error"),
    changed(ChangeClass::HintFlipped, "HintFlipped", "error"),
    changed(ChangeClass::Narrowed, "ToolNarrowed", "warning"),
    changed(ChangeClass::Execution, "ExecutionChanged", "warning"),
    changed(ChangeClass::Widened, "ToolWidened", "note"),
    changed(ChangeClass::Other, "ToolChanged", "warning"),
    changed(ChangeClass::Text, "TextChanged", "note"),
    SarifRule { id: ADDED, name: "ToolAdded", level: "note", meaning: "A tool was added" },
    SarifRule { id: REMOVED, name: "ToolRemoved", level: "error", meaning: "A tool was removed" },
    SarifRule { id: RENAMED, name: "ToolRenamed", level: "error", meaning: "A tool was most likely renamed" },
    SarifRule { id: UNREADABLE, name: "SourceUnreadable", level: "error", meaning: "A source could not be compared" },
];

/// Renders a SARIF log with one run. `version` is that of Toolcrib.
pub fn to_sarif(diff: &CatalogDiff, artifact: &Artifact, version: &str) -> Value {
    let results: Vec<Value> = diff.sources.iter().flat_map(|source| results(source, artifact)).collect();
    let rules = RULES.each_ref().map(describe_rule);
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "toolcrib", "semanticVersion": version, "rules": rules } },
            "columnKind": "utf16CodeUnits",
            "invocations": [{
                "executionSuccessful": !diff.has_unreadable(),
                "toolExecutionNotifications": diff.stale.iter().map(stale_notification).collect::<Vec<_>>(),
            }],
            "results": results,
        }],
    })
}

/// Returns a warning that the tool list of a source may be outdated.
fn stale_notification(source: &SourceId) -> Value {
    json!({ "level": "warning", "message": { "text": format!("the tool list of `{source}` may be outdated") } })
}

/// Returns the description of a rule.
fn describe_rule(rule: &SarifRule) -> Value {
    let advice = if rule.id == UNREADABLE {
        "Run `toolcrib doctor` to see what is wrong with the source; none of its tools count as removed."
    } else {
        "If this change is intended, run `toolcrib lock` and commit the lockfile."
    };
    json!({
        "id": rule.id,
        "name": rule.name,
        "shortDescription": { "text": rule.meaning },
        "fullDescription": { "text": format!("{}.", rule.meaning) },
        "help": { "text": advice },
        "defaultConfiguration": { "level": rule.level },
    })
}

/// Returns one result per difference of a source.
fn results(source: &SourceDiff, artifact: &Artifact) -> Vec<Value> {
    let id = source.source.as_str();
    let result = |rule_id: &str, name: &str, message: String| {
        let line = artifact.lines.find_line(&source.source, name);
        // Tools that are not in the file, such as added ones, point at their source.
        let physical_location = json!({ "artifactLocation": { "uri": artifact.uri }, "region": { "startLine": line } });
        // A source is a module of functions.
        let logical_location = if rule_id == UNREADABLE {
            json!({ "name": id, "kind": "module" })
        } else {
            json!({ "name": name, "fullyQualifiedName": format!("{id}/{name}"), "kind": "function" })
        };
        // The fingerprint identifies a result across runs, so it depends on nothing but this tool.
        let fingerprint = source.fingerprints.get(name).map(Fingerprint::to_string).unwrap_or_default();
        let identity = format!("{rule_id} {id} {name} {fingerprint}");
        let rule_index = RULES.iter().position(|rule| rule.id == rule_id);
        json!({
            "ruleId": rule_id,
            "ruleIndex": rule_index,
            "level": rule_index.map(|index| RULES[index].level),
            "message": { "text": escape_message(&message) },
            "locations": [{
                "physicalLocation": physical_location,
                "logicalLocations": [logical_location],
            }],
            "partialFingerprints": { "toolcribDifference/v1": Fingerprint::digest(identity).to_string() },
        })
    };
    let renamed = source.renamed_names();
    let is_renamed = |name: &String| renamed.contains(name.as_str());
    let mut results = Vec::new();
    if let Some(problem) = source.problem() {
        results.push(result(UNREADABLE, id, format!("`{id}` {problem}")));
    }
    // Changes of older records have no class.
    for change in &source.changed {
        let class = change.class.unwrap_or(ChangeClass::Other);
        results.push(result(class.as_str(), &change.name, describe_change_in_full(change)));
    }
    for renamed in &source.renamed {
        let message = format!("`{}` was most likely renamed to `{}`", renamed.from, renamed.to);
        results.push(result(RENAMED, &renamed.from, message));
    }
    for name in source.removed.iter().filter(|name| !is_renamed(name)) {
        results.push(result(REMOVED, name, format!("`{name}` was removed")));
    }
    for name in source.added.iter().filter(|name| !is_renamed(name)) {
        results.push(result(ADDED, name, format!("`{name}` was added to `{id}`")));
    }
    results
}

/// Escapes a message: SARIF viewers interpret brackets as links and braces as placeholders.
fn escape_message(message: &str) -> String {
    let mut escaped = String::with_capacity(message.len());
    for character in message.chars() {
        if matches!(character, '\\' | '[' | ']') {
            escaped.push('\\');
        }
        escaped.push(character);
        // A literal brace is doubled.
        if matches!(character, '{' | '}') {
            escaped.push(character);
        }
    }
    escaped
}
