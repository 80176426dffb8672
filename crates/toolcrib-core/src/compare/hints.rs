//! What a tool says about its effects.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Class, Findings};

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
pub(crate) struct Effects([bool; 4]);

impl Effects {
    pub(crate) fn of(annotations: Option<&RawValue>) -> Effects {
        Effects::said(&read(annotations))
    }

    fn said(annotations: &Value) -> Effects {
        let said = |index: usize| annotations.get(HINTS[index].0).and_then(Value::as_bool);
        let read_only = said(0).unwrap_or(false);
        // What only reads destroys nothing, and may be done twice.
        Effects([read_only, said(1).unwrap_or(!read_only), said(2).unwrap_or(read_only), said(3).unwrap_or(true)])
    }

    /// Those that hold, by their short names.
    pub(crate) fn names(self) -> String {
        let names = HINTS.iter().zip(self.0).filter(|(_, holds)| *holds).map(|((_, name, ..), _)| *name);
        names.collect::<Vec<_>>().join(" ")
    }

    /// Reads what [`Effects::names`] wrote; unknown names are left aside.
    pub(crate) fn named(names: &str) -> Effects {
        Effects(HINTS.map(|(_, name, ..)| names.split(' ').any(|named| named == name)))
    }

    /// What is said otherwise, in words. That a tool only reads takes the rest with it.
    pub(crate) fn flipped(self, new: Effects) -> Vec<&'static str> {
        let told = if self.0[0] == new.0[0] { &[0, 1, 2, 3][..] } else { &[0, 3] };
        let differs = told.iter().filter(|index| self.0[**index] != new.0[**index]);
        differs.map(|index| if new.0[*index] { HINTS[*index].2 } else { HINTS[*index].3 }).collect()
    }
}

pub(crate) fn is_hint(name: &str) -> bool {
    HINTS.iter().any(|(hint, ..)| *hint == name)
}

fn read(annotations: Option<&RawValue>) -> Value {
    annotations.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

pub(super) fn compare(old: Option<&RawValue>, new: Option<&RawValue>, findings: &mut Findings) {
    let (old, new) = (read(old), read(new));
    if old == new {
        return;
    }
    findings.begin_part();
    for note in Effects::said(&old).flipped(Effects::said(&new)) {
        findings.add(Class::HintFlipped, || note.to_owned());
    }
    if old.get("title") != new.get("title") {
        findings.add(Class::Text, || "its title changed".to_owned());
    }
    if findings.worst_of_part().is_none() {
        findings.add(Class::Other, || "its annotations changed".to_owned());
    }
}
