//! What a tool says about its effects.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{ChangeClass, Findings};

/// A hint, its short name, and what a change to yes and to no is called.
const HINTS: [(&str, &str, &str, &str); 4] = [
    ("readOnlyHint", "read_only", "now says it only reads", "no longer says it only reads"),
    ("destructiveHint", "destructive", "now says it is destructive", "now says it is not destructive"),
    (
        "idempotentHint",
        "idempotent",
        "now says that doing it twice does it once",
        "no longer says that doing it twice does it once",
    ),
    ("openWorldHint", "open_world", "now says it reaches beyond its source", "now says it stays within its source"),
];

/// The four hints in the order of [`HINTS`], as they are given or else as the protocol assumes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EffectHints([bool; 4]);

impl EffectHints {
    pub(crate) fn from_annotations(annotations: Option<&RawValue>) -> EffectHints {
        EffectHints::from_value(&parse_annotations(annotations))
    }

    fn from_value(annotations: &Value) -> EffectHints {
        let said = |index: usize| annotations.get(HINTS[index].0).and_then(Value::as_bool);
        let read_only = said(0).unwrap_or(false);
        // What only reads destroys nothing, and may be done twice.
        EffectHints([read_only, said(1).unwrap_or(!read_only), said(2).unwrap_or(read_only), said(3).unwrap_or(true)])
    }

    /// Those that hold, by their short names.
    pub(crate) fn true_names(self) -> String {
        let names = HINTS.iter().zip(self.0).filter(|(_, holds)| *holds).map(|((_, name, ..), _)| *name);
        names.collect::<Vec<_>>().join(" ")
    }

    /// Reads what [`Effects::names`] wrote; unknown names are left aside.
    pub(crate) fn parse_names(names: &str) -> EffectHints {
        EffectHints(HINTS.map(|(_, name, ..)| names.split(' ').any(|named| named == name)))
    }

    /// What is said otherwise, in words. That a tool only reads takes the rest with it.
    pub(crate) fn describe_flips(self, new: EffectHints) -> Vec<&'static str> {
        let told = if self.0[0] == new.0[0] { &[0, 1, 2, 3][..] } else { &[0, 3] };
        let differs = told.iter().filter(|index| self.0[**index] != new.0[**index]);
        differs.map(|index| if new.0[*index] { HINTS[*index].2 } else { HINTS[*index].3 }).collect()
    }
}

pub(crate) fn is_hint(name: &str) -> bool {
    HINTS.iter().any(|(hint, ..)| *hint == name)
}

fn parse_annotations(annotations: Option<&RawValue>) -> Value {
    annotations.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

pub(super) fn compare(old: Option<&RawValue>, new: Option<&RawValue>, findings: &mut Findings) {
    let (old, new) = (parse_annotations(old), parse_annotations(new));
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
    if findings.worst_in_section().is_none() {
        findings.add(ChangeClass::Other, || "its annotations changed".to_owned());
    }
}
