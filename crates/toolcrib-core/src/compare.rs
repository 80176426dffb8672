//! What changed between two versions of a tool: a class that says how bad it is for who calls it, and notes in words.
//! Schemas come from outside, so the work and the words are bounded whatever they hold.

mod carried;
mod fields;
mod findings;
mod hints;
mod keywords;
mod limits;
mod locked;
mod plain;
mod renames;
mod schema;
mod simplest;
mod untold;
mod ways;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::execution::Backing;
use crate::json;
use crate::text::shown_short;
use crate::tool::{Note, Tool};

pub(crate) use carried::{EXECUTION, Tasks};
use findings::Findings;
pub(crate) use hints::{Effects, is_hint};
pub(crate) use locked::compare_parts;
pub(crate) use plain::Plain;
pub use renames::{Renamed, likely_renames};
use schema::compare_schemas;
use words::Side;

/// How a change bears on those who use a tool; of several, the worst by [`Class::ALL`] names the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Only what it says about itself.
    Text,
    /// It takes more than before, or promises more of its answer: what was made for it works as it did.
    Widened,
    /// Where a call leads: the path or the server of an operation.
    Execution,
    /// It takes less, or promises less of its answer: what was made for it may still work.
    Narrowed,
    /// What it says about its effects: reading only, destroying, and their like.
    HintFlipped,
    /// What was made for it fails.
    Breaking,
    /// None of these, or a class that a newer Toolcrib knows. What it means is not known, so it counts for more than
    /// what is known to be harmless.
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
pub struct Allowance(pub(crate) usize);

impl Allowance {
    /// For writing down all that is offered: tens of thousands of everyday schemas.
    pub(crate) fn for_a_lock() -> Allowance {
        Allowance(5_000_000)
    }

    /// Whether so much was left.
    fn spend(&mut self, work: usize) -> bool {
        let left = self.0.checked_sub(work);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance(500_000)
    }
}

impl Class {
    /// The mildest first.
    pub const ALL: [Class; 7] = [
        Class::Text,
        Class::Widened,
        Class::Other,
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
            Class::Widened => "The tool takes more than before, or promises more of its answer",
            Class::Execution => "A call leads elsewhere, or is carried out otherwise",
            Class::Narrowed => {
                "The tool takes less, or promises less of its answer; calls made as before may still work"
            }
            Class::HintFlipped => "The tool says otherwise about its effects",
            Class::Breaking => "Calls made as before fail, or their answers cannot be read as before",
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
    hints::compare(old.face.annotations.as_deref(), new.face.annotations.as_deref(), &mut findings);
    carried::compare(old_backing.as_ref(), new_backing.as_ref(), &mut findings);
    carried::compare_tasks(old, new, &mut findings);
    for name in different_extras(old, new).into_iter().filter(|name| *name != EXECUTION) {
        findings.add(Class::Other, || format!("its `{}` changed", shown_short(name, 40)));
    }
    findings.conclude()
}

/// The text as the source gave it.
pub(crate) fn given(tool: &Tool, field: &str, shown: Option<&str>) -> Option<String> {
    let invented = field == "description" && tool.notes.contains(&Note::NoDescription);
    let shown = shown.filter(|_| !invented);
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
            let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Value::Null);
            values(value(old), value(new), side, allowance, findings);
        }
    }
}

/// Two schemas that are not the same text.
fn values(mut old: Value, mut new: Value, side: Side, allowance: &mut Allowance, findings: &mut Findings) {
    if side == Side::Input {
        as_arguments(&mut old);
        as_arguments(&mut new);
    }
    let (old, new) = (&old, &new);
    findings.begin_part();
    let untold = compare_schemas(old, new, side, allowance, findings);
    // What is not looked at above must not pass for a change of words, for none, or for one that is harmless.
    let found = findings.worst_of_part();
    if let Some(found) = found.filter(|found| *found != Class::Text) {
        if let Some(untold) = untold.filter(|_| found.rank() < Class::Other.rank()) {
            findings.add(Class::Other, || untold);
        }
        return;
    }
    let (before, after) = (Plain::of(old), Plain::of(new));
    allowance.spend(before.work + after.work);
    let side = side.as_str();
    match (before.is_like(&after), found) {
        (false, _) => {
            findings.add(Class::Other, || format!("its {side} schema changed in a way that is not told apart"))
        }
        (true, None) => findings.add(Class::Text, || format!("its {side} schema is only written otherwise")),
        (true, Some(_)) => {}
    }
}

/// Arguments are an object, whether or not their schema says so.
fn as_arguments(schema: &mut Value) {
    let made_of_others = ["type", "$ref", "allOf", "anyOf", "oneOf"];
    if let Value::Object(keywords) = schema
        && !made_of_others.iter().any(|keyword| keywords.contains_key(*keyword))
    {
        keywords.insert("type".to_owned(), Value::from("object"));
    }
}

#[cfg(test)]
mod tests;
