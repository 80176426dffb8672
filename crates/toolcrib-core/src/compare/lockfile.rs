//! What can be said of a change when of the old version only a lockfile speaks.

use serde_json::Value;

use super::execution::TaskSupport;
use super::hints::EffectHints;
use super::notes::SchemaRole;
use super::{ChangeClass, Findings, ToolComparison, WorkBudget, compare_schema_values};
use crate::lockfile::ToolParts;

pub(crate) fn compare_parts(old: &ToolParts, new: &ToolParts, allowance: &mut WorkBudget) -> ToolComparison {
    let mut findings = Findings::default();
    for note in EffectHints::parse_names(&old.hints).describe_flips(EffectHints::parse_names(&new.hints)) {
        findings.add(ChangeClass::HintFlipped, || note.to_owned());
    }
    if old.execution != new.execution {
        findings.add(ChangeClass::Execution, || "how it is carried out changed".to_owned());
    }
    if old.input != new.input {
        compare_locked_schemas(
            old.input_schema.as_ref(),
            new.input_schema.as_ref(),
            SchemaRole::Input,
            allowance,
            &mut findings,
        );
    }
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
                allowance,
                &mut findings,
            );
        }
    }
    // An older lockfile says nothing of these.
    if old.rest.is_some() {
        let tasks = |parts: &ToolParts| TaskSupport::from_name(parts.tasks.as_deref());
        if let Some((class, note)) = tasks(old).classify_change(tasks(new)) {
            findings.add(class, || note.to_owned());
        }
        if old.rest != new.rest {
            findings
                .add(ChangeClass::Other, || "something changed of which a lockfile has no more than a sign".to_owned());
        }
    }
    if old.text != new.text {
        findings.add(ChangeClass::Text, || "its title or descriptions changed".to_owned());
    }
    findings.into_comparison()
}

fn compare_locked_schemas(
    old: Option<&Value>,
    new: Option<&Value>,
    side: SchemaRole,
    allowance: &mut WorkBudget,
    findings: &mut Findings,
) {
    if let (Some(old), Some(new)) = (old, new) {
        return compare_schema_values(old.clone(), new.clone(), side, allowance, findings);
    }
    let side = side.as_str();
    findings.add(ChangeClass::Other, || {
        format!(
            "its {side} schema changed; how is not known here, for it is too long for a lockfile: \
             `toolcrib diff` tells it where the store is that it was locked from"
        )
    });
}
