//! What changed between two versions of a tool: a class that says how bad it is for who calls it, and notes in words.
//! Schemas come from outside, so the work and the words are bounded whatever they hold.

mod alternatives;
mod execution;
mod fields;
mod findings;
mod hints;
mod keywords;
mod limits;
mod lockfile;
mod normal_form;
mod notes;
mod renames;
mod schema;
mod simplify;
mod unclassified;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::execution::ExecutionSpec;
use crate::json;
use crate::text::sanitize_truncated;
use crate::tool::{Tool, ToolNote};

pub(crate) use execution::{EXECUTION_FIELD, TaskSupport};
use findings::Findings;
pub(crate) use hints::{EffectHints, is_hint};
pub(crate) use lockfile::compare_parts;
pub(crate) use normal_form::NormalForm;
use notes::SchemaRole;
pub use renames::{ToolRename, likely_renames};
use schema::compare_schemas;

/// How a change bears on those who use a tool; of several, the worst by [`Class::ALL`] names the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
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
pub struct ToolComparison {
    pub class: ChangeClass,
    /// Each reads on after the tool's name: ``gained a required `owner` ``.
    pub notes: Vec<String>,
}

/// How much of schemas may be looked at: nodes, fields, values; one allowance for all tools of a list.
#[derive(Debug)]
pub struct WorkBudget(pub(crate) usize);

impl WorkBudget {
    /// For writing down all that is offered: tens of thousands of everyday schemas.
    pub(crate) fn for_lockfile() -> WorkBudget {
        WorkBudget(5_000_000)
    }

    /// Whether so much was left.
    fn spend(&mut self, work: usize) -> bool {
        let left = self.0.checked_sub(work);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.0 == 0
    }
}

impl Default for WorkBudget {
    fn default() -> WorkBudget {
        WorkBudget(500_000)
    }
}

impl ChangeClass {
    /// The mildest first.
    pub const ALL: [ChangeClass; 7] = [
        ChangeClass::Text,
        ChangeClass::Widened,
        ChangeClass::Other,
        ChangeClass::Execution,
        ChangeClass::Narrowed,
        ChangeClass::HintFlipped,
        ChangeClass::Breaking,
    ];

    /// As JSON and people have it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeClass::Text => "text",
            ChangeClass::Widened => "widened",
            ChangeClass::Execution => "execution",
            ChangeClass::Narrowed => "narrowed",
            ChangeClass::HintFlipped => "hint_flipped",
            ChangeClass::Breaking => "breaking",
            ChangeClass::Other => "other",
        }
    }

    /// What a change of this class means, as a sentence for people.
    pub fn meaning(self) -> &'static str {
        match self {
            ChangeClass::Text => "Only titles or descriptions changed",
            ChangeClass::Widened => "The tool takes more than before, or promises more of its answer",
            ChangeClass::Execution => "A call leads elsewhere, or is carried out otherwise",
            ChangeClass::Narrowed => {
                "The tool takes less, or promises less of its answer; calls made as before may still work"
            }
            ChangeClass::HintFlipped => "The tool says otherwise about its effects",
            ChangeClass::Breaking => "Calls made as before fail, or their answers cannot be read as before",
            ChangeClass::Other => "Something else about the tool changed",
        }
    }

    /// How bad it is, compared with others.
    pub fn severity(self) -> usize {
        ChangeClass::ALL.iter().position(|class| *class == self).unwrap_or_default()
    }
}

/// What changed from `old` to `new`.
pub fn compare(old: &Tool, new: &Tool, allowance: &mut WorkBudget) -> ToolComparison {
    let mut findings = Findings::default();
    for (field, old, new) in [
        (
            "title",
            original_text(old, "title", old.listing.title.as_deref()),
            original_text(new, "title", new.listing.title.as_deref()),
        ),
        (
            "description",
            original_text(old, "description", Some(&old.listing.description)),
            original_text(new, "description", Some(&new.listing.description)),
        ),
    ] {
        if old != new {
            findings.add(ChangeClass::Text, || format!("its {field} changed"));
        }
    }
    let (old_backing, new_backing) = (old.parse_execution_spec(), new.parse_execution_spec());
    compare_raw_schemas(
        (input_schema(old, old_backing.as_ref()), input_schema(new, new_backing.as_ref())),
        SchemaRole::Input,
        allowance,
        &mut findings,
    );
    compare_raw_schemas(
        (output_schema(old, old_backing.as_ref()), output_schema(new, new_backing.as_ref())),
        SchemaRole::Output,
        allowance,
        &mut findings,
    );
    hints::compare(old.listing.annotations.as_deref(), new.listing.annotations.as_deref(), &mut findings);
    execution::compare(old_backing.as_ref(), new_backing.as_ref(), &mut findings);
    execution::compare_task_support(old, new, &mut findings);
    for name in changed_unknown_fields(old, new).into_iter().filter(|name| *name != EXECUTION_FIELD) {
        findings.add(ChangeClass::Other, || format!("its `{}` changed", sanitize_truncated(name, 40)));
    }
    findings.into_comparison()
}

/// The text as the source gave it.
pub(crate) fn original_text(tool: &Tool, field: &str, shown: Option<&str>) -> Option<String> {
    let invented = field == "description" && tool.notes.contains(&ToolNote::NoDescription);
    let shown = shown.filter(|_| !invented);
    canonical_json(tool.original.get(field)).or_else(|| canonical_json(shown.map(json::raw_string).as_deref()))
}

pub(crate) fn canonical_json(raw: Option<&RawValue>) -> Option<String> {
    let mut canonical = String::new();
    json::push_canonical(raw?, &mut canonical);
    Some(canonical)
}

/// As many unknown fields are told of as somebody reads; the work is in proportion to all.
const MAX_UNKNOWN_FIELDS: usize = 50;

/// Fields that only one of two has, or that differ, among those that nobody here knows.
pub(crate) fn changed_unknown_fields<'a>(old: &'a Tool, new: &'a Tool) -> Vec<&'a str> {
    let before: BTreeMap<&str, &RawValue> = old.extra.iter().collect();
    let after: BTreeMap<&str, &RawValue> = new.extra.iter().collect();
    let differs = |name: &str, value| canonical_json(before.get(name).copied()) != canonical_json(Some(value));
    let changed = new.extra.iter().filter(|(name, value)| differs(name, value)).map(|(name, _)| name);
    let gone = old.extra.iter().map(|(name, _)| name).filter(|name| !after.contains_key(name));
    changed.chain(gone).take(MAX_UNKNOWN_FIELDS).collect()
}

/// The whole of it, also where lists have it pruned.
fn input_schema<'a>(tool: &'a Tool, backing: Option<&'a ExecutionSpec>) -> Option<&'a RawValue> {
    let whole = backing.and_then(|backing| backing.input_schema.as_deref());
    whole.or_else(|| tool.original.get("inputSchema")).or(Some(&tool.listing.input_schema))
}

fn output_schema<'a>(tool: &'a Tool, backing: Option<&'a ExecutionSpec>) -> Option<&'a RawValue> {
    tool.output_schema.as_deref().or_else(|| backing.and_then(|backing| backing.output_schema.as_deref()))
}

fn compare_raw_schemas(
    (old, new): (Option<&RawValue>, Option<&RawValue>),
    side: SchemaRole,
    allowance: &mut WorkBudget,
    findings: &mut Findings,
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(_)) => findings.add(ChangeClass::Widened, || "gained an output schema".to_owned()),
        (Some(_), None) => findings.add(ChangeClass::Narrowed, || "lost its output schema".to_owned()),
        (Some(old), Some(new)) if canonical_json(Some(old)) == canonical_json(Some(new)) => {}
        (Some(old), Some(new)) => {
            let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Value::Null);
            compare_schema_values(value(old), value(new), side, allowance, findings);
        }
    }
}

/// Two schemas that are not the same text.
fn compare_schema_values(
    mut old: Value,
    mut new: Value,
    side: SchemaRole,
    allowance: &mut WorkBudget,
    findings: &mut Findings,
) {
    if side == SchemaRole::Input {
        default_to_object(&mut old);
        default_to_object(&mut new);
    }
    let (old, new) = (&old, &new);
    findings.begin_section();
    let untold = compare_schemas(old, new, side, allowance, findings);
    // What is not looked at above must not pass for a change of words, for none, or for one that is harmless.
    let found = findings.worst_in_section();
    if let Some(found) = found.filter(|found| *found != ChangeClass::Text) {
        if let Some(untold) = untold.filter(|_| found.severity() < ChangeClass::Other.severity()) {
            findings.add(ChangeClass::Other, || untold);
        }
        return;
    }
    let (before, after) = (NormalForm::new(old), NormalForm::new(new));
    allowance.spend(before.work + after.work);
    let side = side.as_str();
    match (before.is_equivalent(&after), found) {
        (false, _) => {
            findings.add(ChangeClass::Other, || format!("its {side} schema changed in a way that is not told apart"))
        }
        (true, None) => findings.add(ChangeClass::Text, || format!("its {side} schema is only written otherwise")),
        (true, Some(_)) => {}
    }
}

/// Arguments are an object, whether or not their schema says so.
fn default_to_object(schema: &mut Value) {
    let made_of_others = ["type", "$ref", "allOf", "anyOf", "oneOf"];
    if let Value::Object(keywords) = schema
        && !made_of_others.iter().any(|keyword| keywords.contains_key(*keyword))
    {
        keywords.insert("type".to_owned(), Value::from("object"));
    }
}

#[cfg(test)]
mod tests;
