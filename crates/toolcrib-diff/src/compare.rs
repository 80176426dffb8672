//! Comparison of two versions of a tool: a class that tells how severely callers are affected, and notes in English.
//!
//! Schemas come from sources and are not trusted, so a [`WorkBudget`] bounds the work, and the number and length of the
//! notes are bounded too. Lists of tools are compared by `manifest`; here it is one tool at a time.
//!
//! The steps for the schemas of one tool:
//!
//! 1. Equal canonical texts are no change.
//! 2. `schema` walks both schemas and reports differences by keyword (`keywords`, `fields`). A node is first
//!    split into alternatives (`toolcrib_schema::Alternative`).
//! 3. If that finds nothing but texts, [`NormalForm`] decides whether the schemas mean the same (`text`) or differ in a
//!    way that no rule covers (`other`).
//!
//! The worst class of all findings is the class of the change. A difference is never classified as milder than it
//! may be: where the walk is incomplete, `unclassified` raises the result to `other`.

mod schema;

mod fields;
mod keywords;
mod unclassified;

mod execution;
mod hints;
mod lockfile;
mod manifests;
mod renames;

mod findings;
mod notes;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::execution::ExecutionSpec;
use toolcrib_core::json;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{Tool, ToolNote};
use toolcrib_schema::NormalForm;
pub use toolcrib_schema::WorkBudget;

pub(crate) use execution::{EXECUTION_FIELD, TaskSupport};
use findings::Findings;
pub(crate) use hints::{EffectHints, is_hint};
pub(crate) use lockfile::compare_parts;
pub use manifests::{compare_manifests, compare_versions};
use notes::SchemaRole;
pub use renames::likely_renames;

/// Result of comparing two versions of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolComparison {
    /// The worst class of all changes.
    pub class: ChangeClass,
    /// One note per change, the most severe first. A note without a subject continues the tool's name: ``gained a
    /// required `owner` ``.
    pub notes: Vec<String>,
}

/// Compares two versions of a tool. Callers know that they differ: when no difference is found, the result is
/// [`ChangeClass::Other`].
pub fn compare(old: &Tool, new: &Tool, budget: &mut WorkBudget) -> ToolComparison {
    let mut comparison = Comparison { budget, findings: Findings::default() };
    // Texts are compared as the source sent them, so that a change of the sanitiser is not a change of the tool.
    for (field, old, new) in [
        ("title", original_title(old), original_title(new)),
        ("description", original_description(old), original_description(new)),
    ] {
        if old != new {
            comparison.findings.add(ChangeClass::Text, || format!("its {field} changed"));
        }
    }
    // Schemas: the full ones of OpenAPI tools are in the execution specification.
    let old_spec = old.parse_execution_spec();
    let new_spec = new.parse_execution_spec();
    let old_input = input_schema(old, old_spec.as_ref());
    comparison.compare_raw_schemas(old_input, input_schema(new, new_spec.as_ref()), SchemaRole::Input);
    let old_output = output_schema(old, old_spec.as_ref());
    comparison.compare_raw_schemas(old_output, output_schema(new, new_spec.as_ref()), SchemaRole::Output);
    // Everything besides schemas and texts.
    let mut findings = comparison.findings;
    hints::compare(old.listing.annotations.as_deref(), new.listing.annotations.as_deref(), &mut findings);
    execution::compare(old_spec.as_ref(), new_spec.as_ref(), &mut findings);
    execution::compare_task_support(old, new, &mut findings);
    for name in changed_unknown_fields(old, new).into_iter().filter(|name| *name != EXECUTION_FIELD) {
        findings.add(ChangeClass::Other, || format!("its `{}` changed", sanitize_truncated(name, 40)));
    }
    findings.into_comparison()
}

/// Returns the title as the source sent it, as canonical JSON: before sanitising.
pub(crate) fn original_title(tool: &Tool) -> Option<String> {
    original_text(tool, "title", tool.listing.title.as_deref())
}

/// Returns the description as the source sent it, as canonical JSON: before sanitising, and without the placeholder that
/// replaces a missing one.
pub(crate) fn original_description(tool: &Tool) -> Option<String> {
    let is_placeholder = tool.notes.contains(&ToolNote::NoDescription);
    original_text(tool, "description", Some(tool.listing.description.as_str()).filter(|_| !is_placeholder))
}

/// Returns a text field as the source sent it, or else as it is listed.
fn original_text(tool: &Tool, field: &str, sanitized: Option<&str>) -> Option<String> {
    canonical_json(tool.original.get(field)).or_else(|| canonical_json(sanitized.map(json::raw_string).as_deref()))
}

/// Returns `raw` with sorted keys and without insignificant white space.
pub(crate) fn canonical_json(raw: Option<&RawValue>) -> Option<String> {
    let mut canonical = String::new();
    json::push_canonical(raw?, &mut canonical);
    Some(canonical)
}

/// Parses a value that is known to be JSON; null without one.
pub(crate) fn parse_json(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Maximum number of changed unknown fields to report. The work is linear in all of them.
const MAX_UNKNOWN_FIELDS: usize = 50;

/// Returns the names of fields that are not part of MCP as known here and that were added, removed or changed.
pub(crate) fn changed_unknown_fields<'a>(old: &'a Tool, new: &'a Tool) -> Vec<&'a str> {
    let before: BTreeMap<&str, &RawValue> = old.extra.iter().collect();
    let after: BTreeMap<&str, &RawValue> = new.extra.iter().collect();
    let differs = |name: &str, value| canonical_json(before.get(name).copied()) != canonical_json(Some(value));
    let changed = new.extra.iter().filter(|(name, value)| differs(name, value)).map(|(name, _)| name);
    let removed = old.extra.iter().map(|(name, _)| name).filter(|name| !after.contains_key(name));
    changed.chain(removed).take(MAX_UNKNOWN_FIELDS).collect()
}

/// Returns the full input schema. Lists may contain a pruned one; the full one is then stored with the execution
/// specification.
pub(crate) fn input_schema<'a>(tool: &'a Tool, spec: Option<&'a ExecutionSpec>) -> Option<&'a RawValue> {
    let full = spec.and_then(|spec| spec.input_schema.as_deref());
    full.or_else(|| tool.original.get("inputSchema")).or(Some(&tool.listing.input_schema))
}

/// Returns the output schema that the source sent, else the one of the operation's successful response.
pub(crate) fn output_schema<'a>(tool: &'a Tool, spec: Option<&'a ExecutionSpec>) -> Option<&'a RawValue> {
    tool.output_schema.as_deref().or_else(|| spec.and_then(|spec| spec.output_schema.as_deref()))
}

/// State of comparing two versions of a tool.
struct Comparison<'b> {
    /// Shared by all tools of a list.
    budget: &'b mut WorkBudget,
    findings: Findings,
}

impl Comparison<'_> {
    /// Compares the input or output schemas of two versions. Canonical texts are compared before anything is parsed:
    /// most schemas of a changed list are unchanged.
    fn compare_raw_schemas(&mut self, old: Option<&RawValue>, new: Option<&RawValue>, role: SchemaRole) {
        if self.have_both(old.is_some(), new.is_some()) && canonical_json(old) != canonical_json(new) {
            self.compare_schemas(parse_json(old), parse_json(new), role);
        }
    }

    /// Returns whether both versions have a schema, and reports one that only one of them has. Every tool has an input
    /// schema, so that can only be an output schema.
    fn have_both(&mut self, has_old: bool, has_new: bool) -> bool {
        match (has_old, has_new) {
            (true, true) => return true,
            (false, false) => {}
            (false, true) => self.findings.add(ChangeClass::Widened, || "gained an output schema".to_owned()),
            (true, false) => self.findings.add(ChangeClass::Narrowed, || "lost its output schema".to_owned()),
        }
        false
    }

    /// Compares two schemas whose canonical text differs.
    fn compare_schemas(&mut self, mut old: Value, mut new: Value, role: SchemaRole) {
        // Otherwise adding the implied type would be reported as a restriction.
        if role == SchemaRole::Input {
            default_to_object(&mut old);
            default_to_object(&mut new);
        }
        self.findings.begin_section();
        let unclassified = schema::compare_schemas(&old, &new, role, self);
        let findings = &mut self.findings;
        // The comparison by keyword does not see everything. If it found nothing worse than a harmless change, an
        // unseen difference must still count: as `Other`, never as `Text` or `Widened`.
        let worst = findings.worst_in_section;
        if let Some(worst) = worst.filter(|worst| *worst != ChangeClass::Text) {
            if let Some(unclassified) = unclassified.filter(|_| worst.severity() < ChangeClass::Other.severity()) {
                findings.add(ChangeClass::Other, || unclassified);
            }
            return;
        }
        let before = NormalForm::new(&old);
        let after = NormalForm::new(&new);
        // The normal form has bounds of its own, so its work is only known, and charged, afterwards.
        self.budget.spend(before.work + after.work);
        let role = role.as_str();
        if !before.is_equivalent(&after) {
            findings
                .add(ChangeClass::Other, || format!("its {role} schema changed in a way that cannot be classified"));
        } else if worst.is_none() {
            findings.add(ChangeClass::Text, || format!("its {role} schema is written differently and means the same"));
        }
    }
}

/// Adds `"type": "object"` to a schema of arguments without a type: arguments are always an object.
fn default_to_object(schema: &mut Value) {
    let type_keywords = ["type", "$ref", "allOf", "anyOf", "oneOf"];
    if let Value::Object(keywords) = schema
        && !type_keywords.iter().any(|keyword| keywords.contains_key(*keyword))
    {
        keywords.insert("type".to_owned(), Value::from("object"));
    }
}

#[cfg(test)]
mod tests;
