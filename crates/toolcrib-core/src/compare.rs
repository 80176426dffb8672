//! What changed between two versions of a tool: a class that says how bad it is for who calls it, and notes in words.
//! Schemas come from outside, so the work and the words are bounded whatever they hold.

mod findings;
mod keywords;
mod renames;
mod schema;
mod ways;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::execution::{Backing, Execution};
use crate::json;
use crate::lock::meant;
use crate::text::shown_short;
use crate::tool::Tool;

use findings::Findings;
pub use renames::{Renamed, likely_renames};
use schema::{Side, compare_schemas};

/// How a change bears on those who use a tool, the mildest first; of several, the worst names the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Only what it says about itself.
    Text,
    /// It takes, or gives, more than before.
    Widened,
    /// Where a call leads: the path or the server of an operation.
    Execution,
    /// It takes less, or gives less; a call made as before may still work.
    Narrowed,
    /// What it says about its effects: reading only, destroying, and their like.
    HintFlipped,
    /// Calls made as before fail.
    Breaking,
    /// None of these, or a class that a newer Toolcrib knows. It counts as little more than text.
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    pub class: Class,
    /// Each reads on after the tool's name: ``gained a required `owner` ``.
    pub notes: Vec<String>,
}

/// How much of schemas may be looked at: nodes, fields, values; one allowance for all tools of a list.
#[derive(Debug)]
pub struct Allowance(usize);

impl Allowance {
    /// Whether so much was left.
    fn spend(&mut self, work: usize) -> bool {
        let left = self.0.checked_sub(work);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance(500_000)
    }
}

impl Class {
    pub const ALL: [Class; 7] = [
        Class::Text,
        Class::Other,
        Class::Widened,
        Class::Execution,
        Class::Narrowed,
        Class::HintFlipped,
        Class::Breaking,
    ];

    /// As JSON and people have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Text => "text",
            Class::Widened => "widened",
            Class::Execution => "execution",
            Class::Narrowed => "narrowed",
            Class::HintFlipped => "hint_flipped",
            Class::Breaking => "breaking",
            Class::Other => "other",
        }
    }

    /// What a change of this class means, as a sentence for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Class::Text => "Only titles or descriptions changed",
            Class::Widened => "The tool takes or gives more than before",
            Class::Execution => "A call leads elsewhere, or is carried out otherwise",
            Class::Narrowed => "The tool takes or gives less; calls made as before may still work",
            Class::HintFlipped => "The tool says otherwise about its effects",
            Class::Breaking => "Calls made as before fail",
            Class::Other => "Something else about the tool changed",
        }
    }

    /// How bad it is, compared with others.
    pub fn rank(self) -> usize {
        Class::ALL.iter().position(|class| *class == self).unwrap_or_default()
    }
}

/// What changed from `old` to `new`.
pub fn compare(old: &Tool, new: &Tool, allowance: &mut Allowance) -> Comparison {
    let mut findings = Findings::default();
    for (field, old, new) in [
        ("title", given(old, "title", old.face.title.as_deref()), given(new, "title", new.face.title.as_deref())),
        (
            "description",
            given(old, "description", Some(&old.face.description)),
            given(new, "description", Some(&new.face.description)),
        ),
    ] {
        if old != new {
            findings.add(Class::Text, || format!("its {field} changed"));
        }
    }
    let (old_backing, new_backing) = (old.backing(), new.backing());
    schemas(
        (input_schema(old, old_backing.as_ref()), input_schema(new, new_backing.as_ref())),
        Side::Input,
        allowance,
        &mut findings,
    );
    schemas(
        (output_schema(old, old_backing.as_ref()), output_schema(new, new_backing.as_ref())),
        Side::Output,
        allowance,
        &mut findings,
    );
    annotations(old.face.annotations.as_deref(), new.face.annotations.as_deref(), &mut findings);
    backing(old_backing.as_ref(), new_backing.as_ref(), &mut findings);
    for name in different_extras(old, new) {
        findings.add(Class::Other, || format!("its `{}` changed", shown_short(name, 40)));
    }
    findings.conclude()
}

/// The text as the source gave it.
pub(crate) fn given(tool: &Tool, field: &str, shown: Option<&str>) -> Option<String> {
    canonical(tool.original.get(field)).or_else(|| canonical(shown.map(json::string).as_deref()))
}

pub(crate) fn canonical(raw: Option<&RawValue>) -> Option<String> {
    let mut canonical = String::new();
    json::canonical(raw?, &mut canonical);
    Some(canonical)
}

/// As many unknown fields are told of as somebody reads; the work is in proportion to all.
const MOST_EXTRAS: usize = 50;

/// Fields that only one of two has, or that differ, among those that nobody here knows.
pub(crate) fn different_extras<'a>(old: &'a Tool, new: &'a Tool) -> Vec<&'a str> {
    let before: BTreeMap<&str, &RawValue> = old.extra.iter().collect();
    let after: BTreeMap<&str, &RawValue> = new.extra.iter().collect();
    let differs = |name: &str, value| canonical(before.get(name).copied()) != canonical(Some(value));
    let changed = new.extra.iter().filter(|(name, value)| differs(name, value)).map(|(name, _)| name);
    let gone = old.extra.iter().map(|(name, _)| name).filter(|name| !after.contains_key(name));
    changed.chain(gone).take(MOST_EXTRAS).collect()
}

/// The whole of it, also where lists have it pruned.
fn input_schema<'a>(tool: &'a Tool, backing: Option<&'a Backing>) -> Option<&'a RawValue> {
    let whole = backing.and_then(|backing| backing.input_schema.as_deref());
    whole.or_else(|| tool.original.get("inputSchema")).or(Some(&tool.face.input_schema))
}

fn output_schema<'a>(tool: &'a Tool, backing: Option<&'a Backing>) -> Option<&'a RawValue> {
    tool.output_schema.as_deref().or_else(|| backing.and_then(|backing| backing.output_schema.as_deref()))
}

fn schemas(
    (old, new): (Option<&RawValue>, Option<&RawValue>),
    side: Side,
    allowance: &mut Allowance,
    findings: &mut Findings,
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(_)) => findings.add(Class::Widened, || "gained an output schema".to_owned()),
        (Some(_), None) => findings.add(Class::Narrowed, || "lost its output schema".to_owned()),
        (Some(old), Some(new)) if canonical(Some(old)) == canonical(Some(new)) => {}
        (Some(old), Some(new)) => {
            findings.begin_part();
            let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Value::Null);
            compare_schemas(&value(old), &value(new), side, allowance, findings);
            // What is not looked at above must not pass for a change of words, or for none.
            let side = side.as_str();
            match findings.worst_of_part() {
                None | Some(Class::Text) if meant(old, &mut Vec::new()) != meant(new, &mut Vec::new()) => {
                    findings.add(Class::Other, || format!("its {side} schema changed in a way that is not told apart"))
                }
                None => findings.add(Class::Text, || format!("words in its {side} schema changed")),
                Some(_) => {}
            }
        }
    }
}

/// A hint, what is assumed where it is not given, and what a change to yes and to no is called.
const HINTS: [(&str, bool, &str, &str); 4] = [
    ("readOnlyHint", false, "now says it only reads", "no longer says it only reads"),
    ("destructiveHint", true, "now says it is destructive", "now says it is not destructive"),
    (
        "idempotentHint",
        false,
        "now says that doing it twice does it once",
        "no longer says that doing it twice does it once",
    ),
    ("openWorldHint", true, "now says it reaches beyond its source", "now says it stays within its source"),
];

fn annotations(old: Option<&RawValue>, new: Option<&RawValue>, findings: &mut Findings) {
    let read = |raw: Option<&RawValue>| -> Value {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    };
    let (old, new) = (read(old), read(new));
    if old == new {
        return;
    }
    findings.begin_part();
    for (name, assumed, yes, no) in HINTS {
        let said = |annotations: &Value| annotations.get(name).and_then(Value::as_bool).unwrap_or(assumed);
        match (said(&old), said(&new)) {
            (false, true) => findings.add(Class::HintFlipped, || yes.to_owned()),
            (true, false) => findings.add(Class::HintFlipped, || no.to_owned()),
            (true, true) | (false, false) => {}
        }
    }
    if old.get("title") != new.get("title") {
        findings.add(Class::Text, || "its title changed".to_owned());
    }
    if findings.worst_of_part().is_none() {
        findings.add(Class::Other, || "its annotations changed".to_owned());
    }
}

fn backing(old: Option<&Backing>, new: Option<&Backing>, findings: &mut Findings) {
    let (Some(old), Some(new)) = (old, new) else {
        if old.is_some() || new.is_some() {
            findings.add(Class::Execution, || "how it is carried out changed".to_owned());
        }
        return;
    };
    if old.execution != new.execution {
        findings.add(Class::Execution, || carried_out(&old.execution, &new.execution));
    }
    match (old.deprecated, new.deprecated) {
        (false, true) => findings.add(Class::Other, || "is deprecated by its source now".to_owned()),
        (true, false) => findings.add(Class::Other, || "is no longer deprecated by its source".to_owned()),
        (true, true) | (false, false) => {}
    }
    if old.tags != new.tags {
        findings.add(Class::Other, || "its tags changed".to_owned());
    }
}

/// Addresses are not told: a part of one may be confidential.
fn carried_out(old: &Execution, new: &Execution) -> String {
    let (Some(old), Some(new)) = (old.operation(), new.operation()) else {
        return "how it is carried out changed".to_owned();
    };
    if (&old.method, &old.path) != (&new.method, &new.path) {
        let line = |method: &str, path: &str| shown_short(&format!("{method} {path}"), 80);
        return format!("its request: `{}` became `{}`", line(&old.method, &old.path), line(&new.method, &new.path));
    }
    match old.server == new.server {
        false => "its server changed".to_owned(),
        true => "how its request is made changed".to_owned(),
    }
}

#[cfg(test)]
mod tests;
