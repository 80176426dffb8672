//! Renders a diff as SARIF 2.1.0, which code review tools show beside the lines of a lockfile.
//!
//! A result points at the line of the tool in the lockfile, which is the file that a pull request changes. Results of
//! two runs are matched by `partialFingerprints`.

use serde_json::{Value, json};
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::SourceId;
use toolcrib_core::text::sanitize_truncated;

use super::{CatalogDiff, DiffKind, SourceDiff};
use crate::history::describe_change_in_full;
use crate::lockfile::LockfileLines;

/// The file that results point at: the lockfile.
#[derive(Debug, Clone, Default)]
pub struct Artifact {
    /// Relative to the root of the repository.
    pub uri: String,
    /// Line of each source and tool in the file.
    pub lines: LockfileLines,
}

/// All rules in a fixed order, since results refer to them by index. Each rule is listed in every report,
/// whether it has results or not.
const RULES: [DiffKind; 11] = [
    DiffKind::Changed(ChangeClass::Breaking),
    DiffKind::Changed(ChangeClass::HintFlipped),
    DiffKind::Changed(ChangeClass::Narrowed),
    DiffKind::Changed(ChangeClass::Execution),
    DiffKind::Changed(ChangeClass::Widened),
    DiffKind::Changed(ChangeClass::Other),
    DiffKind::Changed(ChangeClass::Text),
    DiffKind::Added,
    DiffKind::Removed,
    DiffKind::Renamed,
    DiffKind::Unreadable,
];

/// Renders a SARIF log with one run. `version` is that of Toolcrib.
pub fn to_sarif(diff: &CatalogDiff, artifact: &Artifact, version: &str) -> Value {
    let results: Vec<Value> = diff.sources.iter().flat_map(|source| results(source, artifact)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "toolcrib", "semanticVersion": version, "rules": RULES.map(rule) } },
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
fn rule(kind: DiffKind) -> Value {
    json!({
        "id": kind.as_str(),
        "name": kind.rule_name(),
        "shortDescription": { "text": kind.meaning() },
        "fullDescription": { "text": format!("{}.", kind.meaning()) },
        "help": { "text": kind.advice() },
        "defaultConfiguration": { "level": kind.level() },
    })
}

/// Returns one result per difference of a source.
fn results(source: &SourceDiff, artifact: &Artifact) -> Vec<Value> {
    let id = source.source.as_str();
    let result = |kind: DiffKind, name: &str, message: String| {
        let line = artifact.lines.find_line(&source.source, name);
        // Tools that are not in the file, such as added ones, point at their source.
        let physical_location = json!({ "artifactLocation": { "uri": artifact.uri }, "region": { "startLine": line } });
        let logical_location = match kind {
            // A source is a module of functions.
            DiffKind::Unreadable => json!({ "name": id, "kind": "module" }),
            DiffKind::Changed(_) | DiffKind::Added | DiffKind::Removed | DiffKind::Renamed => {
                json!({ "name": name, "fullyQualifiedName": format!("{id}/{name}"), "kind": "function" })
            }
        };
        // The fingerprint identifies a result across runs, so it depends on nothing but this tool.
        let fingerprint = source.fingerprints.get(name).map(Fingerprint::to_string).unwrap_or_default();
        let identity = format!("{} {id} {name} {fingerprint}", kind.as_str());
        json!({
            "ruleId": kind.as_str(),
            "ruleIndex": RULES.iter().position(|rule| *rule == kind),
            "level": kind.level(),
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
    // A source with a cached list was compared nevertheless.
    if let Some(error) = &source.error {
        let problem = if source.after.is_some() { "could not be refreshed" } else { "could not be compared" };
        results.push(result(
            DiffKind::Unreadable,
            id,
            format!("`{id}` {problem}: {}", sanitize_truncated(&error.message, 300)),
        ));
    }
    // Changes of older records have no class.
    for change in &source.changed {
        let class = change.class.unwrap_or(ChangeClass::Other);
        results.push(result(DiffKind::Changed(class), &change.name, describe_change_in_full(change)));
    }
    for renamed in &source.renamed {
        let message = format!("`{}` was most likely renamed to `{}`", renamed.from, renamed.to);
        results.push(result(DiffKind::Renamed, &renamed.from, message));
    }
    for name in source.removed.iter().filter(|name| !is_renamed(name)) {
        results.push(result(DiffKind::Removed, name, format!("`{name}` was removed")));
    }
    for name in source.added.iter().filter(|name| !is_renamed(name)) {
        results.push(result(DiffKind::Added, name, format!("`{name}` was added to `{id}`")));
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

impl DiffKind {
    /// Returns the id of the rule.
    fn as_str(self) -> &'static str {
        match self {
            DiffKind::Changed(class) => class.as_str(),
            DiffKind::Added => "added",
            DiffKind::Removed => "removed",
            DiffKind::Renamed => "renamed",
            DiffKind::Unreadable => "unreadable",
        }
    }

    /// Returns the name of the rule in Pascal case, as SARIF recommends.
    fn rule_name(self) -> &'static str {
        match self {
            DiffKind::Changed(ChangeClass::Text) => "TextChanged",
            DiffKind::Changed(ChangeClass::Widened) => "ToolWidened",
            DiffKind::Changed(ChangeClass::Execution) => "ExecutionChanged",
            DiffKind::Changed(ChangeClass::Narrowed) => "ToolNarrowed",
            DiffKind::Changed(ChangeClass::HintFlipped) => "HintFlipped",
            DiffKind::Changed(ChangeClass::Breaking) => "BreakingChange",
            DiffKind::Changed(ChangeClass::Other) => "ToolChanged",
            DiffKind::Added => "ToolAdded",
            DiffKind::Removed => "ToolRemoved",
            DiffKind::Renamed => "ToolRenamed",
            DiffKind::Unreadable => "SourceUnreadable",
        }
    }

    /// Returns a short description of the rule. Without a full stop; `fullDescription` adds it.
    fn meaning(self) -> &'static str {
        match self {
            DiffKind::Changed(class) => class.meaning(),
            DiffKind::Added => "A tool was added",
            DiffKind::Removed => "A tool was removed",
            DiffKind::Renamed => "A tool was most likely renamed",
            DiffKind::Unreadable => "A source could not be compared",
        }
    }

    /// Returns what to do about a result.
    fn advice(self) -> &'static str {
        match self {
            DiffKind::Unreadable => {
                "Run `toolcrib doctor` to see what is wrong with the source; none of its tools count as removed."
            }
            DiffKind::Changed(_) | DiffKind::Added | DiffKind::Removed | DiffKind::Renamed => {
                "If this change is intended, run `toolcrib lock` and commit the lockfile."
            }
        }
    }

    /// Returns the SARIF level. Whatever may break a caller is an error.
    fn level(self) -> &'static str {
        match self {
            DiffKind::Changed(ChangeClass::Breaking | ChangeClass::HintFlipped)
            | DiffKind::Removed
            | DiffKind::Renamed
            | DiffKind::Unreadable => "error",
            DiffKind::Changed(ChangeClass::Narrowed | ChangeClass::Execution | ChangeClass::Other) => "warning",
            DiffKind::Changed(ChangeClass::Text | ChangeClass::Widened) | DiffKind::Added => "note",
        }
    }
}
