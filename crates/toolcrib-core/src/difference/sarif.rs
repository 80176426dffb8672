//! A difference as SARIF 2.1.0, which code review tools show beside the lines of a lockfile.

use serde_json::{Value, json};

use super::{Difference, Kind, SourceDifference};
use crate::compare::Class;
use crate::fingerprint::Fingerprint;
use crate::history::changed_in_full;
use crate::lock::Lines;
use crate::source::SourceId;
use crate::text::shown_short;

/// Where findings are shown: a file, relative to the repository, and on which line each name stands.
#[derive(Debug, Clone, Default)]
pub struct Artifact {
    pub uri: String,
    pub lines: Lines,
}

const RULES: [Kind; 11] = [
    Kind::Changed(Class::Breaking),
    Kind::Changed(Class::HintFlipped),
    Kind::Changed(Class::Narrowed),
    Kind::Changed(Class::Execution),
    Kind::Changed(Class::Widened),
    Kind::Changed(Class::Other),
    Kind::Changed(Class::Text),
    Kind::Added,
    Kind::Removed,
    Kind::Renamed,
    Kind::Unreadable,
];

pub fn sarif(difference: &Difference, artifact: &Artifact, version: &str) -> Value {
    let results: Vec<Value> = difference.sources.iter().flat_map(|source| results(source, artifact)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "toolcrib", "semanticVersion": version, "rules": RULES.map(rule) } },
            "columnKind": "utf16CodeUnits",
            "invocations": [{
                "executionSuccessful": !difference.unreadable(),
                "toolExecutionNotifications": difference.stale.iter().map(may_be_old).collect::<Vec<_>>(),
            }],
            "results": results,
        }],
    })
}

fn may_be_old(source: &SourceId) -> Value {
    json!({ "level": "warning", "message": { "text": format!("the list of `{source}` may be old") } })
}

fn rule(kind: Kind) -> Value {
    json!({
        "id": kind.as_str(),
        "name": kind.name(),
        "shortDescription": { "text": kind.meaning() },
        "fullDescription": { "text": format!("{}.", kind.meaning()) },
        "help": { "text": kind.advice() },
        "defaultConfiguration": { "level": kind.level() },
    })
}

fn results(source: &SourceDifference, artifact: &Artifact) -> Vec<Value> {
    let id = source.source.as_str();
    let result = |kind: Kind, name: &str, message: String| {
        let line = artifact.lines.find(&source.source, name);
        let place = json!({ "artifactLocation": { "uri": artifact.uri }, "region": { "startLine": line } });
        let place_within = match kind {
            Kind::Unreadable => json!({ "name": id, "kind": "module" }),
            Kind::Changed(_) | Kind::Added | Kind::Removed | Kind::Renamed => {
                json!({ "name": name, "fullyQualifiedName": format!("{id}/{name}"), "kind": "function" })
            }
        };
        // The same finding stays the same whatever else changes.
        let own = source.fingerprints.get(name).map(Fingerprint::to_string).unwrap_or_default();
        let identity = format!("{} {id} {name} {own}", kind.as_str());
        json!({
            "ruleId": kind.as_str(),
            "ruleIndex": RULES.iter().position(|rule| *rule == kind),
            "level": kind.level(),
            "message": { "text": plain(&message) },
            "locations": [{
                "physicalLocation": place,
                "logicalLocations": [place_within],
            }],
            "partialFingerprints": { "toolcribDifference/v1": Fingerprint::of(identity).to_string() },
        })
    };
    let renamed = source.names_renamed();
    let is_renamed = |name: &String| renamed.contains(name.as_str());
    let mut results = Vec::new();
    if let Some(error) = &source.error {
        let what = if source.after.is_some() { "could not be read now" } else { "could not be compared" };
        results.push(result(Kind::Unreadable, id, format!("`{id}` {what}: {}", shown_short(&error.message, 300))));
    }
    for change in &source.changed {
        let class = change.class.unwrap_or(Class::Other);
        results.push(result(Kind::Changed(class), &change.name, changed_in_full(change)));
    }
    for renamed in &source.renamed {
        let message = format!("`{}` is `{}` now, most likely", renamed.from, renamed.to);
        results.push(result(Kind::Renamed, &renamed.from, message));
    }
    for name in source.removed.iter().filter(|name| !is_renamed(name)) {
        results.push(result(Kind::Removed, name, format!("`{name}` was removed")));
    }
    for name in source.added.iter().filter(|name| !is_renamed(name)) {
        results.push(result(Kind::Added, name, format!("`{name}` was added to `{id}`")));
    }
    results
}

/// Readers of SARIF take brackets for links and braces for placeholders.
fn plain(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    for letter in message.chars() {
        if matches!(letter, '\\' | '[' | ']') {
            plain.push('\\');
        }
        plain.push(letter);
        // A brace that is meant as one is written twice.
        if matches!(letter, '{' | '}') {
            plain.push(letter);
        }
    }
    plain
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Changed(class) => class.as_str(),
            Kind::Added => "added",
            Kind::Removed => "removed",
            Kind::Renamed => "renamed",
            Kind::Unreadable => "unreadable",
        }
    }

    /// As SARIF likes names of rules.
    fn name(self) -> &'static str {
        match self {
            Kind::Changed(Class::Text) => "TextChanged",
            Kind::Changed(Class::Widened) => "ToolWidened",
            Kind::Changed(Class::Execution) => "ExecutionChanged",
            Kind::Changed(Class::Narrowed) => "ToolNarrowed",
            Kind::Changed(Class::HintFlipped) => "HintFlipped",
            Kind::Changed(Class::Breaking) => "BreakingChange",
            Kind::Changed(Class::Other) => "ToolChanged",
            Kind::Added => "ToolAdded",
            Kind::Removed => "ToolRemoved",
            Kind::Renamed => "ToolRenamed",
            Kind::Unreadable => "SourceUnreadable",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Kind::Changed(class) => class.meaning(),
            Kind::Added => "A tool was added",
            Kind::Removed => "A tool was removed",
            Kind::Renamed => "A tool has another name, most likely",
            Kind::Unreadable => "A source could not be compared",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Kind::Unreadable => {
                "`toolcrib doctor` says what is wrong with a source; nothing of it was taken for removed."
            }
            Kind::Changed(_) | Kind::Added | Kind::Removed | Kind::Renamed => {
                "When this is wanted, run `toolcrib lock` and commit the lockfile."
            }
        }
    }

    fn level(self) -> &'static str {
        match self {
            Kind::Changed(Class::Breaking | Class::HintFlipped) | Kind::Removed | Kind::Renamed | Kind::Unreadable => {
                "error"
            }
            Kind::Changed(Class::Narrowed | Class::Execution | Class::Other) => "warning",
            Kind::Changed(Class::Text | Class::Widened) | Kind::Added => "note",
        }
    }
}
