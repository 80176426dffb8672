//! Compares MCP tool annotations: the four hints about a tool's effects, and the title among them.
//!
//! A tool may change its effects without changing its schema: one that was allowed because it only reads may write
//! after an update. Such a flip therefore ranks just below a breaking change.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{ChangeClass, Findings, parse_json};

/// For each hint: its MCP name, its name in lockfiles, and the notes for a change to true and to false.
const HINTS: [(&str, &str, &str, &str); 4] = [
    ("readOnlyHint", "read_only", "is now declared read-only", "is no longer declared read-only"),
    ("destructiveHint", "destructive", "now says it is destructive", "now says it is not destructive"),
    ("idempotentHint", "idempotent", "now says it is idempotent", "no longer says it is idempotent"),
    ("openWorldHint", "open_world", "now says it reaches beyond its source", "now says it stays within its source"),
];

/// Values of the four hints in the order of [`HINTS`]: as the source sent them, else the default of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EffectHints([bool; 4]);

impl EffectHints {
    /// Reads a tool's annotations.
    pub(crate) fn from_annotations(annotations: Option<&RawValue>) -> EffectHints {
        EffectHints::from_value(&parse_json(annotations))
    }

    /// Reads parsed annotations. Hints that are not booleans count as missing.
    fn from_value(annotations: &Value) -> EffectHints {
        // Defaults are filled in, so that stating a default explicitly is not a flip.
        let hint = |index: usize| annotations.get(HINTS[index].0).and_then(Value::as_bool);
        let read_only = hint(0).unwrap_or(false);
        // A read-only tool is by default neither destructive nor non-idempotent.
        EffectHints([read_only, hint(1).unwrap_or(!read_only), hint(2).unwrap_or(read_only), hint(3).unwrap_or(true)])
    }

    /// Returns the lockfile names of the hints that are true, separated by spaces.
    pub(crate) fn true_names(self) -> String {
        let names = HINTS.iter().zip(self.0).filter(|(_, value)| *value).map(|((_, name, ..), _)| *name);
        names.collect::<Vec<_>>().join(" ")
    }

    /// Parses what [`EffectHints::true_names`] wrote. Unknown names are ignored.
    pub(crate) fn parse_names(names: &str) -> EffectHints {
        EffectHints(HINTS.map(|(_, name, ..)| names.split(' ').any(|listed| listed == name)))
    }

    /// Returns a note for each hint that differs. If `readOnlyHint` changed, the destructive and idempotent hints
    /// follow from it and get no note of their own.
    pub(crate) fn describe_flips(self, new: EffectHints) -> Vec<&'static str> {
        let reported = if self.0[0] == new.0[0] { &[0, 1, 2, 3][..] } else { &[0, 3] };
        let differs = reported.iter().filter(|index| self.0[**index] != new.0[**index]);
        differs.map(|index| if new.0[*index] { HINTS[*index].2 } else { HINTS[*index].3 }).collect()
    }
}

/// Returns whether an annotation is one of the four hints.
pub(crate) fn is_hint(name: &str) -> bool {
    HINTS.iter().any(|(hint, ..)| *hint == name)
}

/// Compares the annotations of two versions of a tool.
pub(super) fn compare(old: Option<&RawValue>, new: Option<&RawValue>, findings: &mut Findings) {
    let old = parse_json(old);
    let new = parse_json(new);
    if old == new {
        return;
    }
    findings.begin_section();
    for note in EffectHints::from_value(&old).describe_flips(EffectHints::from_value(&new)) {
        findings.add(ChangeClass::HintFlipped, || note.to_owned());
    }
    if old.get("title") != new.get("title") {
        findings.add(ChangeClass::Text, || "its title changed".to_owned());
    }
    // An annotation that is not known here, or a hint that states its default now.
    if findings.worst_in_section.is_none() {
        findings.add(ChangeClass::Other, || "its annotations changed".to_owned());
    }
}
