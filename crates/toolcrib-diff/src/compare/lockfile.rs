//! Compares a tool with its entry in a lockfile, for when the old version itself is not in the store.
//!
//! An entry contains fingerprints of the parts of a tool, and the normal forms of schemas that are short enough. The
//! classes are those of a comparison of whole tools as far as the parts allow; notes are less detailed.

use serde_json::Value;
use toolcrib_schema::WorkBudget;

use super::execution::TaskSupport;
use super::hints::EffectHints;
use super::notes::SchemaRole;
use super::{ChangeClass, Findings, ToolComparison, compare_schema_values};
use crate::lockfile::ToolParts;

/// Compares the stored parts of two versions. Parts without a stored schema are only known to differ.
pub(crate) fn compare_parts(old: &ToolParts, new: &ToolParts, budget: &mut WorkBudget) -> ToolComparison {
    let mut findings = Findings::default();
    for note in EffectHints::parse_names(&old.hints).describe_flips(EffectHints::parse_names(&new.hints)) {
        findings.add(ChangeClass::HintFlipped, || note.to_owned());
    }
    if old.execution != new.execution {
        findings.add(ChangeClass::Execution, || "its execution changed".to_owned());
    }
    // A fingerprint tells that a schema changed, the stored normal form how.
    if old.input != new.input {
        compare_locked_schemas(
            old.input_schema.as_ref(),
            new.input_schema.as_ref(),
            SchemaRole::Input,
            budget,
            &mut findings,
        );
    }
    // A tool may have no output schema.
    match (&old.output, &new.output) {
        (None, None) => {}
        (None, Some(_)) => findings.add(ChangeClass::Widened, || "gained an output schema".to_owned()),
        (Some(_), None) => findings.add(ChangeClass::Narrowed, || "lost its output schema".to_owned()),
        (Some(before), Some(after)) if before == after => {}
        (Some(_), Some(_)) => {
            compare_locked_schemas(
                old.output_schema.as_ref(),
                new.output_schema.as_ref(),
                SchemaRole::Output,
                budget,
                &mut findings,
            );
        }
    }
    // Older lockfiles have neither `tasks` nor `rest`.
    if old.rest.is_some() {
        // A missing value means forbidden.
        let tasks = |parts: &ToolParts| TaskSupport::from_name(parts.tasks.as_deref());
        if let Some((class, note)) = tasks(old).classify_change(tasks(new)) {
            findings.add(class, || note.to_owned());
        }
        if old.rest != new.rest {
            findings.add(ChangeClass::Other, || {
                "other fields changed; the lockfile stores only their fingerprint".to_owned()
            });
        }
    }
    // Which text changed is not stored.
    if old.text != new.text {
        findings.add(ChangeClass::Text, || "its title or descriptions changed".to_owned());
    }
    findings.into_comparison()
}

/// Compares the stored schemas, if both are short enough to be in a lockfile.
fn compare_locked_schemas(
    old: Option<&Value>,
    new: Option<&Value>,
    role: SchemaRole,
    budget: &mut WorkBudget,
    findings: &mut Findings,
) {
    if let (Some(old), Some(new)) = (old, new) {
        return compare_schema_values(old.clone(), new.clone(), role, budget, findings);
    }
    let role = role.as_str();
    findings.add(ChangeClass::Other, || {
        format!(
            "its {role} schema changed; it is too long to be stored in the lockfile, \
             run `toolcrib diff` with the store that was locked to see how"
        )
    });
}
